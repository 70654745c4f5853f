// Package filter judges records by their content: CEL expressions over the subject, the headers,
// the time, and the payload of a record as JSON. An Expression has a value instead of a verdict.
// The same judges subjects by their attributes, for live queries; records together with these, for
// views; and results of functions, for triggers. It is pure: no I/O, no clock.
//
// Invariants:
//
//  1. A filter means what cel-go says. Expressions of the usual forms are judged by nodes of our
//     own (direct.go), which are faster, and never give another verdict: a fuzz test compares both.
//  2. The payload is read as far as the expression needs it, and not checked beyond that. If a name
//     is there twice in an object, the first one counts.
//  3. A record that can't be judged, because a name is missing or a value has another type, does
//     not match. Its verdict is Failed, and Why says the reason.
//  4. An expression is compiled only if its estimated cost, with lists of the largest size, is
//     within a bound. What passes over the payload again and again, makes texts, or looks in them,
//     is counted (work.go), in the same way by both. So judging a record takes a bounded time and a
//     bounded memory.
//  5. A comparison of the payload with a constant that decides ends the reading of the payload, in
//     whatever order the expression has it: no other part of && and || changes the verdict then,
//     not even by an error.
//  6. Judging by nodes of our own allocates nothing, unless a string has escapes.
//
// A Set judges a record by many conditions: those that compare something with a constant are
// found by a hash, so 10,000 of them cost as much as one. Its memory is that of its Filters, and
// about 300 bytes for each of them.
//
// A Filter is a value without state, so the death of a process changes nothing in it. Shared keeps
// a table of those in use.
//
// Rejected: reading the payload into a tree before the expression is judged. It costs several times
// as much as the usual expression, and most of it isn't looked at. Rejected: a language of our own.
// Kubernetes has made CEL known, and its types, errors and costs are specified.
package filter
