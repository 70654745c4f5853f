// Package world runs brokers in one process, in a world that a seed decides: the product's own code of Topics, replication, logs, links,
// coordination and placement, over disks, a network, an etcd and clocks that are simulated. It looks for a history in which a promise to
// a client is broken.
//
// A world lives in a bubble of testing/synctest, so that time passes only when everybody waits. Each completion of I/O (a packet, a sync,
// an answer of etcd, an event of a watch) and each fault is an event. An event happens when all goroutines have done what they can, one at a
// time, in an order that the seed decides. What the Go runtime leaves to chance is taken from the seed as well (replay.go). So a seed
// that fails does it again, step by step; the hash of its transcript shows that.
//
//	world.go     events, time, the transcript
//	machine.go   a machine, and a process on it: a broker, as broker.Run assembles it
//	disk.go      a machine's disk as a process sees it: crashfs, which takes time, stalls, dies between two operations
//	network.go   connections whose directions are cut, or slow; a kernel that refuses, resets or is silent
//	etcd.go      etcd at the level of its services: transactions, leases, watches; late, lossy, without a quorum, restored
//	hub.go       a process' clients; client.go what they do
//	faults.go    what strikes; options.go the classes that are left out, and why
//	judge.go     what was promised, and whether it holds; order.go whether an order of events explains all answers
//	run.go       a world from its beginning to its end
//	replay.go    the program in which worlds run; mutation.go rules of the product that can be taken away
//
// What is judged:
//
//	J1  What was acknowledged, or read, is there at the end, where it was, on all replicas; all replicas have the same records.
//	J2  A message is answered once, and stands in the log once; with a message id, also if it was published several times.
//	J3  Acks, duplicates, refusals by condition and last messages have an order that explains them, across all clients.
//	J4  Soon after the last fault all clients get on, all shards are whole, and an orderly end leaves logs that can be read.
//
// CARILLON_SEED=n runs one seed, CARILLON_SEEDS=a-b a range; CARILLON_TRACE=file has the transcript of one written; CARILLON_FAULTS names the
// faults that strike, CARILLON_FOUND the classes that are not to be left out.
package world
