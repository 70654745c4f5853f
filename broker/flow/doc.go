// Package flow decides how much a push may send: the window of flow control, and the rate limit. It
// is pure.
//
//	window.go  Window: bounds the bytes that a receiver has not confirmed
//	pace.go    Pace: a rate limit
//	limits.go  every bound, with its reason
//
// # Invariants
//
//	V1  What is sent and not confirmed exceeds the window by one message at most, or by one for each
//	    shard that sends at the same time.
//	V2  A full window has a request under way, or one is due. Its answer opens the window.
//	V3  Only the answer to the request under way counts, and once.
//
// The process's death loses all of it: the next leader begins with a new window.
package flow
