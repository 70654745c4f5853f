// Package devcluster tests a cluster of three broker processes, `carillon dev --brokers 3`, that
// keep a stream of three replicas under load:
//
//  1. Brokers are killed. Nothing acknowledged is lost, duplicated or out of order, and publishers
//     on the remaining brokers are acknowledged again within a second.
//  2. Files of a killed broker are damaged.
//  3. etcd is restored from a backup, while the cluster is stopped, and while its brokers run on.
//  4. A broker's volume is rolled back, and its saved clock is an hour old.
//
// Package checker defines what is judged. `make test` runs a short form, and CARILLON_LONG=1 the
// long one. No process survives a run: the kernel kills the cluster with the test, and the brokers
// with the cluster.
package devcluster
