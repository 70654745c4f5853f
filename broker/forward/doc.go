// Package forward is the pure part of forwarding messages from the broker that received them to the
// leader of their shard: no clock of its own, no I/O, no lock.
//
//	outbox.go   the messages that a sender keeps until the leader has answered
//	origins.go  the forwarded messages that a shard's log contains: numbers and offsets by sender
//	frame.go    the encoding of frames between sender and leader
//
// Nothing here outlives a process, except the numbers that batches of the log name (ExtensionType).
//
// Package sender has the other part: locks, links and timers, and the invariants F1 to F9 of both.
package forward
