// Package durability runs a server under load as a real process on real file systems, causes faults
// of its disk, its power and its process, and judges what it acknowledged by package checker.
//
// The server is `carillon dev` as a child process; the disks are ext4 on loop devices:
//
//   - kill: kill -9 and SIGTERM at random moments, including the start.
//   - power cut: the file system is shut down without a flush of its journal, and unsynced data is
//     dropped (EXT4_IOC_SHUTDOWN with NOLOGFLUSH); the process is killed, and the volume mounted
//     again. Broker and etcd are on that volume. The journal commits by itself only after minutes,
//     so that only a sync makes data safe. (ext4 makes some data safe without a sync, such as the
//     name of a synced new file. Package crashfs does not, and tests that case.)
//   - full disk, failing disk: publishes are refused with a reason, everything else works.
//   - slow disk, hanging disk (package faultfs): the broker continues when the disk does.
//   - flipped bits: unreadable messages are reported, all others are read.
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
