// Package build makes the objects of one Broker, as apply configurations. It is pure: the same
// Cluster gives the same objects, byte for byte, and nothing here asks the cluster anything.
//
// Every object carries the labels that the operator's cache selects by, and an ownerReference to
// the Broker, so that Kubernetes itself removes it; nothing has a finalizer.
//
// What decides about pods is in the pod templates and nowhere else; Differences says in words in
// what a running pod differs from its template.
package build
