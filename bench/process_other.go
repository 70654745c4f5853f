//go:build !linux

package bench

import (
	"errors"
	"runtime"
	"time"
)

func processUsage(int) (time.Duration, int64, error) {
	return 0, 0, errors.New("read the CPU time of a process: only Linux has /proc")
}

func kernel() string { return runtime.GOOS }

func cpuModel() string { return "" }

func anonymousMemory([]int) (int64, error) {
	return 0, errors.New("read the memory of a process: only Linux has /proc")
}
