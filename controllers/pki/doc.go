// Package pki makes the certificates that the parts of one Broker know each other by.
//
// It is pure: what there is, the time and a source of randomness go in, what there should be comes
// out, and what is still good comes out as it went in. The keys are ECDSA P-256.
//
// Invariants:
//   - A certificate is replaced when two thirds of its life have passed, so that a third is left
//     for whatever keeps the operator from it.
//   - A new CA is trusted by everyone for an hour before it signs anything, and the old one is
//     trusted until it ends: at no moment do two running parts refuse each other.
//   - A leaf never outlives the CA that signed it.
//
// Nothing here is kept: if the process dies before the result was written, the next one makes
// another.
package pki
