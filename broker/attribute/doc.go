// Package attribute holds the attributes of subjects: names with values, that say what a subject is
// about. It is pure: no I/O, no clock.
//
// Invariants:
//
//  1. The JSON of a Set is canonical: equal Sets have equal texts, with the names in order.
//  2. A Set that Check accepts is within the bounds of limits.go, and so is its JSON.
//  3. A change is applied completely or not at all, and never changes the Set that it was applied
//     to.
//
// Everything here is values, so the death of a process changes nothing in it.
package attribute
