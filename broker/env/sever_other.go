//go:build !linux

package env

// SeverSockets does nothing here: sockets end with the process.
func SeverSockets() {}
