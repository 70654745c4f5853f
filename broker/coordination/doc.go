// Package coordination defines everything that Carillon stores in etcd. It is the only package that
// imports the etcd client.
//
// All keys of one Broker resource are below /carillon/<namespace>/<name>/. Values are small JSON
// objects with a version in "v":
//
//	attributes/full                   there while there is little room for those of manifests
//	attributes/manifests/<topic>      the names that the manifest of a Topic has declared
//	attributes/subjects/<subject>     a subject's attributes, who set them, and their holder
//	generation            how often etcd was restored from a backup (history)
//	settling              the generation that began lately, on a lease of its own (G5)
//	owner                 the identity of the Broker resource that the keys belong to
//	brokers/<id>          a Broker, on a lease; its generation and create revision are the broker's
//	                      incarnation
//	controller            broker and incarnation of the controller, on the lease of that broker;
//	                      its create revision is the controller's term
//	topics/<name>         a Topic: id, spec, generation, owner, created, deleting
//	subjects              the gate of claims to subjects; only its revision matters
//	drains/<id>           what the broker is drained of, until EndDrain
//	drains/<id>/leased    the same, on the broker's lease
//	silences/<id>/<by>    broker <by> hears nothing from broker <id>; on the lease of <id>
//	reports/<id>          the replicas that the broker cannot vouch for; on its lease
//	reports/<id>/<n>      what does not fit there, in parts
//	shards/<topic id>/<n>             a Shard: epoch, leader, replicas, in-sync members
//	subscriptions/<topic id>/<name>   a Subscription: spec, generation, owner, created
//	views/<name>                      a View: spec, generation, owner, created
//	users                             what users share, and whether their set is whole: settings
//	users/<name>                      a user: verifiers and permissions; the name as in URLs
//	tombstones/<topic id>             the name of a deleted Topic, and when it was deleted
//
// Invariants of membership:
//
//   - An incarnation belongs to one registration: a broker that registers again never inherits the
//     create revision, nor the lease, of an earlier registration.
//   - A broker that lost its lease registers again. A broker whose identity a newer process has
//     registered stops, with a SupersededError.
//   - The last known membership stands while etcd is unreachable: an etcd that is down never looks
//     like a cluster without brokers.
//   - A watch that was compacted, cut or silent is replaced by a read at a revision and a watch
//     from there, so no change is missed and none is seen in the wrong order.
//   - A read or a watch of an etcd that was restored from a backup is not taken for a later state
//     of what was seen before: the generation is raised, and everything is read again.
//   - Nothing waits without a context or a bound, and Close leaves no goroutine.
//
// Invariants of Topics, shards, Subscriptions and Views:
//
//	C1  No two Topics claim one subject. A transaction that adds a claim compares and writes the
//	    gate. A deletion only frees claims, and needs no gate.
//	C2  A Topic's id is never reused: a recreated Topic has another one, and each transaction that
//	    creates a Topic has an id of its own. Shards and Subscriptions are keyed by the id, so a
//	    recreated Topic does not inherit them.
//	C3  Shards and Subscriptions are created by comparing the Topic's key, and a deletion marks that
//	    key first. So nothing is created after the mark, and what exists then is complete.
//	C4  Only its owner changes a Topic, a Subscription or a View. All clients are one owner, and
//	    also own what a deleted manifest left. A manifest adopts only what a manifest of its
//	    namespace and name declared.
//	C5  A shard is changed by comparing its revision. The controller also compares its term and the
//	    incarnation of the leader that it names. A leader compares its own incarnation and that of
//	    a broker that joins its in-sync set. A broker that vouches for its copy, withdraws it or
//	    resigns compares its own incarnation, and changes its own entry only.
//	C6  A State is the content of etcd at one revision, and immutable. An unreadable value leaves
//	    the last readable one: only a deletion looks like a deletion.
//	C7  Everything on a broker's lease (controller key, drain, report) belongs to that incarnation.
//	    A later incarnation of the same process has drain and report (the first part of it) from its
//	    first moment.
//	C8  Each change is one transaction. Its answer may be lost; repeating it has no further effect.
//	    Several changes may share a transaction (new Topics, in-sync sets); each succeeds or fails
//	    independently of the others.
//	C9  A Topic's key and its tombstone never exist at one revision. A tombstone is written only by
//	    the transaction that completes a deletion.
//	C10 No dead letters go in a circle. A write that names a Topic for them compares the Topics that
//	    they may reach, and those Topics' Subscriptions.
//	C11 A State has a whole set of users, or the whole one before it. While one is being written
//	    and the process has seen none, UsersBegun says so. A user whose value can't be read is
//	    left out, and takes no other one away.
//
//	C12 What clients declare takes at most ClientBytes, and all else has room (clientRoom).
//	    What a user makes counts towards its limits (usage).
//	C13 Attributes of subjects have a client, a connection and a watch of their own (Attributes). The
//	    watch of the State begins behind them.
//	C14 No results of Views go in a circle, and there are at most MaxViews. A write of a View
//	    compares that none was written since its writer has read all.
//
// Who may read and write the keys is in etcd, too (Access). A request that its users may not make
// ends with a *RefusedError. A change of users fails no request: see refusals.
//
// Creating a Topic and placing its shard write three keys. A repeated or equal change writes none.
//
// When the process dies in it, the lease expires (or another broker revokes it), and with it the
// broker's registration and its controller key. An incomplete registration is a lease without a
// key, which expires, too. The identity file is replaced by a rename, so it is there completely or
// not at all. A Topic is created completely or not at all. A marked deletion is continued by the
// next creation or deletion of a Topic of that name, and by the controller.
package coordination
