// Package subscription reconciles Subscriptions, in the same way as package topic does Topics: what
// a manifest asks for becomes a Subscription in etcd, below the Topic that it refers to, and what
// becomes of it is written into the manifest's status.
//
// A pass that dies leaves either nothing or a whole step; each step may be repeated, and writes
// nothing if it was done.
package subscription
