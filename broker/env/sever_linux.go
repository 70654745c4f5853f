package env

import (
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// SeverSockets shuts down every socket of this process, listeners included, but for the standard
// streams. It is for a process that is about to exit and may not be able to: while one thread hangs in
// the kernel, the process keeps its descriptors, and its peers would go on seeing a live process.
//
// net.Conn.Close is not enough then. It needs whatever lock leads to the connection, and leaves the
// descriptor open while another goroutine is in a call on it; a goroutine that hangs on the disk may
// hold either. shutdown(2) needs neither.
func SeverSockets() {
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return // there is no other way to find them; the lease and the links end with their silence
	}
	for _, e := range entries {
		if fd, err := strconv.Atoi(e.Name()); err == nil && fd > unix.Stderr {
			_ = unix.Shutdown(fd, unix.SHUT_RDWR) // ENOTSOCK of all that is no socket
		}
	}
}
