// Package plan decides the next action for one Broker: facts in, one action out, with a reason from
// a closed list and a sentence for people. It is pure: other packages carry the action out, and its
// result is among the facts of the next pass.
//
// Invariants, each held by a property test:
//   - P1 A ready pod is replaced only while every other pod of its set exists and is ready: the
//     operator never takes two brokers, or two coordinators, down at a time.
//   - P2 A ready coordinator is replaced only while the others are a quorum without it.
//   - P3 Pods that never started are replaced at once: no gate delays a repair.
//   - P4 Coordinators come before brokers.
//   - P5 If pods become ready after a while, the actions end; a converged Broker gets None.
//   - P10 While a Secret that brokers need can't be used, no ready broker is replaced: the next one
//     would not start.
//   - P11 etcd asks for users only once it has all of them, and while every pod is of the present
//     template and ready. To give users their roles waits for nothing but repairs.
//
// Topics and Subscriptions are planned in the same way, one manifest at a time:
//   - P6 No spec is written that brokers could not serve, and no Topic or Subscription is changed
//     that belongs to a client or to a manifest of another name.
//   - P7 Nothing is deleted before the API server has answered that the manifest is gone and that
//     its definition and its Broker exist. Records are deleted only if the policy says so.
//   - P8 Of manifests with the same subject the oldest is served, unless a younger one has records:
//     only a Topic without records gives up subjects.
//   - P9 The actions end, in whatever order manifests are applied; a converged Topic or
//     Subscription plans no write.
//
// The package keeps no state: when the process dies between two actions, the next one plans from
// the facts.
package plan
