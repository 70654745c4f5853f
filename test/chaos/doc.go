// Package chaos puts a cluster of real processes through every fault at once and holds it to what it told its clients.
//
// Three coordinators and three brokers, each a child process in a network namespace of its own with an ext4 volume of its own,
// have streams of three replicas and clients that use them all the time. Rounds of faults come from a seed, up to three at a
// time and overlapping (plan.go): kill -9 of any brokers, pauses, partitions of any shape and also in one direction, coordinators killed and paused
// down to no quorum, power cuts of any nodes at once, full disks, failing disks, a flipped bit in one broker's files, wall
// clocks that jump. After each round the cluster has to become whole and acknowledge again.
//
// What is judged, of a world that has come to rest:
//
//   - package checker: nothing acknowledged is lost, at the front, in the middle or at the end; nothing is there twice, out of order,
//     changed or that nobody published; what a consumer had acknowledged, and was answered, doesn't come again.
//   - The same of the log of each replica, and the replicas of all logs, those of cursors too, record by record (replicas.go).
//   - Conditional publishes, each a compare-and-swap of a register, have an order in which each did what was told; porcupine
//     looks for it (registers.go).
//   - No process panicked.
//
// A power cut drops what was not synced (package disk). The nodes stand still before, so that nobody hears of a sync that didn't happen.
// Clocks jump through broker/env's Clock, by less than half of the window in which messages are deduplicated: that is wall time.
//
// The judge is proven twice: by histories with faults in them, beside it, and by brokers that were built
// without one of the invariants each (mutation_test.go), through replaced source and not through switches in it.
//
// test/chaos/run runs it, as root on Linux: `make test-chaos-processes`. A run prints its seed, and each world's; the same seed
// plans the same faults, though processes don't meet them at the same instruction. Settings:
//
//	TIME=10m              for how long worlds are begun (default 1m)
//	CHAOS_SEED=N          the first world's seed (default: a random one); the next have the next
//	CHAOS_ROUNDS=N        rounds of faults in each world (default 6)
//	CHAOS_FAULTS=A,B      only these kinds of faults, as plan.go names them
//	CHAOS_GO_ON=1         go on after a world that broke a promise
//	CHAOS_KEEP=DIR        keep logs and volumes of such a world there
//	CHAOS_LOG=LEVEL       the processes' log level
//	CHAOS_PROGRAM=FILE    a carillon that is built already
//	CHAOS_RACE=1          build the processes with the race detector
//	CHAOS_DIR=DIR         where the volumes' images go (default: the folder for temporary files)
//	CHAOS_RUN=REGEXP      go test -run; TestTheJudgeFindsABroken is the proof of the judge
package chaos
