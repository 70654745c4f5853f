// Package simulation runs brokers in a world without real time, network, disk or etcd, and looks for a
// history in which a promise to a client is broken.
//
// Everything that happens in a world is an event of one queue, and follows from the world's seed. What
// decides is the real thing: replica.Leader, replica.Meet, copystate and placement. What carries its decisions out is a model of the exchange,
// the logs and the registration, small enough to be read; it errs on the side of trouble: requests outlive
// who sent them, watches are late, answers are lost after the deed.
//
//	world.go       the queue, the clock, violations
//	etcd.go        revisions, compare-and-swap, leases, watches
//	network.go     connections in order, ways that are cut, slow or one-way
//	disk.go        logs of which a crash leaves what was written, or what was synced
//	broker.go      a broker's lives; leading.go, following.go: what it is to a shard
//	copies.go      what a broker knows of its copies, and says of them in etcd
//	controller.go  who plans, and its writes
//	clients.go     publishers of unique values, some of them conditional; readers
//	faults.go      what strikes
//	judge.go       what was promised, and whether it holds
//	mutation.go    invariants that can be taken away, which proves the judge
//
// CARILLON_SEED=n repeats one world and prints what happens in it; CARILLON_SEEDS=a-b runs more of them.
package simulation
