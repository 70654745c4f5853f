package world

import (
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// decayShare is the percentage of worlds in which disks decay at the end. Each takes minutes of
// simulated time.
const decayShare = 4

// scrubbing is the time within which a broker that died has scrubbed all of its segments. Scrubbing
// begins a minute after the start, and reaches logs that were opened late a minute later.
const scrubbing = 2*time.Minute + 10*time.Second

// decay judges that brokers find damage at rest by themselves, in a healed world whose clients have
// stopped. All brokers are killed and scrub their disks. Then bits flip in a sealed segment of one
// replica after the other, each while its broker is down. The damage on one replica must be
// repaired before the next one is damaged, or all replicas lose the records.
func (w *world) decay() {
	d := w.kept()
	if d == nil {
		return
	}
	w.crash(w.machines, false)
	w.scrubAll()
	for _, id := range w.replicas(d, 0) {
		m := w.machine(id)
		if m.life != nil {
			m.life.kill()
		}
		w.after(time.Millisecond, m.id+"'s disk decays", func() { m.decay(d) })
		w.again(m, time.Second)
		w.scrubAll()
	}
}

// scrubAll waits until all brokers have scrubbed their disks, and all shards are whole.
func (w *world) scrubAll() {
	w.run(w.now()+scrubbing, nil)
	w.waitWhole(w.now() + convergeTime)
}

// kept returns a Topic that deletes nothing within the time of a world, or nil. It returns nil in a
// world in which bits flipped before, since some flips may be unnoticed.
func (w *world) kept() *declared {
	i := slices.IndexFunc(w.topics, func(d *declared) bool { return !d.retained() && d.kept() == 0 && !d.removes() })
	if i < 0 || w.broken != nil || w.flipped {
		return nil
	}
	return w.topics[i]
}

// replicas returns the ids of the brokers with a replica of a shard.
func (w *world) replicas(d *declared, n int) []string {
	s := w.shard(d, n)
	if s == nil {
		return nil
	}
	return s.Replicas
}

// decay flips bits in the middle half of the oldest segment of a Topic's first shard, if that
// segment is sealed: about one bit per batch, so that all replicas lose some of the same records.
// The footer stays intact, since opening the log reads it.
func (m *machine) decay(d *declared) {
	dir := filepath.Join(dataDir, "shards", d.id+"-0")
	files, _ := m.fs.List(dir)
	files = slices.DeleteFunc(files, func(file string) bool { return !strings.HasSuffix(file, ".log") })
	if len(files) < 2 {
		m.w.notef("%s has no sealed segment in %s", m.id, dir)
		return
	}
	path := filepath.Join(dir, slices.Min(files)) // their names begin with their first offsets
	info, err := m.fs.Stat(path)
	if err != nil || info.Size == 0 {
		return
	}
	m.w.notef("%s has bits flipped in %s", m.id, path)
	for at := info.Size / 4; at < info.Size*3/4; at += 256 {
		_ = m.fs.Flip(path, 8*at)
	}
}
