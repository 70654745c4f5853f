// Package subject defines subjects and patterns, and contains the interest index, which maps a
// subject to the subscriptions that it reaches.
//
// A subject is a list of tokens separated by dots. In a pattern the token * matches any one token,
// and > as the last token matches one or more.
//
// Invariants of the index:
//
//	X1  A list of plain subscriptions that a match returned never changes: additions are appended
//	    behind its end, removals make a new list. So it may be read without a lock.
//	X2  A match contains a queue group once, whatever patterns its members used.
//	X3  The generation of a first token changes whenever the leaves, groups or peers that some
//	    subject with that token reaches may have changed, and not when only the members of one of
//	    them have, nor for a pattern that begins with another token. Matches are cached by it.
//
// The index is in memory. The next process rebuilds it from what clients and links announce.
package subject
