//go:build unix

package bench

import (
	"fmt"
	"time"

	"golang.org/x/sys/unix"
)

// otherFiles is what the process holds open besides its connections.
const otherFiles = 64

// ensureFiles raises the soft limit of open files as far as the hard one allows, and says
// what to do if that is not enough.
func ensureFiles(connections int) error {
	need := uint64(connections + otherFiles)
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		return fmt.Errorf("read the limit of open files: %w", err)
	}
	if uint64(limit.Cur) >= need {
		return nil
	}
	if uint64(limit.Max) >= need {
		limit.Cur = limit.Max
		if unix.Setrlimit(unix.RLIMIT_NOFILE, &limit) == nil {
			return nil
		}
	}
	return fmt.Errorf("%d connections need %d open files and this process may have %d: raise the hard limit (ulimit -Hn %d as root, LimitNOFILE= in systemd, or the container runtime's nofile), or measure with fewer",
		connections, need, limit.Max, need)
}

// ownCPU is the CPU time that this process has used.
func ownCPU() time.Duration {
	var u unix.Rusage
	if unix.Getrusage(unix.RUSAGE_SELF, &u) != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
