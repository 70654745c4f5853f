// Package confirm has the readers of a shard that wait for a barrier round, and says for how long.
//
// An answer that a record of a newer leader could falsify waits for a barrier round: all in-sync
// replicas confirm that this broker still leads (replica.Leading.RequestRound). Rules:
//
//  1. A refusal by a condition waits, whether a record contradicts the condition or is missing. It
//     goes to an answer of its own, so that acks never wait for it.
//  2. Acks and duplicates of kept messages stay true. They wait for their record alone (T1 of
//     package topic).
//  3. Readers that claim to show the latest record wait before they read.
//  4. A round is asked for after the message or request has come. So the answer was true at some
//     time between its arrival and the answer.
//  5. Without confirmation within Time the answer is a *publish.UnconfirmedError, and this leader
//     keeps nothing of the message. A message that was also sent to a former leader may be in that
//     leader's log: its sender sends it again.
//  6. A new epoch of the same leader asks for new rounds: rounds are numbered by epoch.
//
// Everything is in memory. When the process dies, nobody waits any more.
package confirm
