// Package observe gathers what is known of one Broker: objects from the operator's cache, Secrets,
// and what its coordinators say. It judges nothing and writes nothing.
//
// What can't be learned is a fact too: etcd that does not answer is "no quorum", with the reason,
// and never an error that would keep a pass from repairing pods. Every question to etcd has a
// deadline of a few seconds.
package observe
