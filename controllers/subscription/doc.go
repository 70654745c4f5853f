// Package subscription reconciles Subscriptions as package topic does Topics: a manifest becomes a
// Subscription in etcd, below the Topic that it refers to, and the Subscription's state is written
// to the manifest's status.
//
// When the process dies, each step of a pass is done completely or not at all. Each step may be
// repeated, and writes nothing if it was done.
package subscription
