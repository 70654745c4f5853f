// Package env is the interface between a broker and its machine: the disk, the wall clock, and the
// TLS identity.
//
// FS is the disk: OS is the machine's, and package crashfs is one that crashes. Callers may rely
// only on what FS promises about a power cut.
//
// Clock is the wall clock of this machine, which may be wrong. Package clock computes the time of
// records from it. Tests make it jump.
//
// ReadFile reads small files that others exchange while a broker runs, and never waits for a
// writer. Links are followed, since Kubernetes mounts Secrets as links.
//
// TLS is the broker's identity: a CA, a certificate and its key, in three files that are renewed by
// another process. Towards clients there may be no CA. Invariants:
//
//   - A valid reading stays in use until a newer valid one: an incomplete or broken renewal never
//     takes a running broker off the network.
//   - The files are used as one set. A certificate is never used with the key or the CA of
//     another reading.
//   - Nothing runs in the background. The files are checked when a handshake begins.
//
// The package keeps no state outside memory, so a process that dies in it loses nothing.
package env
