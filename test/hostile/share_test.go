//go:build e2e && linux

package hostile

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// period is the period of quotas in microseconds. It is short, so that a process that has used its
// share pauses for less than 10 ms: with the kernel's 100 ms, pauses would decide the p99.
const period = 10_000

// groupPrefix begins the names of this suite's cgroups.
const groupPrefix = "carillon-hostile-"

// shares are the parts of a CPU that each side has, in percent. They are less than two CPUs.
var shares = map[string]int{"broker": 100, "attacker": 50, "bystander": 35}

// groups are a cgroup for each side.
type groups struct{ top string }

// newGroups makes the cgroups, with the cpu controller of version 1 or of version 2, and removes
// those of runs that were killed.
func newGroups() (*groups, error) {
	mount, unified, err := cpuController()
	if err != nil {
		return nil, err
	}
	stale, _ := filepath.Glob(filepath.Join(mount, groupPrefix+"*"))
	for _, top := range stale {
		if _, err := os.Stat(filepath.Join("/proc", strings.TrimPrefix(filepath.Base(top), groupPrefix))); os.IsNotExist(err) {
			_ = (&groups{top}).remove()
		}
	}
	g := &groups{filepath.Join(mount, groupPrefix+strconv.Itoa(os.Getpid()))}
	if err := os.Mkdir(g.top, 0o755); err != nil {
		return nil, fmt.Errorf("make a cgroup: %w (shares of the CPU take root, and a machine or a privileged container)", err)
	}
	for _, dir := range []string{mount, g.top} {
		if unified {
			if err := os.WriteFile(filepath.Join(dir, "cgroup.subtree_control"), []byte("+cpu"), 0o644); err != nil {
				return nil, errors.Join(fmt.Errorf("let cgroups below %s have shares of the CPU: %w", dir, err), g.remove())
			}
		}
	}
	for side, percent := range shares {
		dir := g.of(side)
		err := os.Mkdir(dir, 0o755)
		quota := strconv.Itoa(period * percent / 100)
		switch {
		case err != nil:
		case unified:
			err = os.WriteFile(filepath.Join(dir, "cpu.max"), []byte(quota+" "+strconv.Itoa(period)), 0o644)
		default:
			if err = os.WriteFile(filepath.Join(dir, "cpu.cfs_period_us"), []byte(strconv.Itoa(period)), 0o644); err == nil {
				err = os.WriteFile(filepath.Join(dir, "cpu.cfs_quota_us"), []byte(quota), 0o644)
			}
		}
		if err != nil {
			return nil, errors.Join(fmt.Errorf("give the %s its share of the CPU: %w", side, err), g.remove())
		}
	}
	return g, nil
}

// of returns the folder of a side's cgroup.
func (g *groups) of(side string) string { return filepath.Join(g.top, side) }

// remove removes the cgroups. Their processes have ended.
func (g *groups) remove() (err error) {
	for side := range shares {
		if gone := os.Remove(g.of(side)); gone != nil && !os.IsNotExist(gone) {
			err = errors.Join(err, gone)
		}
	}
	return errors.Join(err, os.Remove(g.top))
}

// join puts this process into a cgroup.
func join(dir string) error {
	return os.WriteFile(filepath.Join(dir, "cgroup.procs"), []byte(strconv.Itoa(os.Getpid())), 0o644)
}

// cpuController returns where the cpu controller is mounted, and whether it is of version 2.
func cpuController() (mount string, unified bool, err error) {
	text, err := os.ReadFile("/proc/self/mounts")
	if err != nil {
		return "", false, err
	}
	for line := range strings.Lines(string(text)) {
		fields := strings.Fields(line)
		if len(fields) < 4 {
			continue
		}
		switch {
		case fields[2] == "cgroup" && strings.Contains(","+fields[3]+",", ",cpu,"):
			return fields[1], false, nil
		case fields[2] == "cgroup2":
			if has, err := os.ReadFile(filepath.Join(fields[1], "cgroup.controllers")); err == nil && strings.Contains(" "+strings.TrimSpace(string(has))+" ", " cpu ") {
				mount, unified = fields[1], true
			}
		}
	}
	if mount == "" {
		return "", false, errors.New("this kernel has no cpu controller of cgroups, so nobody can have a fixed share of the CPU")
	}
	return mount, unified, nil
}
