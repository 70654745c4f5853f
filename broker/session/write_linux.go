package session

import (
	"syscall"

	"golang.org/x/sys/unix"
)

// nonblockingIO reports that sockets can be written on this system without waiting.
const nonblockingIO = true

// writeSegments writes as much of the first 16 segments as the socket accepts.
func writeSegments(fd int, segments []segment) (int, error) {
	if len(segments) == 1 {
		return syscall.Write(fd, segments[0].bytes)
	}
	var vector [16][]byte
	n := min(len(segments), len(vector))
	for i := range n {
		vector[i] = segments[i].bytes
	}
	return unix.Writev(fd, vector[:n])
}
