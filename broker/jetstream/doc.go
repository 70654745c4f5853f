/*
Package jetstream is JetStream's face of Topics and Subscriptions.

The codec is pure: API subjects and their answers, the configurations of streams and consumers and the
Topics and Subscriptions that they become, the subjects and payloads of acks, pull requests and
their statuses, publish headers and PubAcks. There is no I/O in it, no clock, no goroutine and no
state. The Server, in server*.go, is live: it takes calls, pulls and acks from clients, serves those of
the streams that its broker leads, and hands the others on to their leaders. An outlet, which
it makes for each consumer, turns deliveries into messages.

A stream is a Topic of one shard, and its sequences are that shard's offsets: dense, and from 1 on.
A durable consumer is a Subscription. One that isn't durable lives in its leader's memory.

Invariants:

	J1  Nothing is dropped in silence. A setting, a header or a field of a request is either
	    honoured or refused by an error that names it.
	J2  What a client asked for and was granted it is told in the same words, with the defaults
	    that nats-server would have filled in: a configuration that went through Normalize, a
	    spec, and back equals itself. So making what is there already is recognised.
	J3  Errors have nats-server's numbers, and statuses its words: clients match them.
	J4  Whatever is parsed is bounded by what it came in; nothing panics, nothing is guessed. What
	    was parsed points into its source, and lives as long.
	J5  What is done for each message (ack subjects, PubAcks, statuses, publish headers, deliveries)
	    allocates nothing.
	J6  A reader's goroutine never waits here. What may wait for etcd, a disk or another broker runs on
	    bounded pools; what these have no room for is refused, and at once.
	J7  A call is answered within the time that clients wait, if only by why it could not be done. One
	    that changed something is answered when the change holds on the broker that serves it.
	J8  What another broker handed on is never handed on again.

Where we differ from nats-server on purpose: no "_nats." metadata is added to answers, so that they
equal what was asked; the default of persist_mode is an ack after the message is on the disk, and
async means that it is with the operating system.

When the process dies in it, what it had under way is done or not: etcd has a stream or a durable
consumer whole or not at all, and the client, whose call was not answered, may repeat it. Nothing else
is kept here.
*/
package jetstream
