// Package e2e tests, on a real Kubernetes cluster with real pods, clients and etcd, the life of an
// installation of Carillon: install, exchange messages, push them to an endpoint, measure, lose a
// pod, a node, the network; upgrade; and remove everything in the worst order.
//
// test/e2e/run starts the cluster and runs the stories (build tag e2e). They run in one cluster,
// one after the other, each with the state that the one before left, so the first failure ends the
// run. This machine reaches pods by their addresses, so clients run here and outlive every pod.
package e2e
