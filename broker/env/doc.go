// Package env holds the doors between a broker and the machine that it runs on, so that
// everything above it meets the disk and the network in one place.
//
// FS is the disk, with the machine's as OS and one that crashes as package crashfs. What FS
// promises about a power cut is all that anything above may rely on; it keeps no state.
//
// Clock is the wall time of this machine, which may be wrong. Package clock makes of it the time of
// records. Tests make it jump.
//
// The rest is the node's TLS identity: a CA, a certificate and its key, in three files
// that somebody else renews. Invariants:
//
//   - What was read once and was good stays in use until something better was read: a
//     half-written or broken renewal never takes a running node off the network.
//   - The three files are always used as one set; a certificate is never served with the
//     key or the CA of another reading that failed.
//   - Nothing here runs in the background. Files are looked at when a handshake begins.
//
// The package keeps no state outside memory, so a process that dies in it loses nothing.
package env
