/*
Package jetstream serves the JetStream API on top of Topics and Subscriptions. Package jsapi has the
bytes: calls, configurations, acks, errors.

The Server takes calls, pulls and acks from clients. It serves those for streams that this broker
leads and hands the others on to their leaders. For each consumer it makes a sink, which encodes
deliveries as messages.

A durable consumer is a Subscription in etcd. A consumer without a durable name is a reader in the
stream's log of cursors. A push consumer is either; its leader delivers to the deliver subject. If
it reads several shards, a relay at the leader of the first one does.

Invariants, which continue those of jsapi:

	J6  A reader's goroutine never waits here. Work that may wait for etcd, a disk or another broker
	    runs on bounded pools; a call for which they have no room is refused at once.
	J7  A call is answered before clients time out, if only with the reason why it failed. A change
	    is answered once it is in effect on the broker that serves it.
	J8  What another broker has handed on is never handed on again.
	J9  Delivering a message allocates nothing.
	J10 A relay passes deliveries on in one order, and tells of that order only: in sequences, in
	    heartbeats, and in flow control. It keeps nothing that the shards' cursors do not say.

When the process dies, a call under way is done or not done: etcd holds a stream or a durable
consumer completely or not at all, and a client without an answer may repeat its call. The package
keeps nothing else.
*/
package jetstream
