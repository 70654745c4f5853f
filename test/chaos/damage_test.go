//go:build e2e && linux

package chaos

import (
	"bytes"
	"errors"
	"fmt"
	"hash/fnv"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// damageable filters paths for files of logs that may be damaged on a broker. All damage to one log
// is on one broker, so that each record is whole on the others: damage that is never read may stay
// unknown for an hour. The Topics with the ids in spared are excluded.
func damageable(paths []string, logOf func(path string) string, node int, spared []string) []string {
	slices.Sort(paths)
	return slices.DeleteFunc(paths, func(path string) bool {
		log := logOf(path)
		hash := fnv.New64a()
		_, _ = hash.Write([]byte(log))
		return hash.Sum64()%brokers != uint64(node) || slices.ContainsFunc(spared, func(id string) bool { return strings.HasPrefix(log, id+"-") })
	})
}

// flip inverts one bit of one file of a broker's logs.
func flip(dir string, node int, moment uint64, spared []string) (string, error) {
	pattern := "*.log"
	if moment%5 == 0 {
		pattern = "manifest"
	}
	logs, err := filepath.Glob(filepath.Join(dir, "data", "shards", "*", pattern))
	if err != nil {
		return "", err
	}
	logs = damageable(logs, func(path string) string { return filepath.Base(filepath.Dir(path)) }, node, spared)
	if len(logs) == 0 {
		return "nothing: there are no logs", nil
	}
	path := logs[moment/5%uint64(len(logs))]
	content, err := os.ReadFile(path)
	if err != nil {
		return "", err
	}
	used := len(bytes.TrimRight(content, "\x00"))
	if used == 0 {
		return "nothing: " + path + " is empty", nil
	}
	at, bit := int(moment>>16%uint64(used)), moment>>8%8
	content[at] ^= 1 << bit
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		return "", err
	}
	_, err = f.WriteAt(content[at:at+1], int64(at))
	return fmt.Sprintf("bit %d of byte %d of %d of %s", bit, at, used, path), errors.Join(err, f.Close())
}

// lose deletes the folder of one of a broker's logs.
func lose(dir string, node int, moment uint64, spared []string) (string, error) {
	logs, err := filepath.Glob(filepath.Join(dir, "data", "shards", "*"))
	if err != nil {
		return "", err
	}
	if logs = damageable(logs, filepath.Base, node, spared); len(logs) == 0 {
		return "nothing: there are no logs", nil
	}
	path := logs[moment%uint64(len(logs))]
	return path, os.RemoveAll(path)
}

// rolledBackBy is the least time by which a volume is rolled back: some hundred messages.
const rolledBackBy = 3 * time.Second

// rollBack has a broker work on for a while and then find its volume as it was before. Its first
// death is a kill, so that what it finds is what some kill left behind.
func (c *cluster) rollBack(s Step, last func()) error {
	p := c.processes[s.Nodes[0]]
	data, before := filepath.Join(p.volume.Path(), "data"), filepath.Join(c.dir, nodeName(s.Nodes[0])+".before")
	defer os.RemoveAll(before)
	p.kill()
	err := errors.Join(command("", "cp", "-a", data, before), p.start())
	time.Sleep(rolledBackBy)
	last()
	p.kill()
	if err == nil {
		err = errors.Join(os.RemoveAll(data), command("", "cp", "-a", before, data))
	}
	return errors.Join(err, p.start())
}
