// Package forward is the pure half of bringing messages from the broker that took them to the leader
// of their shard: no clock of its own, no I/O, no lock.
//
//	outbox.go   what a sender keeps until the leader has answered, and what goes in the next frame
//	origins.go  what a shard's log says of its senders: which numbers are kept, at which offsets
//	frame.go    what the two say to each other, as bytes
//
// Package topic has the other half: locks, links and timers (forwards.go, link.go, arrive.go), and
// the invariants F1 to F6 that both halves hold together.
package forward
