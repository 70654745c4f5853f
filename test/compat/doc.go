// Package compat tests the broker with clients that were not made for it: the unmodified official
// Go client, used as an application does, and plain sockets for clients that misbehave. nats.py and
// nats.js are tried by hand: see README.md.
//
// Invariants: a client that follows the protocol gets what nats-server would send. A client that
// violates it harms only itself.
//
// No resource outlives a test: every node, client and socket belongs to one, which closes it.
package compat
