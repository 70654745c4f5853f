// Package keptspec is a Topic as the manifest of its data log keeps it. What etcd has of the Topic
// can be rebuilt from that by a person, and a broker knows by it whether the log may have message
// ids, and whether an earlier version called the copy partial.
//
// It is bytes: the log keeps them (log.Log.SetSpec), and a process's death changes none.
//
// # Invariant
//
// NoIDs is cleared before the first record with an id is appended (package topic).
package keptspec
