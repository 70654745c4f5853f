// Package chaos runs a cluster of real processes under overlapping faults of every kind, and checks
// what it promised to its clients.
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
//  1. All flips in one log are on one broker. Damage that is never read may stay unknown for an
//     hour.
//  2. None are in Topics that promise less than a majority of synced copies (topics_test.go).
//
// After each round the cluster has to become whole, with replicas spread evenly over the brokers
// that are there, and acknowledge again.
//
// What is judged, of a world that has come to rest:
//
//   - Each shard, by package checker. No acknowledged message is lost, at the front, in the middle
//     or at the end. No message is stored twice, out of order, changed, or without having been
//     published on the shard's subjects. A message whose ack was answered is not delivered again.
//   - The log of each replica, by the same rules, and the replicas of each log, of records and of
//     cursors, record by record (replicas.go). Each log has as many replicas as its Topic asks for:
//     a broker that loses a replica to another one deletes its copy.
//   - Snapshots that clients take all the time, and read twice. A snapshot has every message that
//     was acknowledged before it, and a record at each offset. Its records are the same in the
//     second reading and at the end (snapshots.go).
//   - Topics with minInSync 1, with a retention by number or by age, and of the durabilities
//     Replicated and Memory keep what they promise; the last two only in worlds without power cuts,
//     and Memory only in those where no process ends without order. Only the soak has a Topic with
//     compaction: records are left alone for a minute and longer, and a world is over by then.
//   - Conditional publishes, each a compare-and-swap of a register. porcupine searches for an order
//     in which each has the outcome that its client was told (registers.go).
//   - Views of a Topic of several shards, whose messages have a time and a number as headers: one
//     with windows, for which some messages come too late, and one of all messages, each with
//     triggers (rooms_test.go). When the load has ended, the log of the Topic is counted anew
//     (test/recount). The output Topics have each closed window and each alert of it once, and no
//     others, with serial numbers without gaps. An alert of all messages has the result of those
//     before the offsets that it names, and the present values are those of the whole log.
//   - No process panicked.
//
// When a disk hangs for so long that its broker gives up, and nothing else is wrong, others lead
// within 10 s and publishing goes on with them. TestADiskThatHangsHandsOverLeadership is a world
// with that fault alone.
//
// A power cut drops unsynced data (packages disk and faultfs). The nodes are paused before, so that
// none of them reports a sync that is lost. Clocks jump through broker/env's Clock. Each jumps by
// less than half of the deduplication window, so that brokers that lost their saved clocks in a
// power cut still agree within it. One broker's clock may also be wrong by a year, forward or back:
// nothing expires by it, and no message that is published again is kept twice.
//
// TestAllClocksLeap is a world in which the clocks of all brokers are wrong by a year and are
// confirmed in the end.
//
// A broker also comes back with less than it confirmed: the folder of a log was deleted (lost), or
// its volume is as it was some seconds before (rollback). No broker can tell the second from its
// volume. docs/architecture.md ("Rolled back volumes") promises that nothing is lost while another
// member of the in-sync set vouches, and concedes a loss otherwise. So these are left out beside a
// rollback (anotherMemberVouches in plan.go):
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
// before at first and of this one at last, at an etcd that asks for users. Clients change
// attributes all the time and publish, and others have live queries (queries.go, queries_test.go).
// After the faults that follow each changed broker, of each query that a broker of a version with
// live queries serves:
//
//  1. Under load it has brought some new members, some that left, and messages, and none of a
//     subject that was no member. It never ended.
//  2. At rest its members are those that the attributes say.
//  3. Each subject is changed three times, while some clients move from one broker to another, also
//     of the other version. Half of the changes are made while these have no connection. Each
//     change is told, by a notice or by the difference after a move; brokers have to count moves
//     with a difference.
//  4. A message on each member comes, and none of others.
//
// Brokers of a version without live queries refuse clients, and each client has to have seen that.
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
//	CHAOS_OLD_PROGRAM=FILE, CHAOS_OLD_HAS="queries views"
//	                      the version before, and what it has (test/chaos/upgrade)
//	CHAOS_RACE=1          build the processes with the race detector
//	CHAOS_DIR=DIR         where the volumes' images go (default: the folder for temporary files)
//	CHAOS_RUN=REGEXP      go test -run; TestTheJudgeFindsAMissingInvariant is the proof of the judge
//	                      (make test-chaos-judge)
//	CHAOS_WORLDS=N        worlds within which the judge must find a missing invariant (default 3)
package chaos
