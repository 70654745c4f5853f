// Package stall detects a hung disk, which returns no error, and decides when the broker has to
// give up leadership.
//
// Invariants:
//
//  1. Nothing here does I/O, or takes a lock that may be held during I/O. Standard error may be on
//     the same disk, so nothing waits for a log line either.
//  2. Only the time in which this process was seen to run counts: an operation is no older for a
//     process that was stopped or starved.
//  3. A broker gives up only if it has registered and knows of another broker: else it leads
//     nothing, or nobody could lead instead.
//
// The package keeps no state outside memory, so a process that dies in it loses nothing.
package stall
