package session

import (
	"syscall"

	"golang.org/x/sys/unix"
)

// nonblockingIO says that this system lets us use sockets without waiting for them.
const nonblockingIO = true

// writeSegments writes as much as the socket takes of the first segments.
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
