// Package subject knows what subjects and patterns are, and which subscriptions a subject
// reaches: the interest index.
//
// A subject is a list of tokens divided by dots. In a pattern the token * stands for any one
// token, and > as the last for one or more.
//
// Invariants of the index:
//   - A list of plain subscriptions that a match returned never changes: additions are made
//     behind its end, removals make a new one. So whoever matched may walk it without a lock.
//   - Within a match a queue group stands once, whatever patterns its members used.
//   - The generation changes whenever the set of leaves, groups or peers that a subject reaches
//     may have changed, and not when only the members of one of them have. Matches are cached by it.
//
// The index lives in memory and is rebuilt from what clients and links say; a crash loses nothing
// that they would not say again.
package subject
