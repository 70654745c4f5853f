package chaos

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// mutation is carillon without one invariant: a source file in which one place is replaced.
type mutation struct {
	name     string
	file     string
	old, new string
	faults   []Kind   // that reveal it; none: a leader is killed while its followers are paused
	found    []string // the judge reports one of these
	round    Round    // of faults that is repeated, in place of a plan
}

var lost = []string{"lost at the front", "lost in the middle", "lost at the end", "and was read", "replicas differ", "no order of"}

var mutations = []mutation{
	{"acknowledge before followers have it", "broker/replica/leader.go",
		"for _, m := range l.shard.InSync {\n\t\t\thigh = min(high, l.has(m, p))",
		"for _, m := range l.shard.InSync[:0] {\n\t\t\thigh = min(high, l.has(m, p))",
		nil, lost, nil},
	{"sync nothing", "broker/env/fs_os.go",
		"return diskError(\"sync\", f.path, datasync(f.f))",
		"_ = datasync\n\treturn nil",
		[]Kind{Power}, lost, nil},
	{"truncate by where logs end and not by lineage", "broker/replica/lineage.go",
		"shared, found := follower.End, len(follower.Epochs) == 0",
		"shared, found := min(follower.End, leader.End), true",
		nil, lost, nil},
	{"forget the ids of messages", "broker/dedup/window.go",
		"offset, ok = w.known[h]",
		"ok = false",
		[]Kind{Kill, Pause, Partition}, []string{"there twice"}, nil},
	{"let a subject's shard be another one", "broker/publish/partition.go",
		"return int(fnv(hash, subject) % uint64(spec.Shards))",
		"return int(fnv(hash, subject) >> 8 % uint64(spec.Shards))",
		[]Kind{Kill}, []string{"was acknowledged by stream"}, nil},
	{"elect under the same epoch", "broker/placement/elect.go",
		"return it.Epoch + max(p.facts.Stride, 1)",
		"return it.Epoch",
		nil, lost, nil},
	{"expire by the clock of one machine", "broker/retention/keeper.go",
		"pause := policy.Age > 0 && s.Clock.InDoubt()",
		"pause := false\n\tnow = s.Clock.Status().Wall.UnixNano()",
		nil, lost, Round{
			{Kind: Clock, Nodes: from(0, founders), Shifts: []time.Duration{leap, leap, leap}},
			{Kind: Kill, At: time.Second, For: time.Second, Nodes: from(0, founders)},
		}},
	{"lead on while the disk hangs", "broker/stall/judge.go",
		"limit > 0 && one.age >= one.limit",
		"false",
		[]Kind{Hang}, []string{"others lead while a disk hangs"}, nil},
	{"write the results of a view without a look at the last ones", "broker/viewing/owner.go",
		"t.ends[at] = end\n",
		"_ = end\n",
		nil, unlikeARecount, allDie},
	{"write alerts without a look at the last ones", "broker/trigger/set.go",
		"s.set(k, &state{last.Serial, last.Raised, last.End})",
		"_ = k",
		nil, unlikeARecount, allDie},
	{"read some records of a view twice", "broker/view/encode.go",
		"b := appendTime(appendNumber(nil, s.next), s.watermark)\n\tb = s.done",
		"b := appendTime(appendNumber(nil, s.next-min(s.next, 20)), s.watermark)\n\tb = s.done",
		nil, unlikeARecount, allDie},
	{"close windows that are open in some shard", "broker/view/owner.go",
		"limit := Position{End: Everything}\n\tfor _, s := range o.sources {\n\t\tif s.received.Compare(limit) < 0 {",
		"limit := begin\n\tfor _, s := range o.sources {\n\t\tif s.received.Compare(limit) > 0 {",
		nil, unlikeARecount, nil},
}

// unlikeARecount is found of Views.
var unlikeARecount = []string{"views disagree with a recount"}

// allDie has brokers begin with the checkpoints of Views, which have been written by then.
var allDie = Round{{Kind: Kill, At: 11 * time.Second, For: time.Second, Nodes: from(0, founders)}}

// leaking is carillon that leaks a descriptor, a goroutine and some memory for each client.
var leaking = mutation{
	name: "keep something of each client", file: "broker/session/hub.go",
	old: "defer h.running.Done()\n\t\tc.serve()",
	new: `defer h.running.Done()
		go func() {
			descriptor, _ := net.Listen("tcp", "127.0.0.1:0")
			memory := make([]byte, 1<<20)
			for i := range memory {
				memory[i] = 1
			}
			<-h.quit
			runtime.KeepAlive(memory)
			runtime.KeepAlive(descriptor)
		}()
		c.serve()`,
}

// source returns the mutated file of the module at root. It fails if the file lacks the mutated
// place.
func (m mutation) source(root string) (string, error) {
	source, err := os.ReadFile(filepath.Join(root, m.file))
	if err != nil {
		return "", fmt.Errorf("say anew how to %s: %w", m.name, err)
	}
	if !strings.Contains(string(source), m.old) {
		return "", fmt.Errorf("%s has no %q any more: say anew how to %s", m.file, m.old, m.name)
	}
	return string(source), nil
}

// TestEveryMutationHasItsPlace: every mutation can be applied to the sources. The proof of the
// judge, which takes minutes and root, would find that later.
func TestEveryMutationHasItsPlace(t *testing.T) {
	for _, m := range append(slices.Clone(mutations), leaking) {
		if _, err := m.source(filepath.Join("..", "..")); err != nil {
			t.Error(err)
		}
	}
}
