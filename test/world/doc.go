// Package world runs brokers in one process, in a world that a seed decides: the product's own code
// of Topics, replication, logs, links, coordination and placement, over disks, a network, an etcd
// and clocks that are simulated. It searches for a history that breaks a promise to a client.
//
// A world runs in a bubble of testing/synctest, so that time passes only while all goroutines wait.
// Each completion of I/O (a packet, a sync, an answer of etcd, an event of a watch) and each fault
// is an event. An event happens when all goroutines are blocked, one event at a time, in an order
// that the seed decides. Random choices of the Go runtime come from the seed as well (replay.go).
// So a failing seed fails again, step by step; the hash of its transcript proves that.
//
//	world.go     events, time, the transcript
//	machine.go   a machine, and a process on it: a broker, as broker.Run assembles it
//	disk.go      a machine's disk as a process sees it: crashfs, which takes time, stalls, and dies
//	             between two operations
//	network.go   connections whose directions are cut or slow; a kernel that refuses, resets or is
//	             silent
//	etcd.go      etcd at the level of its services: transactions, leases, watches; late, lossy,
//	             without a quorum, restored
//	topics.go    the kinds of Topics: shards, durability, compaction, retention, minInSync
//	hub.go       a process' clients
//	codec.go     what their messages ask for, and how they are answered
//	client.go    publishers
//	reader.go    readers and snapshots
//	subscriber.go Subscriptions
//	flood.go     publishers without replies; senders that fall silent
//	rollups.go   messages that remove older ones
//	batches.go   atomic batches
//	fastbatches.go fast batches
//	counters.go  counters
//	expiring.go  messages with a TTL
//	schedules.go schedules
//	sources.go   Topics that copy others
//	mirrors.go   Topics that mirror others
//	views.go     Views, and the Topics that they write into
//	viewjudge.go whether Views agree with a recount
//	deletion.go  Topics that are deleted under load, and made again
//	decay.go     disks on which damage appears, one after the other
//	rollback.go  volumes that are rolled back by an hour
//	faults.go    the faults
//	damage.go    damage and loss of several copies of a shard at once
//	torn.go      damage that resembles a torn write
//	clocks.go    clocks that are all wrong at once
//	options.go   the classes of faults that are left out, and why
//	judge.go     the promises, and whether they hold
//	order.go     whether an order of events explains all answers
//	registers.go the same for each subject, by porcupine
//	holding.go, limits.go, displaced.go, cursors.go, queues.go   the promises of durability, of
//	             retention and compaction, of limits per subject, of Subscriptions, of work queues
//	             and deletions
//	run.go       a world from its beginning to its end
//	replay.go    the program in which worlds run
//	mutation.go, mutations.go   rules of the product that can be removed
//
// What is judged, for each Topic by what its spec promises (docs/topics.md):
//
//	J1  Every record that was acknowledged, or read, is on all replicas at the end, at its offset,
//	    and all replicas have the same records. A Replicated Topic may lose records when the
//	    machines of all in-sync replicas lose power, a Memory Topic when all their processes end;
//	    later acknowledged records count again.
//	J2  A message is answered once and stored once; with a message id, also if it was published
//	    several times.
//	J3  Acks, duplicates, refusals by condition and last messages have an order that explains them,
//	    across all clients, and so have the operations on each subject as a register.
//	J4  Soon after the last fault all clients are served, all replicas are in sync, and an orderly
//	    end leaves readable logs.
//	J5  A subject's messages are in one shard, which all answers name.
//	J6  Retention deletes records only beyond a limit, and soon. Compaction keeps the newest
//	    record of each subject, and young ones; for every record that a replica lacks it has a
//	    newer one of the subject.
//	J7  A Subscription delivers all records. A record whose ack was answered is not delivered
//	    again by that leader or a later one.
//	J8  A snapshot has every record that was acknowledged before it, and doesn't change while it
//	    is held.
//	J9  A leader's uncommitted records are bounded, and so are the senders that it remembers.
//	J10 No record of a deleted Topic returns, unless etcd is restored from an earlier backup. Its
//	    logs are deleted, or set aside where the broker was away. The copies of a Topic that is
//	    back are compared soon, and it can be deleted again.
//	J11 A broker that died scrubs its disk soon after its start, with or without readers. So
//	    damage on all replicas, some minutes apart, loses nothing.
//	J12 Messages of one connection are stored in the order in which it published them.
//
//	J13 Of a Topic with a limit per subject, a record is removed only if as many newer ones of its
//	    subject are there, and then it stays removed. In the end no subject has more.
//	J14 Of a work queue, a record is removed only if a client has sent its ack; of a Topic that
//	    keeps what Subscriptions need, only if an ack was sent to each; of others only if a client
//	    has deleted it, or a rollup stands behind it. Then it stays removed. In the end none is left
//	    whose ack, or deletion, was answered. What is before an acknowledged rollup is removed at
//	    once.
//	J15 The messages of an atomic batch have adjacent offsets, or none is stored. A reader sees all
//	    of them or none.
//	J16 The total of a counter is that of its message before, plus the increment, and answers name
//	    it.
//	J17 A Topic with a source has each of its records once, in their order, and in the end all: with
//	    several shards in that of its subject.
//	J18 The messages of a fast batch stand in their order. All that were answered as kept stay, and
//	    where gaps are not ok, none stands behind a missing one.
//	J19 A mirror has the records of its Topic at their offsets, and in the end all that it shows.
//	J20 A message with a TTL is removed, or has a marker in its place, only once its time is over.
//	    In the end none is left, and no marker.
//	J21 A schedule publishes its message once, and not before its time. In the end each that is kept
//	    has done so.
//	J22 A View has the results and alerts of a recount of its Topic (test/recount), each once and in
//	    order. In the end its present values, and how many messages were late, are those of a
//	    recount, too. Nothing of that is judged if the Topic, or an output, has lost records.
//
// CARILLON_SEED=n runs one seed, CARILLON_SEEDS=a-b a range; CARILLON_TRACE=file has the transcript
// of one written; CARILLON_FAULTS names the faults that strike, CARILLON_FOUND the classes that are
// not to be left out, CARILLON_KINDS the kinds that Topics have, CARILLON_READERS what else a world
// has (Options.Readers).
package world
