// Package chaos puts a cluster of real processes through every fault at once and holds it to what
// it told its clients.
//
// Three coordinators and three brokers, each a child process in a network namespace of its own with
// a volume of its own, have Topics of three replicas, and clients that use them all the time.
// Rounds of faults come from a seed, up to three at a time and overlapping (plan.go): kill -9 of
// any brokers, pauses, partitions of any shape and also in one direction, narrow links,
// coordinators killed and paused down to no quorum, power cuts of any nodes at once, full disks,
// failing disks, flipped bits, wall clocks that jump, one of them by a year. The disk of one
// broker, on package faultfs, also hangs, is slow, and fails and recovers without being mounted
// again; the others' are ext4. Among the faults are the changes that people make: a fourth broker
// joins, with an empty volume or the one that it left with; one of four is drained, perhaps killed
// meanwhile, and ends when it holds nothing any more; all are started again, one after the other.
//
// Bits flip on all brokers and beside everything else, with two exceptions, so that each record is
// whole somewhere:
//
//  1. All flips in one log are on one broker. Damage of what nobody reads may stay unknown for an
//     hour.
//  2. None are in Topics that promise less than a majority of synced copies (topics_test.go).
//
// After each round the cluster has to become whole, with replicas spread evenly over the brokers
// that are there, and acknowledge again.
//
// What is judged, of a world that has come to rest:
//
//   - package checker: nothing acknowledged is lost, at the front, in the middle or at the end;
//     nothing is there twice, out of order, changed or that nobody published; what a consumer had
//     acknowledged, and was answered, doesn't come again. Each shard is judged so, and is to have
//     what was published on its subjects, and nothing else.
//   - The same of the log of each replica, and the replicas of all logs, those of cursors too,
//     record by record (replicas.go). There are as many as the Topic asks for: a broker that gives
//     up a replica deletes it.
//   - Snapshots that clients take and read all the while, each twice: what was acknowledged before
//     is inside, each offset is there, and what was in a snapshot is there for good, in its second
//     reading and at the end (snapshots.go).
//   - Topics with minInSync 1, with a retention by number or by age, and of the durabilities
//     Replicated and Memory keep what they promise; the last two only in worlds without power cuts,
//     and Memory only in those where no process ends without order. Only the soak has a Topic with
//     compaction: records are left alone for a minute and longer, and a world is over by then.
//   - Conditional publishes, each a compare-and-swap of a register, have an order in which each did
//     what was told; porcupine looks for it (registers.go).
//   - No process panicked.
//
// When a disk hangs for so long that its broker gives up, and nothing else is wrong, others lead
// within 10 s and publishing goes on with them. TestADiskThatHangsHandsOverLeadership is a world
// with that fault alone.
//
// A power cut drops what was not synced (packages disk and faultfs). The nodes stand still before,
// so that nobody hears of a sync that didn't happen. Clocks jump through broker/env's Clock. Any of
// them jumps by less than half of the window in which messages are deduplicated, so that brokers
// that remember nothing of their clocks after a power cut still agree within it. One broker's may
// also be wrong by a year, forward or back: nothing expires by it, and no message that is published
// again is kept twice.
//
// TestAllClocksLeap is a world in which the clocks of all brokers are wrong by a year and are
// confirmed in the end.
//
// A broker also comes back with less than it confirmed: the folder of a log was deleted (lost), or
// its volume is as it was some seconds before (rollback). No broker can tell the second from its
// volume. docs/architecture.md ("Rolled back volumes") promises that nothing is lost while another
// member of the in-sync set vouches, and concedes a loss otherwise. So these are left out beside a
// rollback (somebodyVouches in plan.go):
//
//  1. Faults that together take more than one other broker: kills, pauses, power cuts, partitions,
//     full, failing and slow disks, narrow links.
//  2. Faults of coordinators: all brokers may lose their leases with them.
//  3. Brokers that come, go or are started again one after the other, and other damage.
//
// The elections that this leaves out are judged in test/world, where a copy that was rolled back
// leads.
//
// TestAnUpgradeLosesNothing (test/chaos/upgrade) is a world whose processes are of the version
// before at first and of this one at last.
//
// TestASoakStaysBounded (make soak) is one world for as long as it is told, in which only one
// broker is ever killed. Clients come and go. After each round the other brokers' descriptors,
// goroutines and memory are read from their metrics; the last third of the samples of a life is
// held against the first (usage.go). TestTheSoakFindsALeak proves it with a broker that keeps
// something of each client.
//
// The judge is proven twice: by histories with faults in them, beside it, and by brokers that were
// built without one of the invariants each (mutation_test.go), through replaced source and not
// through switches in it.
//
// test/chaos/run runs it, as root on Linux: `make test-chaos-processes`. A run prints its seed, and
// each world's; the same seed plans the same faults, though processes don't meet them at the same
// instruction. Settings:
//
//	TIME=10m              for how long worlds are begun (default 1m)
//	CHAOS_SEED=N          the first world's seed (default: a random one); the next have the next
//	CHAOS_ROUNDS=N        rounds of faults in each world (default 6; in the proof of the judge 2)
//	CHAOS_FAULTS=A,B      only these kinds of faults, as plan.go names them
//	CHAOS_GO_ON=1         go on after a world that broke a promise
//	CHAOS_KEEP=DIR        keep logs and volumes of such a world there
//	CHAOS_LOG=LEVEL       the processes' log level
//	CHAOS_PROGRAM=FILE    a carillon that is built already
//	CHAOS_RACE=1          build the processes with the race detector
//	CHAOS_DIR=DIR         where the volumes' images go (default: the folder for temporary files)
//	CHAOS_RUN=REGEXP      go test -run; TestTheJudgeFindsAMissingInvariant is the proof of the judge
//	                      (make test-chaos-judge)
//	CHAOS_WORLDS=N        in how many worlds each broken broker has to be found (default 3)
package chaos
