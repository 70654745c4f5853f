/*
Package advisory publishes JetStream's advisories and metrics, with nats-server's subjects and
fields: API calls, streams and consumers that were created, changed or deleted, elected leaders,
and messages that were refused by their consumer or delivered for the last time.

Invariants:

	V1  Publishing never blocks its caller. What the queue has no room for is dropped and counted.
	V2  An advisory that nobody subscribes to, and that no Topic keeps, costs one lookup.
	V3  Advisories of one broker are published in the order of the calls.

Advisories are sent at most once, by the broker on which the event happened: when the process dies,
queued ones are lost. Their number is no account of events.
*/
package advisory
