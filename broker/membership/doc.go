// Package membership keeps this broker a member of its cluster: it registers the broker in etcd,
// passes the members on to links and clients, and reports and evicts brokers that are dead or
// silent.
//
// Terms: an incarnation is the etcd revision of one registration, so each process and each new
// lease has a later one. A Replica is a broker in one incarnation.
//
// Invariants:
//
//	M1  Followers of the cluster's State begin after the first registration (Registered). Before it,
//	    a State that names this broker speaks of an earlier process, whose in-sync entry and
//	    leadership this one must not take for its own.
//	M2  Only an incarnation is evicted or reported silent, never a broker: its next process is not
//	    affected.
//	M3  Losing etcd changes nothing: the last known members stand.
//
// When the process dies, its lease ends and with it its registration and its silence reports.
package membership
