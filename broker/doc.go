// Package broker assembles one broker: its clients, the links to other brokers, Topics and their
// APIs, membership, metrics and the HTTP port. Each of them is a package below; this one only
// configures them, connects them, and starts and stops them in order.
//
// Start: claim the volume and the ports, recover the logs, open links and the HTTP port, register,
// wait for the links, take clients, be ready. From then on nothing depends on etcd: while it is
// away the last known membership stands.
//
// Stop: be unready, hand over leadership, announce the end to other brokers, deregister, disconnect
// clients, close the logs.
//
// When the process dies, its lease and links end; other brokers drop its interest, clients
// reconnect elsewhere, and the next process on this volume registers under a new incarnation.
package broker
