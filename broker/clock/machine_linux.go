package clock

import (
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// sinceBoot returns the time since boot, including suspension, in nanoseconds; 0: unknown.
func sinceBoot() int64 {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &t); err != nil {
		return 0
	}
	return t.Nano()
}

// bootName identifies this boot of the machine; empty: unknown.
func bootName() string {
	name, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(name))
}
