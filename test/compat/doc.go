// Package compat holds the broker to clients that know nothing of it: the tests use the official Go
// client unmodified, as an application would, and plain sockets for clients that misbehave.
// nats.py and nats.js are tried by hand: see README.md.
//
// Invariants: a client that keeps the protocol sees what nats-server would show it, and one
// that breaks it harms itself only.
//
// Nothing outlives the process: every node, client and socket belongs to a test, which ends it.
package compat
