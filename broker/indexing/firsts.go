package indexing

import (
	"context"
	"slices"
	"time"
)

// firsts are the oldest records of subjects, of a Lasts, for limits per subject. Each subject is
// known by itself, from when it was looked for. Its owner's mu guards it.
type firsts struct {
	known  map[lastKey]*oldest
	held   int    // bytes
	purged uint64 // how often records were removed by others: Purged

	doomed []doomed
	swept  int      // how many of doomed were left when those were last forgotten that are removed
	floor  uint64   // records before it were removed by a later one: RemovedAll
	before struct { // as of the last batch that was appended
		doomed int
		floor  uint64
	}
}

// oldest are the records of one subject.
type oldest struct {
	offsets []uint64 // in order
	more    uint64   // newer ones that are not in offsets: at least so many
	looking bool     // offsets are those from below on only; the others are being found
	below   uint64
	purged  uint64
}

// doomed is a record that a batch removes which is not on all in-sync replicas yet.
type doomed struct {
	key    lastKey
	offset uint64
}

// FindFirsts returns the offsets of the oldest records of a subject below an offset, in order, at
// most some, and how many it has. If it is not patient it waits for no index that is being made.
type FindFirsts func(ctx context.Context, subject string, below uint64, most int, patient bool) (offsets []uint64, count uint64, err error)

func (f *firsts) reset() {
	f.known, f.held = map[lastKey]*oldest{}, 0
}

// appended notes that the batch was appended that removes records. removed reports whether a record
// is removed, or the log begins behind it.
func (f *firsts) appended(removed func(offset uint64) bool) {
	if len(f.doomed) > max(mostDoomed, 2*f.swept) {
		f.doomed = slices.DeleteFunc(f.doomed, func(d doomed) bool { return removed(d.offset) })
		f.swept = len(f.doomed)
	}
	f.before.doomed, f.before.floor = len(f.doomed), f.floor
}

// undo notes that the batch was not appended.
func (f *firsts) undo() { f.doomed, f.floor = f.doomed[:f.before.doomed], f.before.floor }

// note adds records.
func (f *firsts) note(key lastKey, from, last uint64) {
	o := f.known[key]
	if o == nil {
		return
	}
	for ; from <= last && o.more == 0 && len(o.offsets) < MostOldest; from++ {
		o.offsets = append(o.offsets, from)
		f.held += 8
	}
	o.more += last + 1 - from
}

// forget forgets a subject.
func (f *firsts) forget(key lastKey) {
	if o := f.known[key]; o != nil {
		f.held -= 8*len(o.offsets) + oldestBytes
		delete(f.known, key)
	}
}

// keep remembers a subject.
func (f *firsts) keep(key lastKey, o *oldest) {
	f.forget(key)
	f.known[key] = o
	f.held += 8*len(o.offsets) + oldestBytes
}

// look begins to look for a subject, below the end of the log, unless it has begun. It returns
// below which offset.
func (f *firsts) look(key lastKey, end uint64) (below uint64) {
	if f.looking(key) {
		return f.known[key].below
	}
	f.keep(key, &oldest{looking: true, below: end, purged: f.purged})
	return end
}

// looking reports whether a subject is being looked for.
func (f *firsts) looking(key lastKey) bool {
	o := f.known[key]
	return o != nil && o.looking
}

// Firsts returns the offsets of the oldest records of a subject, in order, with how many newer ones
// it has. wait and the error are as with Last. There may be more newer ones, if more is not 0. The
// result is valid until the next call.
func (x *Lasts) Firsts(subject []byte, start uint64) (offsets []uint64, more, wait uint64, err error) {
	key := lastKeyOf(subject)
	x.asked.Store(time.Now().UnixNano())
	x.mu.Lock()
	defer x.mu.Unlock()
	f := &x.firsts
	o := f.known[key]
	if o == nil && x.complete {
		if last, ok := x.known(key); ok && last == 0 {
			o = &oldest{purged: f.purged}
			f.keep(key, o)
		}
	}
	if o != nil && o.more > 0 && o.purged != f.purged {
		f.forget(key) // fewer may be left than were counted
		o = nil
	}
	if o != nil && !o.looking {
		x.drop(o, start)
		if len(o.offsets) > 0 && x.rolls(subject, o.offsets[0]) {
			return nil, 0, Rolling, nil
		}
		if len(o.offsets) > 0 || o.more == 0 {
			return o.offsets, o.more, 0, nil
		}
	}
	wait, err = x.await(wantedKey{key, true, false}, subject)
	return nil, 0, wait, err
}

// drop drops records that are gone: below the start of the log, or removed by others. mu is held.
func (x *Lasts) drop(o *oldest, start uint64) {
	before := len(o.offsets)
	gone := func(offset uint64) bool { return offset < max(start, x.firsts.floor) || x.isRemoved(offset) }
	if o.purged != x.firsts.purged {
		o.purged = x.firsts.purged
		o.offsets = slices.DeleteFunc(o.offsets, gone)
	}
	n := 0
	for n < len(o.offsets) && gone(o.offsets[n]) {
		n++
	}
	o.offsets = o.offsets[n:]
	x.firsts.held -= 8 * (before - len(o.offsets))
}

// Removed notes that a batch removes the oldest records of a subject, which Firsts or Last has
// returned.
func (x *Lasts) Removed(subject []byte, offsets []uint64) {
	if len(offsets) == 0 || x.rests.Load() {
		return
	}
	key := lastKeyOf(subject)
	x.mu.Lock()
	defer x.mu.Unlock()
	f := &x.firsts
	x.trial.touch(x, key)
	for _, offset := range offsets {
		f.doomed = append(f.doomed, doomed{key, offset})
	}
	o := f.known[key]
	switch n := len(offsets); {
	case o == nil:
	case o.looking || len(o.offsets) < n || o.offsets[n-1] != offsets[n-1]:
		f.forget(key)
	default:
		o.offsets = o.offsets[n:]
		f.held -= 8 * n
	}
}

// RemovedAll notes that a record at an offset removes all before it.
func (x *Lasts) RemovedAll(offset uint64) {
	if x.rests.Load() {
		return
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	x.trial.touchAll(x)
	x.firsts.reset()
	x.firsts.floor = offset
}

// Purged notes that records were removed by others than publishes.
func (x *Lasts) Purged() {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.firsts.purged++
}

// findOldest finds the oldest records of the first subject that is queued, below an offset.
func (x *Lasts) findOldest(w lastWanted, below uint64, patient bool) {
	key := w.key.lastKey
	x.mu.Lock()
	doomed := x.doomed(key)
	x.mu.Unlock()
	slices.Sort(doomed)
	ctx, cancel := context.WithTimeout(context.Background(), findTime)
	defer cancel()
	offsets, count, err := x.findFirsts(ctx, w.subject, below, MostOldest, patient)
	x.mu.Lock()
	defer x.mu.Unlock()
	o := x.firsts.known[key]
	switch {
	case err != nil:
		x.firsts.forget(key)
		x.notFound(err)
		return
	case o == nil || !o.looking || o.below != below:
		return // it was forgotten meanwhile, and is looked for again
	}
	whole := count <= uint64(len(offsets))
	floor := x.firsts.floor
	found := &oldest{purged: o.purged, offsets: slices.DeleteFunc(offsets, func(offset uint64) bool {
		_, goes := slices.BinarySearch(doomed, offset)
		return goes || offset < floor || x.isRemoved(offset)
	})}
	if whole {
		found.offsets = append(found.offsets, o.offsets...)
	} else { // some of those that are doomed may have been counted
		found.more = count - uint64(len(offsets)) - min(uint64(len(doomed)), count-uint64(len(offsets))) + uint64(len(o.offsets)) + o.more
	}
	x.firsts.keep(key, found)
	x.count()
	x.answered(1)
}

// doomed returns the records of a subject that batches remove. mu is held.
func (x *Lasts) doomed(key lastKey) (offsets []uint64) {
	for _, d := range x.firsts.doomed {
		if d.key == key {
			offsets = append(offsets, d.offset)
		}
	}
	return offsets
}
