package indexing

import (
	"sync"
	"sync/atomic"
	"time"
)

// lastsMemory bounds how many last records all shards of a disk remember together. Beyond the bound
// a shard that has more than its equal share forgets all of them: first one that no condition asks
// for, and of several the one that has the most.
type lastsMemory struct {
	held atomic.Int64 // records, also of loads
	most int64

	mu  sync.Mutex // after Lasts.mu
	all map[*Lasts]struct{}
}

func (m *lastsMemory) add(x *Lasts) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.all[x] = struct{}{}
}

// remove removes a Lasts, which remembers nothing any more.
func (m *lastsMemory) remove(x *Lasts) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.all, x)
	m.held.Add(-x.share.Swap(0))
}

// room reports whether a shard may remember so many records: there is room for all, or they are no
// more than its share.
func (m *lastsMemory) room(records int) bool {
	if m.held.Load() <= m.most {
		return true
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	return int64(records) <= m.most/int64(max(len(m.all), 1))
}

// limit has shards forget until all together remember no more than the bound. The caller holds no
// lock of a Lasts.
func (m *lastsMemory) limit() {
	for m.held.Load() > m.most {
		x := m.largest()
		if x == nil || !x.release() {
			return
		}
	}
}

// largest returns the shard that is to forget, or nil if none has more than its share.
func (m *lastsMemory) largest() (largest *Lasts) {
	used := time.Now().Add(-evictTime).UnixNano()
	m.mu.Lock()
	defer m.mu.Unlock()
	var most int64
	idle := false
	for x := range m.all {
		n, unused := x.share.Load(), x.asked.Load() < used
		if n*int64(len(m.all)) >= m.most && (unused && !idle || unused == idle && n > most) {
			largest, most, idle = x, n, unused
		}
	}
	return largest
}
