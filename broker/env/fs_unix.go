//go:build linux || darwin

package env

import "golang.org/x/sys/unix"

// Free returns the space that is available to unprivileged processes.
func (osFS) Free(path string) (uint64, error) {
	var s unix.Statfs_t
	if err := unix.Statfs(path, &s); err != nil {
		return 0, diskError("statfs", path, err)
	}
	return s.Bavail * uint64(s.Bsize), nil
}
