//go:build !linux

package bench

import "time"

func steady() (undo func()) { return func() {} }

func nap(d time.Duration) { time.Sleep(d) }
