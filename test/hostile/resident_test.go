//go:build e2e && linux

package hostile

import (
	"fmt"
	"os"
	"strconv"
	"strings"
)

// resident reads the resident memory of a process, and its highest since resetPeak, in bytes.
func resident(pid int) (now, peak int64, err error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, 0, err
	}
	found := 0
	for line := range strings.Lines(string(text)) {
		name, value, _ := strings.Cut(line, ":")
		into := map[string]*int64{"VmRSS": &now, "VmHWM": &peak}[name]
		if into == nil {
			continue
		}
		kib, err := strconv.ParseInt(strings.TrimSuffix(strings.TrimSpace(value), " kB"), 10, 64)
		if err != nil {
			return 0, 0, fmt.Errorf("read the memory of process %d: %w", pid, err)
		}
		*into = kib << 10
		found++
	}
	if found != 2 {
		return 0, 0, fmt.Errorf("read the memory of process %d: it has ended", pid)
	}
	return now, peak, nil
}

// resetPeak makes the highest resident memory of a process the present one.
func resetPeak(pid int) error {
	return os.WriteFile(fmt.Sprintf("/proc/%d/clear_refs", pid), []byte("5"), 0o200)
}
