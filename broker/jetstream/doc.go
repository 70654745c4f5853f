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
	J11 Of two relays of a consumer, the one with the later claim delivers. A shard's answer to its
	    question ends what an earlier relay, also of the same broker, has open there, and follows all
	    that the shard has sent to an earlier one of the same broker (claim.go).
	J12 A relay delivers and tells nothing before each shard has answered, and before each other
	    broker has said that all which its relay of an earlier claim passed on has left the links, so
	    that nothing can overtake it (succession.go).
	J13 A relay's first sequence is behind each one that a former relay is known to have told, also
	    if a shard is out of reach or its cursor lacks the last deliveries.
	J14 No claim, broker or lost message delays deliveries for longer than relayPatience and the time
	    until a link is back or a share counts as lost.

When the process dies, a call under way is done or not done: etcd holds a stream or a durable
consumer completely or not at all, and a client without an answer may repeat its call. The package
keeps nothing else.
*/
package jetstream
