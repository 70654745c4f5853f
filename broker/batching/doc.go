// Package batching gathers the messages of atomic batches until their publisher commits them, and
// says what a message of a batch may ask for.
//
//	limits.go   every bound, with its reason
//	staging.go  Staging: the open batches of the clients of this broker
//	open.go     one open batch, and its encoding
//	rules.go    Rules: what a message of a batch may ask for; pure
//
// A batch is staged where its publisher is connected, in memory. Its commit makes one message of
// it, with one number of the shard's sender and one place in the outbox (package sender). So
// nothing of an open batch is known to a leader, and the end of a leadership ends no batch.
//
// Invariants:
//
//	B1  What is staged is in no log. A batch without a commit leaves nothing behind.
//	B2  A committed batch has one number. The leader judges it once, and appends all of its messages
//	    as one batch of the log, or none.
//	B3  A message that continues no open batch is refused: what came before is not there.
//	B4  The open batches are bounded in number, messages, bytes and age, per Topic and in all.
//
// Rejected: staging at the leader. Each message of a batch would have a number and an answer of its
// own, before anything of it is durable. After a change of the leader the next one would have to
// know which of those answers were given, and a message that is sent again could begin a second
// batch.
//
// When the process dies its open batches end with it, as the connections of their publishers do. A
// publisher that goes on at another broker is told that the batch is incomplete.
package batching
