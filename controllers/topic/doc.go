// Package topic reconciles Topics: what a manifest asks for becomes a Topic in etcd, which brokers
// follow, and what becomes of it there is written into the manifest's status.
//
// A pass reads the manifest and what the Broker's mirror knows, has the next step planned, and does
// it, until there is nothing left to do; it waits for nothing. What comes of it later, the mirror
// tells. Nothing has a finalizer: that a manifest is gone is found out from the owner in etcd, by
// whoever looks next.
//
// A pass that dies leaves either nothing or a whole step; each step may be repeated, and writes
// nothing if it was done.
package topic
