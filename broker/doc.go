// Package broker assembles one node of the data plane: the hub of its clients, the links to the
// other brokers, its place in the membership, and the HTTP endpoints for probes and people.
//
// A life: the identity is read from the volume; the node joins the membership and links to
// whoever is in it; then it takes clients and is ready. From there on nothing depends on
// etcd: while it is away the last membership stands. When the node is told to stop it is
// unready at once, leaves the membership, asks its clients to go elsewhere, and ends.
//
// When the process dies its lease lapses and its links break; other brokers drop its interest,
// clients reconnect elsewhere, and the next process of this volume joins with a new incarnation.
package broker
