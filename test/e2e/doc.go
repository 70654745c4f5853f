// Package e2e tells, on a real Kubernetes cluster with real pods, clients and etcd, what a user
// of Carillon lives through: install, talk, measure, lose a pod, a node, the network; upgrade;
// remove everything in the worst order.
//
// test/e2e/run starts the cluster and runs the stories (build tag e2e). They happen in one cluster,
// one after the other, each on what the one before left; so the first failure ends the run. This
// machine reaches pods by their addresses, so clients run here and outlive every pod.
package e2e
