// Package republish publishes again what a stream has stored (republish in its configuration):
// under another subject, with the stream, the subject, the sequence and the time in headers.
//
//	rule.go       Rule: what a stream publishes again, and how
//	header.go     which headers of a message are published again
//	queue.go      Queue: the messages of one led shard that are to be published again
//	publisher.go  Publisher: publishes the queues of a broker, in the background
//	limits.go     every bound, with its reason
//
// The leader notes each message that its rule takes when it appends the message (Queue.Append).
// Once the message is committed a worker reads it from the log and publishes it through the hub, as
// a client of this broker does: to subscribers on all brokers, and to other streams.
//
// # Invariants
//
//	A1  Nothing is published before it is committed. So what a truncation removes was never seen.
//	A2  Messages of a stream are published in the order of their offsets, each at most once.
//	A3  No caller waits: neither appends nor acks depend on what is published again. But the streams
//	    wait for each other: the workers wait for the hub, which has room when its slowest link has.
//	    What waits longer than the bounds permit is not published.
//	A4  A stream publishes a message at most once that comes back to it through other streams: the
//	    header Nats-Stream then names the stream already.
//	A5  Headers that act on a stream are left out, so that an ordinary stream stores the message.
//
// Rejected: to keep messages in memory from their append on. A slow reader would hold what the log
// has anyway. Rejected: to publish what a former leader has not. No leader knows what another one
// has published, and most of it would be published twice.
//
// A message is lost for this if the process dies, if leadership ends, or if it was removed from the
// file before its turn: readers see that by Nats-Last-Sequence.
package republish
