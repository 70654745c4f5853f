// Package plan decides what to do next for one Broker: facts in, one action out, with a reason from
// a closed list and a sentence for people. It is pure; what it says is done elsewhere, and what was
// done is seen as facts the next time.
//
// Invariants, each held by a property test:
//   - P1 A pod that is ready is replaced only while every other pod of its set is there and ready:
//     never are two brokers, or two coordinators, down because of us.
//   - P2 A ready coordinator is replaced only while the others are a quorum without it.
//   - P3 Pods that never came up are replaced without waiting for anything; no gate stands before a
//     repair.
//   - P4 Coordinators come before brokers.
//   - P5 In a world where pods come up after a while, it ends; and what has converged needs None.
//
// Topics and Subscriptions are planned in the same way, one manifest at a time:
//   - P6 Nothing is written that brokers could not serve, and nothing that belongs to somebody
//     else: neither to a client nor to a manifest of another name.
//   - P7 Nothing is deleted before the API server said that the manifest is gone and its definition
//     and Broker are not; and never records, unless the policy says so.
//   - P8 Of manifests that ask for one subject the oldest is served, unless a younger one has
//     records: subjects are taken only from what holds none.
//   - P9 Pass after pass it ends, in whatever order the manifests come; and what has converged
//     plans no write.
//
// There is no state to lose: a process that dies between two actions leaves facts.
package plan
