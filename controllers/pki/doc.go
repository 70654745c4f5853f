// Package pki makes the certificates by which the processes of one Broker authenticate each other,
// and, of another CA, the one by which clients know its brokers.
//
// It is pure: its input is the present data, the time and a source of randomness, its output the
// wanted data, which is the present data as far as that is still good. The keys are ECDSA P-256.
//
// Invariants:
//   - A certificate is replaced when two thirds of its life have passed, so that the operator may
//     be away for the last third.
//   - A new CA is trusted by everyone for a month before it signs anything, and the old one is
//     trusted until it expires: at no moment do two running processes refuse each other.
//   - A leaf never outlives the CA that signed it.
//   - Connections between etcd's members, to etcd, and between brokers have a CA each (roots.go).
//     In the change from one CA for all of them, both are trusted from before the first certificate
//     of the new CA until after the last one of the old CA.
//
// When the process dies before the result is written, the next one makes another.
package pki
