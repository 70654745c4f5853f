// Package transform maps subjects to other subjects, as streams do with what they store
// (subject_transform) and with what they publish again (republish). It is pure.
//
// A Transform has a source, which is a pattern, and a destination: literal tokens, functions of the
// source's wildcards, and > as the last token if the source ends with it.
//
//	$1, {{wildcard(1)}}            the token of the first *
//	{{partition(n)}}               a number below n, by a hash of the whole subject
//	{{partition(n,1,2)}}           by a hash of the tokens of these wildcards
//	{{split(1,-)}}                 the token in parts, which were separated by -
//	{{splitFromLeft(1,3)}}         the token in two parts, the first with 3 bytes
//	{{splitFromRight(1,3)}}        the token in two parts, the last with 3 bytes
//	{{sliceFromLeft(1,3)}}         the token in parts of 3 bytes; the last one may be shorter
//	{{sliceFromRight(1,3)}}        the token in parts of 3 bytes; the first one may be shorter
//	{{left(1,3)}}, {{right(1,3)}}  the first or last 3 bytes of the token
//	{{random(n)}}                  a random number below n
//
// These are the functions of nats-server, with its results: partitions must agree, since clients
// divide work by them.
//
// Invariants:
//
//	T1  A result can be published to: it has no empty token, no wildcard, and at most MaxSubject
//	    bytes. A subject whose result would not be so is not mapped.
//	T2  Apply never fails: New refuses what can't be applied.
//
// The process's death has no effect: there is no state.
package transform
