/*
Package jsapi encodes and decodes the JetStream API: subjects and answers of its calls, stream and
consumer configurations and the Topics and Subscriptions that they map to, ack subjects and
payloads, pull requests and statuses, publish headers and PubAcks.

The package is pure: no I/O, no clock, no goroutine, and no state that could be lost with a process.
Package jetstream serves the API.

A stream is one shard of a Topic. Stream sequences are the shard's offsets: dense, starting at 1.
A durable consumer is a Subscription.

Invariants:

	J1  Nothing is dropped silently. Each setting, header and request field is either honoured or
	    refused by an error that names it.
	J2  A configuration round-trips: after Normalize, conversion to a spec and back yields an equal
	    configuration, with nats-server's defaults filled in. So a repeated create is recognised.
	J3  Errors carry nats-server's codes and statuses its words, because clients match them.
	J4  Parsing never panics and never guesses. What it allocates is bounded by the size of its
	    input. Parsed values point into the input and live as long as it does.
	J5  What is done per message (ack subjects, PubAcks, statuses, publish headers) allocates
	    nothing.

Deliberate differences from nats-server:

 1. The default persist_mode acknowledges a message once it is on the disk; async acknowledges it
    once the operating system has it.
 2. The required API level of a configuration is derived from its settings, and never stored.
*/
package jsapi
