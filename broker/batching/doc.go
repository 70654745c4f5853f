// Package batching gathers the messages of atomic batches until their publisher commits them, says
// what a message of a batch may ask for, and follows the fast batches, whose messages go on as they
// come.
//
//	limits.go   every bound, with its reason
//	staging.go  Staging: the open batches of the clients of this broker
//	open.go     one open batch, and its encoding
//	rules.go    Rules: what a message of a batch may ask for; pure
//	fast.go     Fast: the open fast batches of one shard's publishers; pure
//
// # Atomic batches
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
// # Fast batches
//
// Messages of a fast batch go to the leader as any other message does. Fast belongs to the shard's
// sender (package sender), whose lock guards it, so what it knows of a message and what the outbox
// knows change in one step. Invariants:
//
//	B5  An ack names a sequence up to which all messages that came are answered by the leader. If
//	    gaps are not ok, all of them are kept.
//	B6  If gaps are not ok, a message is kept only if the one before it is: it names that one's
//	    number (protocol.Message.Behind). The leader refuses it behind one that it has refused, and
//	    Settle abandons what is unanswered behind a refused message.
//	B7  The end of a batch is answered once, when all of its messages are, and names the last one
//	    before the first that is refused or missing.
//	B8  Open fast batches are bounded in number, per shard and in all, and in the time for which they
//	    are idle. Those of a shard share the messages between two acks.
//
// Rejected: fast batches at the leader, as in nats-server, where followers count along. A publisher
// could go on at another broker. But a message on its way from the former broker could come behind
// one from the new broker, and the next leader would have to know which acks were given.
//
// # Death of the process
//
// When the process dies its open batches end with it, as the connections of their publishers do. A
// publisher that goes on at another broker is told that the batch is incomplete, or unknown.
package batching
