// Package coordinator runs one etcd member inside this process: that of `carillon coordinator` in a
// pod, and that of `carillon dev` on a laptop.
//
// It decides how the member starts:
//
//	its volume holds a member      it goes on as that member
//	empty, and no cluster before   it forms the cluster with the others (--initial-cluster)
//	empty, and there was one       it has its old self removed, is added as a learner,
//	                               copies everything, and is promoted to vote again
//
// Invariants:
//
//   - A member that lost its volume never votes under its old id: it could vote twice in one term,
//     or vouch for entries that it has lost.
//   - Once a cluster has existed no member forms another one. It knows that from the file that the
//     operator mounts, or from the other members.
//   - Each step of rejoining is safe to repeat and is repeated until it succeeds. The next attempt
//     removes what the last one left, such as a learner that never started.
//   - A database at its quota, where etcd refuses writes, is compacted, rewritten and opened again
//     (upkeep.go). Only live data that exceed half of the quota need a person.
//   - Data of etcd with inconsistent metadata are set aside and never deleted.
//   - A member stops within stopTimeout, with or without a quorum, whatever its clients do: their
//     connections are closed, and not waited for (clients.go).
//   - Liveness depends on no other member; readiness means that the quorum answers.
//
// When the process dies in any step, the next start reads the volume, asks the other members again,
// and takes the step that is due. One process at a time uses a data directory; its lock ends with
// it.
package coordinator
