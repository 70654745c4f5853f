package bench

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

// clockTick is the unit of CPU times in /proc, the same on every Linux that Go runs on.
const clockTick = 10 * time.Millisecond

// processUsage reads a process's CPU time and resident memory.
func processUsage(pid int) (used time.Duration, rss int64, err error) {
	path := fmt.Sprintf("/proc/%d/stat", pid)
	data, err := os.ReadFile(path)
	if err != nil {
		return 0, 0, fmt.Errorf("read the CPU time of process %d: %w", pid, err)
	}
	return parseStat(data)
}

// parseStat reads the fields behind the command name, which may itself hold spaces and parentheses.
func parseStat(data []byte) (used time.Duration, rss int64, err error) {
	malformed := errors.New("read the CPU time of a process: its stat file is not as expected")
	end := bytes.LastIndexByte(data, ')')
	if end < 0 {
		return 0, 0, malformed
	}
	// The first field here is the state, number 3 in proc(5): utime is 14, stime 15, rss 24.
	fields := bytes.Fields(data[end+1:])
	if len(fields) < 22 {
		return 0, 0, malformed
	}
	user, err1 := strconv.ParseInt(string(fields[11]), 10, 64)
	system, err2 := strconv.ParseInt(string(fields[12]), 10, 64)
	pages, err3 := strconv.ParseInt(string(fields[21]), 10, 64)
	if errors.Join(err1, err2, err3) != nil {
		return 0, 0, malformed
	}
	return time.Duration(user+system) * clockTick, pages * int64(os.Getpagesize()), nil
}

func kernel() string {
	var u unix.Utsname
	if unix.Uname(&u) != nil {
		return ""
	}
	return unix.ByteSliceToString(u.Sysname[:]) + " " + unix.ByteSliceToString(u.Release[:])
}

func cpuModel() string {
	data, err := os.ReadFile("/proc/cpuinfo")
	if err != nil {
		return ""
	}
	for line := range bytes.Lines(data) {
		if name, value, ok := bytes.Cut(line, []byte(":")); ok && bytes.Equal(bytes.TrimSpace(name), []byte("model name")) {
			return string(bytes.TrimSpace(value))
		}
	}
	return ""
}

// anonymousMemory adds up the resident memory of processes that belongs to no file.
func anonymousMemory(pids []int) (total int64, err error) {
	for _, pid := range pids {
		data, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
		if err != nil {
			return 0, fmt.Errorf("read the memory of process %d: %w", pid, err)
		}
		for line := range bytes.Lines(data) {
			text, is := bytes.CutPrefix(line, []byte("RssAnon:"))
			if !is {
				continue
			}
			kib, err := strconv.ParseInt(string(bytes.TrimSpace(bytes.TrimSuffix(bytes.TrimSpace(text), []byte("kB")))), 10, 64)
			if err != nil {
				return 0, fmt.Errorf("read the memory of process %d: %w", pid, err)
			}
			total += kib << 10
		}
	}
	return total, nil
}
