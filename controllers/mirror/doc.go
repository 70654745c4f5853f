// Package mirror follows the etcd of each Broker: one client, one watch, and one request to each
// broker for its numbers in half a minute. The reconcilers of Topics and Subscriptions read from
// here and write through the same client. Nothing else watches, and nothing polls for a single
// Topic.
//
// Invariants:
//
//   - M1 A Broker has one mirror. When the Broker is gone, the mirror's client is closed and its
//     goroutines have ended before the next mirror of that name begins.
//   - M2 No key is read before the keys are known to belong to this Broker.
//   - M3 A fact stands until a newer one is known: an unreachable etcd, or a broker that does not
//     answer, changes nothing.
//   - M4 Every change triggers a pass over each manifest that it may affect. A deleted manifest is
//     found by the owner in etcd.
//
// When the process dies, the next one reads etcd again.
package mirror
