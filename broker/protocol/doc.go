// Package protocol is the NATS client protocol as bytes: it parses what clients send and encodes
// what they receive. It does no I/O, starts no goroutine, reads no clock and keeps no state
// between calls, so the same input always gives the same answer.
//
// Invariants:
//
//  1. Next never reads beyond buf, never writes to it and never keeps it. What it puts into an Op
//     points into buf and is valid for as long as the caller leaves buf alone.
//  2. Where the bytes are cut does not matter: input fed in any pieces yields the operations, or
//     the error, that it yields in one piece.
//  3. Next consumes whole operations only, and reports an error as soon as the bytes at hand
//     prove it; no input can make a caller gather more than a control line, or one payload
//     within its limit, before it is told so.
//  4. Nothing panics on input. Next and the Append functions for messages allocate nothing
//     (beyond what append needs); tests hold them to it.
//
// Subjects are opaque here, whether they are valid is for package subject to say; one exception
// keeps the stream sound: a carriage return inside a control line is refused, because passed on
// in a MSG line it would break the parsers of other clients.
//
// Where nats-server closes a connection without a word (wrong arguments, bad sizes, bad JSON) this
// package has an error with the text that the protocol's documentation gives for it,
// "Parser Error", so that whoever made the mistake can see it.
//
// When the process dies nothing of this package is lost: there is nothing to lose.
package protocol
