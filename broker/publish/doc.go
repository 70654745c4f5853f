// Package publish has the language between publishers and Topics: what a message may ask for beyond
// being kept, the form in which one message carries many records, and the answers, of which each
// refusal is an error type. It has no lock, no clock and no I/O. Package topic judges messages by
// it; an encoding, such as JetStream's, is a Codec.
//
//	codec.go     Codec, Conditions
//	errors.go    refusals, each with the Topic, the reason and the way out
//	refusals.go  their counters, by reason
//	replies.go   encoded answers that are sent together
//	records.go   many records in one message, and the message ids of a batch
//	partition.go the shard of a subject
//	shards.go    what one of several shards can't judge; copies with damage, for people
//	subjects.go  the patterns of a Topic, and which subjects they keep
//
// Invariants:
//
//	W1  A refusal is a value of a type from this package, or wraps one of broker/log's. A counter and
//	    a code of each Codec follow from its type alone.
//	W2  The records of one message are kept together, or none of them is. CheckRecords accepts one
//	    encoding of them only, so that readers need not check it again.
//	W3  An answer that a newer leader's record could change is Falsifiable, by its type alone.
//
// Nothing here outlives a process, except the encoding of records in a batch and the extension with
// their message's id (MessageID).
package publish
