//go:build !linux

package session

import "syscall"

// nonblockingIO reports that sockets can be written on this system without waiting.
const nonblockingIO = true

// writeSegments writes as much of the first segment as the socket accepts.
func writeSegments(fd int, segments []segment) (int, error) {
	return syscall.Write(fd, segments[0].bytes)
}
