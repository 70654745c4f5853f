// Package durability takes the disk, the power and the process away from a server that has work to
// do, on real file systems and real processes, and holds it to what it had acknowledged by then.
// What is judged, and how, stands in package checker.
//
// The server is `carillon dev` as a child process; the disks are ext4 on loop devices:
//
//   - kill: kill -9 and SIGTERM at random moments, while it starts, too.
//   - power cut: the file system is shut down as it is, with what is not yet on the disk dropped
//     and no journal flushed (EXT4_IOC_SHUTDOWN with NOLOGFLUSH); the process is killed, the volume
//     mounted again. Broker and etcd are on that volume. The journal commits by itself after
//     minutes only, so that nothing becomes safe but by a sync. (What ext4 makes safe unasked, as
//     the name of a new file with the file, is left to package crashfs, which doesn't.)
//   - full disk, failing disk: what is published is refused with a reason, all else goes on.
//   - a disk that is slow or hangs, and goes on (package faultfs): so does the broker.
//   - flipped bits: what can't be read is told, what can is read.
//
// Invariants: all of the above holds under any seed; a run prints its seed. Nothing survives the
// run: each belongs to a folder that is locked while its run lives; test/durability/run gives the
// run a mount namespace of its own; and the next run removes what one that was killed left behind.
//
// `make test-durability` runs it: as root, on Linux, within minutes. Settings:
//
//	DURABILITY_SEED=N        the moments of the faults (default: a random one)
//	DURABILITY_ROUNDS=N      N times as many rounds (default 1)
//	DURABILITY_DIR=DIR       where the volumes' images go (default: the folder for temporary files)
//	DURABILITY_PEER=FILE     a nats-server, to check the checker: at its default it acknowledges
//	                         before it syncs, so a power cut must be found to lose what it
//	                         acknowledged, and with sync_interval: always it must be found to
//	                         keep it. `make peers` builds one.
package durability
