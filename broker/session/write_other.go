//go:build !linux

package session

import "syscall"

// nonblockingIO says that this system lets us use sockets without waiting for them.
const nonblockingIO = true

// writeSegments writes as much as the socket takes of the first segment.
func writeSegments(fd int, segments []segment) (int, error) {
	return syscall.Write(fd, segments[0].bytes)
}
