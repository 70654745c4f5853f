package env

import (
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// SeverSockets shuts down every socket of this process, including listeners, except for the
// standard streams. It is for a process that must exit and perhaps cannot: while a thread hangs in
// the kernel, the process keeps its descriptors, and peers still see a live process.
//
// net.Conn.Close is not sufficient. It needs the locks that guard the connection, and it leaves the
// descriptor open while another goroutine is in a call on it; a goroutine that hangs on the disk
// may hold either. shutdown(2) needs neither.
func SeverSockets() {
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return // nothing else finds them; the lease and the links end by timeout
	}
	for _, e := range entries {
		if fd, err := strconv.Atoi(e.Name()); err == nil && fd > unix.Stderr {
			_ = unix.Shutdown(fd, unix.SHUT_RDWR) // ENOTSOCK for other descriptors
		}
	}
}
