// Package route links the brokers of one cluster. Each pair of brokers has one connection, over
// mutual TLS. On it both announce the interest of their clients and forward the messages that the
// other one has interest in. Topics forward published messages over the same links, in frames of
// their own (package topic). Replication uses separate connections, which the mesh dials and
// accepts for package replica.
//
// Invariants:
//
//	L1  A pair of brokers has at most one attached link. A newer connection replaces an older one
//	    only after the older one's reader has ended and its interest is gone, so that no message is
//	    forwarded twice or overtakes another.
//	L2  Everything for a peer goes through one FIFO queue. So a client's change of interest precedes
//	    whatever that client publishes later.
//	L3  A message from a link goes to this broker's own clients and never to another broker.
//	L4  Interest belongs to a connection. When the connection ends, the peer's interest is dropped
//	    at once; the next connection starts with none and exchanges all of it. A link is up when
//	    this broker has the peer's complete interest and knows that the peer has its own.
//	L5  Memory is bounded against callers and peers: frames, names and the outgoing queue have
//	    limits (limits.go). A queue beyond its hard limit ends the link, and is counted and logged.
//	L6  Membership decides whom to dial, never whom to drop: a link lives as long as its connection,
//	    so that losing etcd does not stop messages.
//	L7  A link is with a broker that is, or was, registered under its id, and whose certificate is
//	    for the host at which it is.
//	L8  Sync returns when each peer has handled what was queued for it before, and this broker what
//	    each peer had queued for it before, or the link has ended.
//
// The broker with the smaller id dials, at once and again until it succeeds. The other one also
// dials, after a short wait without a link, because it may be the only one of the two that can
// reach the other: a restarted pod can resolve its peers' names while theirs still resolve its own
// name to its former address. When both connect at the same time, the connection from the smaller
// id stays.
//
// When the process dies, the kernel closes its connections; the peers drop its interest at once and
// redial with short pauses. Messages under way are lost, as core messages are delivered at most
// once. Nothing is kept on disk.
package route
