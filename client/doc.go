// Package client publishes and reads many small records at once, and follows live queries.
//
// A NATS message costs a microsecond, whatever is in it. Where records are small and many, a
// [Publisher] gathers them into messages that carry up to 65,536 each, and a [Reader] fetches as
// many by one request, from an offset that it keeps itself. What a record is made of is the
// program's: it is bytes. A [Snapshot] is a Topic as it was at one moment.
//
// A [LiveQuery] tells which subjects match a condition on their attributes, and brings what is
// published on them.
//
// All of it stands on a connection of nats.go, which the program opens and closes. Records go in
// what docs/protocol.md calls batches of records. To everybody else they are ordinary messages of
// the Topic's stream.
//
// Offsets are those of one shard. They begin at 1 and are dense. Sizes are bytes, times are
// [time.Duration].
//
// Invariants:
//
//	C1  A Publisher's records stand in the shard in the order of its calls, each once, whatever is
//	    refused, lost or repeated on the way, as long as the Topic's deduplication window is longer
//	    than PublisherOptions.GiveUp.
//	C2  When Flush returns nil, all records published before are as safe as the Topic asks.
//	C3  A Reader returns every record from its offset on, in order, once. What is no longer there is
//	    an error, never a gap.
//	C4  A LiveQuery's members are those of its events, in their order: EventNew of one that isn't a
//	    member, EventDel of one that is. After EventReady they are what the broker has told, also
//	    when connections were lost on the way. A bound that is reached ends it.
//
// When the process dies in it: records that were not flushed may or may not be kept. A Publisher
// made anew has another identity, so what the program publishes again then is kept again.
package client
