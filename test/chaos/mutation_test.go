//go:build e2e && linux

package chaos

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/carillon-mq/carillon/internal/testutil"
)

// mutation is carillon without one invariant: a file of its source in which something else stands in one place.
type mutation struct {
	name     string
	file     string
	old, new string
	faults   []Kind   // that are to bring it to light; none: a leader is killed whose followers stand still
	found    []string // what the judge says then, one of these
}

var lost = []string{"lost at the front", "lost in the middle", "lost at the end", "and was read", "replicas differ", "no order of"}

var mutations = []mutation{
	{"acknowledge before followers have it", "broker/replica/leader.go",
		"for _, m := range l.shard.InSync {\n\t\t\thigh = min(high, l.has(m, p))",
		"for _, m := range l.shard.InSync[:0] {\n\t\t\thigh = min(high, l.has(m, p))",
		nil, lost},
	{"sync nothing", "broker/env/fs_os.go",
		"return diskError(\"sync\", f.path, datasync(f.f))",
		"_ = datasync\n\treturn nil",
		[]Kind{Power}, lost},
	{"truncate by where logs end and not by lineage", "broker/replica/lineage.go",
		"shared, found := follower.End, len(follower.Epochs) == 0",
		"shared, found := min(follower.End, leader.End), true",
		nil, lost},
	{"forget the ids of messages", "broker/topic/dedup.go",
		"offset, ok = w.known[h]",
		"ok = false",
		[]Kind{Kill, Pause, Partition}, []string{"there twice"}},
	{"let a subject's shard be another one", "broker/topic/partition.go",
		"return int(fnv(hash, subject) % uint64(spec.Shards))",
		"return int(fnv(hash, subject) >> 8 % uint64(spec.Shards))",
		[]Kind{Kill}, []string{"was acknowledged by stream"}},
	{"elect under the same epoch", "broker/topic/placement_elect.go",
		"after.Epoch++",
		"after.Epoch += 0",
		nil, lost},
}

// TestTheJudgeFindsABroken broker: one without an invariant has to be found out within a few worlds, by what it loses or doubles and not by
// not coming to rest.
func TestTheJudgeFindsABroken(t *testing.T) {
	defer func(before time.Duration) { patience = before }(patience)
	patience = 20 * time.Second
	worlds := setting(t, "CHAOS_WORLDS", 3, strconv.Atoi)
	rounds := setting(t, "CHAOS_ROUNDS", 2, strconv.Atoi)
	for _, m := range mutations {
		t.Run(m.name, func(t *testing.T) {
			program, err := m.build()
			testutil.Must(t, err)
			for n := range uint64(worlds) {
				var said strings.Builder
				t.Run(strconv.FormatUint(seed+n, 10), func(t *testing.T) {
					for _, err := range live(t, program, seed+n, nobody, m.planner(seed+n), rounds) {
						said.WriteString(err.Error() + "\n")
					}
				})
				for _, want := range m.found {
					if strings.Contains(said.String(), want) {
						t.Logf("found in world %d:\n%s", n+1, said.String()[:min(said.Len(), 2500)])
						return
					}
				}
			}
			t.Errorf("not found in %d worlds", worlds)
		})
	}
}

// planner plans with the faults that are to bring it to light.
func (m mutation) planner(seed uint64) func() Round {
	if m.faults != nil {
		return NewPlanner(seed, m.faults).Next
	}
	leader := -1
	return func() Round { // whichever leads: each in turn
		leader = (leader + 1) % founders
		return Round{
			{Kind: Pause, For: 2 * time.Second, Nodes: without(from(0, founders), leader)},
			{Kind: Kill, At: time.Second, For: 6 * time.Second, Nodes: []int{leader}},
		}
	}
}

// build makes carillon with the mutation, and fails if there is no place for it.
func (m mutation) build() (string, error) {
	root, err := filepath.Abs("../..")
	if err != nil {
		return "", err
	}
	file := filepath.Join(root, m.file)
	source, err := os.ReadFile(file)
	if err != nil {
		return "", err
	}
	if !strings.Contains(string(source), m.old) {
		return "", fmt.Errorf("%s has no %q any more: say anew how to %s", m.file, m.old, m.name)
	}
	dir, err := os.MkdirTemp(folder.Dir, "mutation-")
	if err != nil {
		return "", err
	}
	changed := filepath.Join(dir, "changed.go")
	if err := writeFile(changed, strings.ReplaceAll(string(source), m.old, m.new)); err != nil {
		return "", err
	}
	overlay, err := json.Marshal(map[string]any{"Replace": map[string]string{file: changed}})
	if err != nil {
		return "", err
	}
	list := filepath.Join(dir, "overlay.json")
	if err := writeFile(list, string(overlay)); err != nil {
		return "", err
	}
	return build(filepath.Join(filepath.Base(dir), "carillon"), "-overlay", list)
}
