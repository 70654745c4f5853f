package bench

import (
	"runtime"
	"time"

	"golang.org/x/sys/unix"
)

// steady prepares the calling goroutine to wake on time and returns how to undo it. The Go
// runtime's timers may be a millisecond late on an idle machine, since its poller sleeps in
// whole milliseconds; a thread that sleeps in the kernel without slack is some microseconds late.
func steady() (undo func()) {
	runtime.LockOSThread()
	// Without the smaller slack a sleep ends up to 50 µs late: worse, but not wrong.
	_ = unix.Prctl(unix.PR_SET_TIMERSLACK, 1, 0, 0, 0)
	return func() {
		_ = unix.Prctl(unix.PR_SET_TIMERSLACK, 0, 0, 0, 0) // 0 restores the default
		runtime.UnlockOSThread()
	}
}

func nap(d time.Duration) {
	t := unix.NsecToTimespec(int64(d))
	// An early end does no harm: the caller looks at the clock again.
	_ = unix.Nanosleep(&t, nil)
}
