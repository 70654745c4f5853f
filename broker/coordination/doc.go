// Package coordination is everything that Carillon keeps in etcd, typed. It is the only
// package that imports the etcd client.
//
// All keys of one Broker resource stand under /carillon/<namespace>/<name>/; values are
// small JSON objects with a version in "v":
//
//	owner          {"v":1,"identity":...}: which Broker resource the keys belong to
//	brokers/<id>   {"v":1,"name","client","route","http","zone","version"}, leased; the
//	               key's create revision is the broker's incarnation
//
// Invariants:
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
// When the process dies in it: the lease runs out (or whoever notices revokes it) and the
// broker's key goes with it. A half-made registration is a lease without a key, which runs
// out too. The identity file is written aside and renamed, so it is there whole or not at all.
package coordination
