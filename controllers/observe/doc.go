// Package observe gathers facts about one Broker: objects from the operator's cache, Secrets, and
// the answers of its coordinators. It neither judges nor writes.
//
// A failure to learn something is a fact, too: an etcd that does not answer is "no quorum", with
// the reason, and never an error that would keep a pass from repairing pods. Each request to etcd
// has a deadline of a few seconds.
package observe
