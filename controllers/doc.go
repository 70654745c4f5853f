// Package controllers reconciles the cluster with the manifests of Brokers, Topics and
// Subscriptions.
//
// A pass over a Broker observes (gathers facts, without judgement), plans (purely: facts to the one
// next action, with a reason from a closed list), acts (applies the objects that build returns, or
// replaces one pod), and writes the status. Between passes only caches are kept, which may be lost:
// if the operator dies, the next one reads the objects as facts and continues.
//
// A pass over a Topic or a Subscription does the same with etcd instead of objects: mirror follows
// the content of each Broker's etcd and triggers passes over the affected manifests. Writes use the
// same client.
//
// The packages: observe, plan, build, apply and status; pki for certificates; mirror for etcd;
// eventing for events; users for Secrets that are users; broker, topic and subscription are the
// thin reconcilers. The operator's permissions in the API are in rbac.go only.
package controllers
