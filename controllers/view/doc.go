// Package view reconciles Views as package subscription does Subscriptions: a manifest becomes a
// View in etcd, and what brokers say of it is written to the manifest's status.
//
// When the process dies, each step of a pass is done completely or not at all. Each step may be
// repeated, and writes nothing if it was done.
package view
