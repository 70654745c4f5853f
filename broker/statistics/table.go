package statistics

import (
	"maps"
	"slices"
	"sync"
)

// Segment is one version of a segment of a log.
type Segment struct {
	Log                          string // its directory
	Secret                       uint64 // of the log; no other one in that directory has the same
	Base, Generation, End, Epoch uint64
	Bytes                        uint64 // of its file
}

// key is what an entry is about.
type key struct {
	Segment
	path string
}

// entry is what is known of a path in a segment.
type entry struct {
	state   state
	builder *Builder // of the scan that collects, while it is between two reads
	values  []uint64 // ascending
	latest  int64
}

type state uint8

const (
	unseen     state = iota // the file says nothing of it
	seen                    // a scan came by
	collecting              // another one collects the values
	known
	useless // there are too many, or a record has none, or was not collected
)

// Table is the statistics of a broker.
type Table struct {
	mu    sync.Mutex
	of    map[key]*entry
	order []key // of their making
	bytes int

	stored, dropped, loaded, unusable uint64
}

// Has reports whether a scan came by a segment for a path, or its file was looked at.
func (t *Table) Has(s Segment, path string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.of[key{s, path}] != nil
}

// Excludes reports whether no record of a segment has one of some values there, and all have one.
// latest is the greatest time of its records.
func (t *Table) Excludes(s Segment, path string, hashes []uint64) (latest int64, ok bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	e := t.of[key{s, path}]
	if e == nil || e.state != known {
		return 0, false
	}
	for _, h := range hashes {
		if _, found := slices.BinarySearch(e.values, h); found {
			return 0, false
		}
	}
	return e.latest, true
}

// Begin returns a Builder for a scan that begins a segment, or nil if it is to collect nothing.
func (t *Table) Begin(s Segment, path string) *Builder {
	t.mu.Lock()
	defer t.mu.Unlock()
	k := key{s, path}
	e := t.of[k]
	switch {
	case e == nil || e.state == unseen:
		if e == nil {
			t.add(k)
		}
		t.of[k].state = seen
		return nil
	case e.state == known || e.state == useless:
		return nil
	}
	// Of several scans at the same time the last one that began counts.
	t.change(k, func(e *entry) { e.state, e.builder = collecting, nil })
	return &Builder{key: k, next: s.Base, values: map[uint64]struct{}{}}
}

// Resume returns the Builder of a scan that goes on within a segment, if it was kept there.
func (t *Table) Resume(s Segment, path string, at uint64) (b *Builder) {
	t.mu.Lock()
	defer t.mu.Unlock()
	k := key{s, path}
	if e := t.of[k]; e != nil && e.builder != nil && e.builder.next == at {
		t.change(k, func(e *entry) { b, e.builder = e.builder, nil })
	}
	return b
}

// Keep takes a Builder back that has collected all records of its segment below an offset. It
// reports whether the values of the segment are known now.
func (t *Table) Keep(b *Builder, next uint64) (complete bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if e := t.of[b.key]; e == nil || e.state != collecting {
		return false // it was forgotten, or another scan has ended
	}
	t.change(b.key, func(e *entry) {
		switch {
		case b.useless:
			e.state, e.builder = useless, nil
		case next < b.key.End:
			b.next, e.builder = next, b
		case b.added != b.key.End-b.key.Base: // some were removed meanwhile
			e.state, e.builder = useless, nil
		default:
			e.state, e.builder, e.latest = known, nil, b.latest
			e.values = slices.Sorted(maps.Keys(b.values))
			complete = true
		}
	})
	return complete
}

// add adds an entry. mu is held.
func (t *Table) add(k key) {
	if t.of == nil {
		t.of = map[key]*entry{}
	}
	t.of[k] = &entry{}
	t.order = append(t.order, k)
	t.bytes += t.size(k)
	t.shrink(k)
}

// change changes an entry that there is. mu is held.
func (t *Table) change(k key, f func(e *entry)) {
	t.bytes -= t.size(k)
	f(t.of[k])
	t.bytes += t.size(k)
	t.shrink(k)
}

// size is about what an entry takes in memory. mu is held.
func (t *Table) size(k key) int {
	e := t.of[k]
	n := entryBytes + len(k.path) + len(k.Log) + 8*len(e.values)
	if e.builder != nil {
		n += builtBytes * len(e.builder.values)
	}
	return n
}

// shrink forgets the oldest entries, except one, until the others fit. mu is held.
func (t *Table) shrink(but key) {
	for t.bytes > maxBytes && len(t.order) > 1 {
		oldest := t.order[0]
		t.order = t.order[1:]
		if oldest == but {
			t.order = append(t.order, oldest)
			continue
		}
		t.bytes -= t.size(oldest)
		delete(t.of, oldest)
	}
}

// Builder collects the values of a segment's records. It is taken and kept between the reads of a
// scan.
type Builder struct {
	key     key
	next    uint64 // all records before it were collected
	added   uint64 // records
	values  map[uint64]struct{}
	last    uint64 // value; neighbours often have the same one
	latest  int64
	useless bool
}

// Segment is what the values are collected of.
func (b *Builder) Segment() Segment { return b.key.Segment }

// End is the end of the segment.
func (b *Builder) End() uint64 { return b.key.End }

// Collects reports whether a value of each record is still wanted.
func (b *Builder) Collects() bool { return !b.useless }

// Add adds the next record: the hash of its value, unless it has none, and its time.
func (b *Builder) Add(hash uint64, has bool, time int64) {
	b.latest = max(b.latest, time)
	b.added++
	if !has {
		b.useless, b.values = true, nil
	}
	if b.useless {
		return
	}
	if hash == b.last && len(b.values) > 0 {
		return
	}
	b.last = hash
	if _, there := b.values[hash]; there {
		return
	}
	if len(b.values) == maxValues {
		b.useless, b.values = true, nil
		return
	}
	b.values[hash] = struct{}{}
}
