package clock

import (
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// sinceBoot is the time since the machine started, suspension included; 0: not known.
func sinceBoot() int64 {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &t); err != nil {
		return 0
	}
	return t.Nano()
}

// bootName names this life of the machine; empty: not known.
func bootName() string {
	name, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(name))
}
