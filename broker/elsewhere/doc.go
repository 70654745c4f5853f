// Package elsewhere says which other replicas of a shard may have what the leader's copy lacks, and
// which are absent or late.
//
//	elsewhere.go  MayHave, Missing, and words for people
//
// It decides from a State and from what followers say. Invariant: a replica that may have a damaged
// record is named, unless it is known to lack it (MayHave has the rules).
//
// The package keeps nothing, so nothing is lost with the process.
package elsewhere
