// Package acking answers publishers: the answers of a round of the disk, all together.
//
// An Acker is a goroutine of its own, so that the disk's committer goes on. All answers of a round
// go to the hub in one call, and so to each connection in one write.
//
//	answer.go   Answer: what one message gets, or several in a row
//	pending.go  Pending: answers that wait for one append, or for earlier ones
//	shard.go    Shard: those of one led shard, and which of them are due
//	acker.go    Acker: rounds
//	limits.go   every bound, with its reason
//
// # Invariants
//
//	G1  An answer goes out when the record that it depends on, and all before it in the shard, are
//	    on all in-sync replicas, and when its barrier round is confirmed. This is T1 and T9 of
//	    package topic.
//	G2  The answers of a shard's appends go out in the order of the appends.
//	G3  When a log fails or leadership ends, all answers that wait go out, with the reason. A sender
//	    on its way to another leader is told to send again instead.
//	G4  A Pending belongs to its shard's leader until it is appended, then to the disk's committer,
//	    and to the Acker from its Committed on.
//
// Everything is in memory. When the process dies, senders send unanswered messages again, and the
// next leader knows whether they were kept.
package acking
