// Package route links the brokers of one cluster: each pair has one connection, over mutual
// TLS, on which both tell what their clients are interested in and forward the messages that
// the other one wants. Topics forward what is published over the same links, in frames of
// their own (package topic); shards are followed on connections of their own, which the mesh
// makes and accepts, and hands to package replica.
//
// Invariants:
//
//   - A pair of brokers has at most one attached link. A newer connection replaces an older
//     one only after the older one's reader has ended and its interest is gone, so that no
//     message is forwarded twice and none overtakes another.
//   - Everything for a peer goes through one queue in the order of the calls, so a client's
//     change of interest precedes whatever that client publishes later.
//   - A message that came over a link goes to this broker's own clients and never to another
//     broker.
//   - Interest belongs to a connection. When the connection ends, the peer's interest is gone
//     at once; the next connection starts from nothing and exchanges all of it. A link counts
//     as up when this broker has the peer's whole interest and knows that the peer has its own.
//   - Nothing that a caller or a peer does makes memory grow without bound: frames, names and
//     the outgoing queue have limits (limits.go). A queue beyond its hard limit costs the link,
//     is counted and logged.
//   - Membership says whom to dial, never whom to drop: a link lives as long as its connection
//     does, so trouble with etcd does not cut data.
//
// The broker with the smaller id dials, at once and again until it succeeds. The other one
// dials too when it has waited a little in vain, because it may be the only one of the two that
// can find the other: a restarted pod knows its peers' names, while they may resolve its own to
// an address that is gone. When both connect at the same time, the connection from the smaller
// id stays.
//
// When the process dies: the kernel closes its connections, the peers drop its interest at once
// and redial with short pauses. Messages that were on their way are lost, as core messages are
// delivered at most once. Nothing is kept on disk.
package route
