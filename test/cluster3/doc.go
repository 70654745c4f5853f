// Package cluster3 kills the processes of a cluster of three brokers, `carillon dev --brokers 3`, that keep a stream
// of three replicas under load, and holds it to what was acknowledged: nothing of that is lost, twice or out of order,
// and publishers on the brokers that stay are acknowledged again within a second. Of a broker that was killed, files are damaged.
//
// What is judged, and how, stands in package checker. `make test` runs a short form; CARILLON_LONG=1 the long one.
// Nothing survives the run: the system kills the cluster with the test, and the brokers with the cluster.
package cluster3
