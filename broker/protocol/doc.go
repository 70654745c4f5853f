// Package protocol is the NATS client protocol as bytes: it parses what clients send and encodes
// what they receive. It has no I/O, no goroutine, no clock and no state between calls, so equal
// input yields equal results.
//
// Invariants:
//
//	P1  Next never reads beyond buf, never writes to it and never keeps it. An Op points into buf
//	    and is valid until the caller changes buf.
//	P2  Fragmentation does not matter: input in any pieces yields the operations, or the error, that
//	    it yields in one piece.
//	P3  Next consumes complete operations only, and returns an error as soon as the bytes prove it.
//	    No input makes a caller gather more than a control line, or one payload within its limit,
//	    before the error.
//	P4  Nothing panics on input. Next and the Append functions for messages allocate nothing beyond
//	    what append needs; tests hold this.
//
// Package subject validates subjects; they are opaque here, with one exception: a carriage return
// in a control line is refused, because in a MSG line it would break the parsers of other clients.
//
// Where nats-server closes a connection without an error (wrong arguments, bad sizes, bad JSON),
// this package returns the error that the protocol's documentation names, "Parser Error".
//
// When the process dies, nothing is lost.
package protocol
