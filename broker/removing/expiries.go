package removing

import (
	"cmp"
	"iter"
	"slices"

	"github.com/carillon-mq/carillon/broker/removal"
)

// expiry is when the record at an offset of the data log is to be removed.
type expiry struct {
	at     int64
	offset uint64
	end    uint64 // while it is fresh: of the batch that carries it
	moved  bool   // likewise: the record is in an earlier batch
}

// expiries are those of a Keeper, whose mu guards them. A record may be removed before it expires,
// by others: its expiry is forgotten later.
type expiries struct {
	fresh   []expiry // of batches that are not on all in-sync replicas yet, in the order of the log
	last    int      // how many the last batch has brought
	untaken []expiry // of the others: perhaps not in the state log
	heap    []expiry // of the others: by time
	due     []expiry // no longer in heap, and perhaps not removed yet; by offset
	swept   int      // how many heap had when those were last forgotten that are removed
	// moved is when records expire for which that was changed after their batch, but for fresh. Their
	// former expiries are passed. moving is that of fresh: the last one, if several batches move one.
	moved, moving map[uint64]int64
}

// len returns how many there are.
func (x *expiries) len() int { return len(x.fresh) + len(x.heap) + len(x.due) }

// add adds those of a batch that is going to be appended, from base up to and without end.
func (x *expiries) add(of []removal.Expiry, base, end uint64) {
	x.last = len(of)
	for _, e := range of {
		if x.fresh = append(x.fresh, expiry{e.At, e.Offset, end, e.Offset < base}); e.Offset < base {
			note(&x.moving, e.Offset, e.At)
		}
	}
}

// note sets an element of a map that may be nil.
func note(to *map[uint64]int64, offset uint64, at int64) {
	if *to == nil {
		*to = map[uint64]int64{}
	}
	(*to)[offset] = at
}

// dueAt returns since when a record is due; 0: it isn't, or another time is on its way.
func (x *expiries) dueAt(offset uint64) int64 {
	i, found := slices.BinarySearchFunc(x.due, offset, func(e expiry, offset uint64) int { return cmp.Compare(e.offset, offset) })
	if _, moves := x.moving[offset]; moves || !found || x.stale(x.due[i]) {
		return 0
	}
	return x.due[i].at
}

// stale reports whether an expiry doesn't hold any more.
func (x *expiries) stale(e expiry) bool {
	at, moved := x.moved[e.offset]
	return moved && at != e.at
}

// undo takes back the last add: the batch was not appended.
func (x *expiries) undo() {
	left := len(x.fresh) - x.last
	undone := x.fresh[left:]
	x.fresh, x.last = x.fresh[:left], 0
	for _, e := range undone {
		if e.moved {
			x.moves(e.offset)
		}
	}
}

// moves sets moving for a record after fresh lost an element.
func (x *expiries) moves(offset uint64) {
	delete(x.moving, offset)
	for _, e := range x.fresh {
		if e.moved && e.offset == offset {
			note(&x.moving, offset, e.at)
		}
	}
}

// next returns the last offset of the first batch with fresh ones; 0: there is none.
func (x *expiries) next() uint64 {
	if len(x.fresh) == 0 {
		return 0
	}
	return x.fresh[0].end - 1
}

// commit notes that what is before an offset is on all in-sync replicas.
func (x *expiries) commit(end uint64, gone func(offset uint64) bool) {
	n := 0
	for ; n < len(x.fresh) && x.fresh[n].end <= end; n++ {
		e := x.fresh[n]
		if e.moved {
			note(&x.moved, e.offset, e.at)
			if x.moving[e.offset] == e.at { // otherwise a later batch moves it again
				delete(x.moving, e.offset)
			}
		}
		x.push(expiry{at: e.at, offset: e.offset})
	}
	x.untaken = append(x.untaken, x.fresh[:n]...)
	x.fresh = x.fresh[:copy(x.fresh, x.fresh[n:])]
	x.last = min(x.last, len(x.fresh))
	if len(x.heap) >= min(max(sweepFrom, 2*x.swept), MaxExpiries) {
		x.sweep(gone)
	}
}

// sweep forgets records that are gone.
func (x *expiries) sweep(gone func(offset uint64) bool) {
	x.heap = slices.DeleteFunc(x.heap, func(e expiry) bool { return x.stale(e) || gone(e.offset) })
	for offset := range x.moved {
		if gone(offset) {
			delete(x.moved, offset)
		}
	}
	for i := len(x.heap)/2 - 1; i >= 0; i-- {
		x.down(i)
	}
	x.swept = len(x.heap)
}

// load replaces all by what the logs say. untaken is what the state log may lack of it.
func (x *expiries) load(all, untaken []removal.Expiry, gone func(offset uint64) bool) {
	*x = expiries{heap: make([]expiry, 0, len(all))}
	for _, e := range all {
		x.heap = append(x.heap, expiry{at: e.At, offset: e.Offset})
	}
	slices.SortFunc(x.heap, func(a, b expiry) int { // the last one holds, and expiries only move on
		return cmp.Or(cmp.Compare(a.offset, b.offset), cmp.Compare(b.at, a.at))
	})
	x.heap = slices.CompactFunc(x.heap, func(a, b expiry) bool { return a.offset == b.offset })
	x.sweep(gone)
	for _, e := range untaken {
		x.untaken = append(x.untaken, expiry{at: e.At, offset: e.Offset})
	}
}

// expire returns the offsets of records that have expired by a time and are not gone, in order: at
// most some.
func (x *expiries) expire(now int64, most int, gone func(offset uint64) bool) []uint64 {
	x.due = slices.DeleteFunc(x.due, func(e expiry) bool { return x.over(e, gone) })
	for len(x.due) < most && len(x.heap) > 0 && x.heap[0].at <= now {
		if e := x.pop(); !x.over(e, gone) {
			x.due = append(x.due, e)
		}
	}
	slices.SortFunc(x.due, func(a, b expiry) int { return cmp.Compare(a.offset, b.offset) })
	offsets := make([]uint64, 0, len(x.due))
	for _, e := range x.due {
		if e.at <= now { // the time may have been corrected
			offsets = append(offsets, e.offset)
		}
	}
	return offsets
}

// over reports whether a record is gone, or expires at another time.
func (x *expiries) over(e expiry, gone func(offset uint64) bool) bool {
	if x.stale(e) {
		return true
	}
	if gone(e.offset) {
		delete(x.moved, e.offset)
		return true
	}
	return false
}

// kept returns those that are on all in-sync replicas, in the order of the log.
func (x *expiries) kept() []expiry {
	all := slices.DeleteFunc(append(slices.Clone(x.heap), x.due...), x.stale)
	slices.SortFunc(all, func(a, b expiry) int { return cmp.Compare(a.offset, b.offset) })
	return all
}

// push adds one to heap.
func (x *expiries) push(e expiry) {
	x.heap = append(x.heap, e)
	for i := len(x.heap) - 1; i > 0; {
		parent := (i - 1) / 2
		if x.heap[parent].at <= x.heap[i].at {
			return
		}
		x.heap[parent], x.heap[i] = x.heap[i], x.heap[parent]
		i = parent
	}
}

// pop takes the earliest one out of heap.
func (x *expiries) pop() expiry {
	e, last := x.heap[0], len(x.heap)-1
	x.heap[0] = x.heap[last]
	x.heap = x.heap[:last]
	x.down(0)
	return e
}

// down moves one of heap to its place among those below it.
func (x *expiries) down(i int) {
	for {
		least := i
		for child := 2*i + 1; child <= 2*i+2 && child < len(x.heap); child++ {
			if x.heap[child].at < x.heap[least].at {
				least = child
			}
		}
		if least == i {
			return
		}
		x.heap[i], x.heap[least] = x.heap[least], x.heap[i]
		i = least
	}
}

// gone reports whether the record at an offset is removed, or the log begins behind it.
func (k *Keeper) gone(offset uint64) bool { return offset < k.Data.Start() || k.set.Has(offset) }

// expiryItems yields expiries as the state log has them, but for records that are gone. Each is
// valid until the next one.
func (k *Keeper) expiryItems(all []expiry) iter.Seq[[]byte] {
	return removal.ExpiryItems(func(yield func(removal.Expiry) bool) {
		for _, e := range all {
			epoch, _ := k.Data.EpochAt(e.offset)
			if epoch > 0 && !k.gone(e.offset) && !yield(removal.Expiry{Epoch: epoch, Offset: e.offset, At: e.at}) {
				return
			}
		}
	})
}

// Due returns the offsets of records that have expired by a time, in order: at most some. They are
// returned again until they are removed.
func (k *Keeper) Due(now int64, most int) []uint64 {
	k.mu.Lock()
	defer k.mu.Unlock()
	offsets := k.expiries.expire(now, most, k.gone)
	if k.expiries.len() >= MaxExpiries && k.swept != k.set.Version() {
		k.swept = k.set.Version()
		k.expiries.sweep(k.gone)
	}
	k.expiring.Store(int64(k.expiries.len()))
	return offsets
}

// DueAt returns since when a record that Due has returned has been due; 0: it is not due any more.
func (k *Keeper) DueAt(offset uint64) int64 {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.gone(offset) {
		return 0
	}
	return k.expiries.dueAt(offset)
}

// MayExpire reports whether one more record that expires may be appended.
func (k *Keeper) MayExpire() bool { return k.expiring.Load() < MaxExpiries }
