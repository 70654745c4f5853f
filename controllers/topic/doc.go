// Package topic reconciles Topics: a manifest becomes a Topic in etcd, which brokers follow, and
// the Topic's state is written to the manifest's status.
//
// A pass reads the manifest and the Broker's mirror, plans the next step and carries it out, until
// no step is left. It never waits: later changes trigger another pass through the mirror. No
// manifest has a finalizer: a deleted manifest is found by the owner in etcd, in the next pass.
//
// When the process dies, each step of a pass is done completely or not at all. Each step may be
// repeated, and writes nothing if it was done.
package topic
