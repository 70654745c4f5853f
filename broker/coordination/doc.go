// Package coordination is everything that Carillon keeps in etcd, typed. It is the only
// package that imports the etcd client.
//
// All keys of one Broker resource stand under /carillon/<namespace>/<name>/; values are
// small JSON objects with a version in "v":
//
//	owner          {"v":1,"identity":...}: which Broker resource the keys belong to
//	brokers/<id>   {"v":1,"name","client","route","http","zone","version","features"}, leased; the
//	               key's create revision is the broker's incarnation
//	controller     {"v":1,"broker","incarnation"}, on the lease of that broker's registration; the
//	               key's create revision is its term
//	topics/<name>  a Topic: id, spec, generation, owner, created, deleting
//	subjects       {"v":1}: the gate before the subjects that Topics claim; only its revision counts
//	drains/<id>     {"v":1,"mode"}: what that broker is to be relieved of, until that is ended
//	drains/<id>/leased  the same, on the lease of the broker's registration
//	silences/<id>/<by>  {"v":1,"by"}, on the lease of the first: the broker that comes last hears nothing of it
//	reports/<id>    {"v":1,"suspects"}, on that lease too: the replicas that the broker can't vouch for
//	shards/<topic id>/<n>             a Shard: epoch, leader, replicas, in-sync members, adding, removing
//	subscriptions/<topic id>/<name>   a Subscription: spec, generation, owner, created
//
// Invariants of membership, and of everything:
//
//   - An incarnation belongs to one life of one process: a broker that registers again
//     never inherits the create revision, nor the lease, of the life before.
//   - A broker that lost its lease registers again by itself. One whose identity was taken
//     by a newer process stops, with a SupersededError.
//   - Membership, once known, stands while etcd can't be reached: an etcd that is down
//     never looks like a cluster without brokers.
//   - A watch that was compacted, cut or silent is replaced by a reading at a revision
//     and a watch from there, so no change is missed and none is seen in the wrong order.
//   - Nothing here waits without a context or a bound, and Close leaves no goroutine.
//
// Invariants of Topics and what hangs on them:
//
//	C1  No two Topics keep one subject, whoever makes them and however many at once: who adds a claim
//	    compares and writes the gate in the same transaction. A deletion only frees, and needs no gate.
//	C2  A Topic's id is its own for ever; one that is made again has another. Shards and
//	    Subscriptions go by the id, so they never pass on.
//	C3  What hangs on a Topic is made by comparing the Topic's key, and a deletion marks that key first.
//	    So nothing comes after the mark, and what was found under it is all there is.
//	C4  Only its owner changes a Topic or a Subscription; clients are one owner, and that of what a
//	    manifest left behind, too. A manifest adopts only what one of its namespace and name declared.
//	C5  A shard is changed by comparing its revision. The controller also compares its term, so one
//	    that was deposed changes nothing, and the life of the leader that it names; a leader
//	    compares its own life and that of who joins its in-sync set; a broker that vouches for its copy,
//	    withdraws it or resigns compares its own life, and changes no entry but its own.
//	C6  A State is what etcd had at one revision. It never changes. What is unreadable in it
//	    leaves what was known: only a deletion looks like a deletion.
//	C7  What a broker's lease holds besides its registration (office, drain, report) is of that life. A later
//	    life in the same process has drain and report from its first moment.
//	C8  Each change is whole in one transaction, whose answer may be lost: to repeat it is to be told of it, and no more.
//	    Several may share one (Topics that are made, in-sync sets); what becomes of one doesn't depend on the others.
//
// Making a Topic and placing its shard write three keys; what a repeated or equal change asks for writes none.
//
// When the process dies in it: the lease runs out (or whoever notices revokes it) and the
// broker's key goes with it, and with that its office as controller. A half-made registration is
// a lease without a key, which runs out too. The identity file is written aside and renamed, so it
// is there whole or not at all. Of a Topic either all is made or nothing. A deletion that was
// marked is gone on with by whoever deletes or makes a Topic of that name, and by the controller.
package coordination
