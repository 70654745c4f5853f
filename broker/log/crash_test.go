package log

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/carillon-mq/carillon/broker/env/crashfs"
	"github.com/carillon-mq/carillon/broker/removal"
)

// model is what one log may and must hold.
type model struct {
	mu      sync.Mutex
	content map[uint64]string // by offset, all that was appended and not yet known to be lost
	end     uint64
	synced  uint64 // acknowledged as such
	start   uint64 // acknowledged
	tried   uint64 // greatest start that was asked for
	batches []uint64
	reset   uint64 // where a reset that is under way is to begin
	compact bool   // older records of a subject may be gone
	removed *removal.Set
}

// forget is what a reset does.
func (m *model) forget(start uint64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	clear(m.content)
	m.end, m.synced, m.start, m.tried, m.reset, m.batches = start, start, start, start, 0, nil
	m.removed = &removal.Set{}
}

// subjectOf is one of a few, by what a record holds.
func subjectOf(text string) []byte { return []byte("s." + text[:min(1, len(text))]) }

func newModel() *model {
	return &model{content: map[uint64]string{}, end: 1, synced: 1, start: 1, tried: 1, removed: &removal.Set{}}
}

// promise notes acknowledgements; order must hold.
type promise struct {
	t    *testing.T
	m    *model
	last uint64
}

func (p *promise) Committed(first, end uint64, err error) {
	if err != nil {
		return
	}
	p.m.mu.Lock()
	defer p.m.mu.Unlock()
	if first < p.last {
		p.t.Errorf("acknowledged %d after %d", first, p.last)
	}
	p.last = end
	p.m.synced = max(p.m.synced, end)
}

// check holds a recovered log to the model, and the model to what was recovered.
func (m *model) check(l *Log) error {
	start, end, durable := l.Offsets()
	rec := l.Recovery()
	if len(rec.Damaged) > 0 || rec.Suspect && rec.Cut == 0 || rec.Cut > 0 && !rec.Suspect {
		return fmt.Errorf("recovery says %+v", rec)
	}
	if m.reset > 0 && start == m.reset && end == m.reset {
		m.forget(m.reset)
	}
	m.reset = 0
	switch {
	case end < m.synced:
		return fmt.Errorf("it ends at %d, and %d was acknowledged (%+v)", end, m.synced, rec)
	case end > m.end:
		return fmt.Errorf("it ends at %d, and only %d was appended", end, m.end)
	case start < m.start || start > m.tried:
		return fmt.Errorf("it starts at %d; acknowledged %d, asked for %d", start, m.start, m.tried)
	case durable != end:
		return fmt.Errorf("what was recovered is durable up to %d of %d", durable, end)
	}
	got, err := readSparse(l, start)
	if err != nil {
		return err
	}
	newer := map[string]bool{}
	for o := end - 1; o >= start; o-- {
		subject := string(subjectOf(m.content[o]))
		text, there := got[o]
		if m.compact && !there && newer[subject] {
			continue
		}
		newer[subject] = true
		if !there && m.removed.Has(o) {
			continue
		}
		if text != m.content[o] {
			return fmt.Errorf("offset %d holds %.40q and should hold %.40q", o, got[o], m.content[o])
		}
	}
	epoch := uint64(0)
	for _, e := range l.Epochs() {
		if e.Epoch <= epoch || e.Start >= end {
			return fmt.Errorf("epochs %v in a log that ends at %d", l.Epochs(), end)
		}
		epoch = e.Epoch
	}
	for o := range m.content {
		if o >= end {
			delete(m.content, o)
		}
	}
	m.end, m.synced, m.start, m.tried = end, end, start, start
	for len(m.batches) > 0 && m.batches[len(m.batches)-1] >= end {
		m.batches = m.batches[:len(m.batches)-1]
	}
	return nil
}

// step does one random thing. It returns an error when the process has crashed in it.
func (m *model) step(t *testing.T, l *Log, rng *rand.Rand, epoch uint64) error {
	switch rng.IntN(24) {
	case 0:
		return l.Flush()
	case 1:
		l.Roll()
	case 2:
		to := m.start + rng.Uint64N(m.end-m.start+1)
		m.tried = max(m.tried, to)
		got, err := l.Trim(to)
		if err != nil {
			return err
		}
		m.start = max(m.start, got)
		m.mu.Lock()
		m.synced = max(m.synced, got)
		m.mu.Unlock()
	case 3:
		if len(m.batches) == 0 {
			return nil
		}
		i := max(len(m.batches)-1-rng.IntN(6), 0)
		to := m.batches[i]
		asked := to
		if to < m.start || m.tried > m.start {
			return nil
		}
		if err := l.Flush(); err != nil {
			return err
		}
		if m.compact { // batches may have become one, and it may have to be emptied
			base, err := l.BatchBase(to)
			if err != nil {
				return err
			}
			to, m.reset = base, base
			for len(m.batches) > 0 && m.batches[len(m.batches)-1] > to {
				m.batches = m.batches[:len(m.batches)-1]
			}
			i = len(m.batches) - 1
		}
		m.mu.Lock()
		m.synced = min(m.synced, to)
		m.mu.Unlock()
		end, _, err := l.TruncateTo(asked, 0)
		if err != nil {
			return err
		}
		if start := l.Start(); m.compact && start == end && start == m.reset {
			m.forget(end)
			return nil
		}
		m.reset = 0
		if end != to {
			return fmt.Errorf("truncated to %d instead of %d", end, to)
		}
		for o := range m.content {
			if o >= to {
				delete(m.content, o)
			}
		}
		m.end, m.batches = to, m.batches[:i]
		before := m.removed // whatever comes at the offsets from there on is another record
		m.removed = &removal.Set{}
		for from, next := range before.Ranges(0, to) {
			m.removed.Add(from, next)
		}
		m.mu.Lock()
		m.synced = to
		m.mu.Unlock()
	case 5:
		_, err := l.Compress(context.Background(), 1)
		return err
	case 6, 7:
		if !m.compact {
			return nil
		}
		m.mu.Lock()
		synced := m.synced
		m.mu.Unlock()
		_, err := l.Compact(context.Background(), CompactOptions{Below: 1 + rng.Uint64N(synced), Subjects: rng.IntN(20)})
		return err
	case 8, 9:
		if !m.compact {
			return nil
		}
		m.mu.Lock()
		synced := m.synced
		m.mu.Unlock()
		from := m.start + rng.Uint64N(synced-min(m.start, synced)+1)
		m.removed.Add(from, min(from+rng.Uint64N(20), synced))
		_, err := l.Expunge(context.Background(), ExpungeOptions{Removed: m.removed, High: func() uint64 { return synced }})
		return err
	case 4:
		if rng.IntN(4) > 0 {
			return l.SetSpec([]byte("more"), epoch)
		}
		// A reset: until it is acknowledged, the log that was and the empty one are both right.
		to := 1 + rng.Uint64N(2*m.end)
		m.reset = to
		if _, err := l.ResetTo(to, 0); err != nil {
			return err
		}
		m.forget(to)
	default:
		n := 1 + rng.IntN(4)
		records := make([]Record, n)
		for i := range records {
			text := fmt.Sprintf("%x ", rng.Uint64()) + strings.Repeat("x", rng.IntN(1<<rng.IntN(11)))
			records[i] = Record{Time: int64(m.end), Subject: subjectOf(text), Data: []byte(text)}
			m.content[m.end+uint64(i)] = text
		}
		a := &Append{Epoch: epoch, Records: records, Durability: Durability(rng.IntN(3))}
		if a.Durability == Synced {
			a.Done = &promise{t: t, m: m}
		}
		first, err := l.Append(a)
		if err != nil {
			for i := range records {
				delete(m.content, m.end+uint64(i))
			}
			return err
		}
		if first != m.end {
			return fmt.Errorf("appended at %d instead of %d", first, m.end)
		}
		m.batches = append(m.batches, first)
		m.end += uint64(n)
	}
	return nil
}

func TestNothingAcknowledgedIsLostInACrash(t *testing.T) {
	for seed := range uint64(400) {
		synctest.Test(t, func(t *testing.T) {
			if err := crashStory(t, seed); err != nil {
				t.Fatalf("seed %d: %v", seed, err)
			}
		})
	}
}

// crashStory is a few lives of a disk with two logs, each of which ends at a random operation. Time
// passes between operations as the seed has it, so that the journal of sync points is written at
// any moment, on a fast machine as on a slow one.
func crashStory(t *testing.T, seed uint64) error {
	rng := rand.New(rand.NewPCG(seed, 7))
	fsys := crashfs.New()
	if rng.IntN(4) == 0 {
		fsys.WithoutSyncAll()
	}
	opts := Options{SegmentSmallest: 4 << 10, SegmentLargest: int64(4<<10) << rng.IntN(3), TailBytes: 1 + rng.Int64N(16<<10), SyncAllFrom: 1 + rng.IntN(3)}
	ids := []Identity{{Topic: "a"}, {Topic: "b", Shard: 3, Part: "state"}}
	models := []*model{newModel(), newModel()}
	models[0].compact = true
	for life := range uint64(4) {
		if life > 0 {
			for range rng.IntN(3) { // lives that end while recovering
				fsys.StopAfter(rng.IntN(8))
				if d, err := OpenDisk(fsys, "data", opts); err == nil {
					for _, id := range ids {
						_, _ = d.Open(id, 1, 1, nil)
					}
					_ = d.Close()
				}
				fsys = fsys.Crash(rng)
			}
		}
		d, err := OpenDisk(fsys, "data", opts)
		if err != nil {
			return err
		}
		t.Cleanup(func() { _ = d.Close() }) // of a life that fails the story
		logs := make([]*Log, len(ids))
		for i, id := range ids {
			if logs[i], err = d.Open(id, 1, 1, nil); err != nil {
				return fmt.Errorf("life %d: %w", life, err)
			}
			if err := models[i].check(logs[i]); err != nil {
				return fmt.Errorf("life %d, log %s: %w", life, id.Name(), err)
			}
		}
		fsys.StopAfter(rng.IntN(120))
		for range 200 {
			if rng.IntN(8) == 0 {
				time.Sleep([]time.Duration{time.Millisecond, pointsEvery, closingIdle}[rng.IntN(3)])
			}
			i := rng.IntN(len(logs))
			if err := models[i].step(t, logs[i], rng, life+1); err != nil {
				if !errors.Is(err, crashfs.ErrCrashed) {
					return fmt.Errorf("life %d, log %s: %w", life, ids[i].Name(), err)
				}
				break
			}
		}
		if rng.IntN(4) == 0 {
			_ = d.Close()
			fsys = fsys.Crash(rng)
			continue
		}
		fsys = fsys.Crash(rng) // what is still under way finds the process dead
		_ = d.Close()
	}
	return nil
}
