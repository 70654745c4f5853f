// Package attribute holds the attributes of subjects: names with values, that say what a subject is
// about. It has no I/O and no clock.
//
// A Set is the attributes of one subject. A Change makes another Set of it. The Store has those of
// all subjects, as etcd has them; package coordination follows etcd into it.
//
// Invariants:
//
//  1. The JSON of a Set is canonical: equal Sets have equal texts, with the names in order.
//  2. A Set that Check accepts is within the bounds of limits.go, and so is its JSON.
//  3. A change is applied completely or not at all, and never changes the Set that it was applied
//     to.
//  4. The Store never goes back: what is known of a subject is replaced by what etcd wrote later
//     only, in whatever order both arrive. A deletion is remembered until the watch has passed it.
//     Only a restored etcd makes an exception (Distrust).
//  5. What was taken ahead of the watch is confirmed by it, or the Store says that it was not.
//  6. A function that was given to Tell is called for each change. The changes of one subject come
//     in the order of their revisions.
//
// The Store holds the texts, and not the Sets: many small values take many times as much memory as
// their text, and most Sets are never looked at.
//
// When the process dies, nothing is lost: the next one reads etcd.
package attribute
