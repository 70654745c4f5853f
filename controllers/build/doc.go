// Package build builds the objects of one Broker, as apply configurations. It is pure: the same
// Cluster gives the same objects, byte for byte, without a request.
//
// Every object has the labels by which the operator's cache selects, and an ownerReference to the
// Broker, by which Kubernetes deletes it. No object has a finalizer.
//
// Everything that determines a pod is in its template. Differences describes in words how a running
// pod differs from it.
package build
