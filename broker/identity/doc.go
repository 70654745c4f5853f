// Package identity defines who a client may be, and what it may do: users as they are written, and
// identities with their rights as sessions ask them. It does no I/O and knows no secrets but
// verifiers of them.
//
// Invariants:
//
//	U1  What a deny list matches is refused, whatever allow list it matches, too. Only the reply
//	    subject of a received message is allowed by itself, as with nats-server.
//	U2  A subscription is allowed only if every subject that it matches is allowed: its pattern is
//	    within one allowed pattern, and not within a denied one. Messages on denied subjects inside
//	    of it are left out when they are delivered.
//	    The same holds for entries of a queue group. Where such an entry allows a pattern, other
//	    groups may not have it.
//	U3  A right that is checked for each message costs one walk over its tokens, without an
//	    allocation.
//	U4  An Identity never changes. A change of a user makes another one.
//	U5  Who may subscribe to a subject, in no queue group, may read its messages where they are
//	    stored.
//
// Rejected: nats-server's check of subscriptions, which looks for the text of a wildcard in the
// allowed patterns. With it, a user who may subscribe to * may subscribe to >, too.
//
// Nothing here outlives the process.
package identity
