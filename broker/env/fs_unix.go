//go:build linux || darwin

package env

import "golang.org/x/sys/unix"

// Free is what is left for a process without privileges.
func (osFS) Free(path string) (uint64, error) {
	var s unix.Statfs_t
	if err := unix.Statfs(path, &s); err != nil {
		return 0, diskError("statfs", path, err)
	}
	return s.Bavail * uint64(s.Bsize), nil
}
