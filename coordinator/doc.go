// Package coordinator runs one etcd member inside this process: what `carillon
// coordinator` is in a pod, and what `carillon dev` uses on a laptop.
//
// What it adds to etcd is the beginning. A member starts in one of three ways:
//
//	its volume holds a member      it goes on as that member
//	empty, and no cluster before   it forms the cluster with the others (--initial-cluster)
//	empty, and there was one       it has its old self removed, is added as a learner,
//	                               copies everything, and is promoted to vote again
//
// Invariants:
//
//   - A member that lost its volume never takes part in a vote under its old id: it could
//     vote twice in one term, or vouch for entries that it no longer has.
//   - Once a cluster has existed nothing forms another one beside it: that is known from
//     the file that the operator mounts, or else from the other members.
//   - Each step towards rejoining is safe to repeat and is repeated for ever. What an
//     attempt left behind (a learner that was added and never started) the next one removes.
//   - Nothing that etcd ever wrote is deleted because metadata disagree: it is set aside.
//   - Being alive depends on no other member; being ready means to answer for the quorum.
//
// When the process dies in it, whatever the step: the next start looks at the volume and
// asks the others again, and takes the step that is due. Only one process at a time uses a
// data directory; it holds a lock that dies with it.
package coordinator
