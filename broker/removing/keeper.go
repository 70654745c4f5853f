package removing

import (
	"iter"
	"math"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/carillon-mq/carillon/broker/log"
	"github.com/carillon-mq/carillon/broker/removal"
)

// Keeper has the removed records of a shard that is led here. Its methods may be called
// concurrently. Init precedes all others.
type Keeper struct {
	Config
	set    removal.Set
	bytes  atomic.Uint64 // of Items that were appended to the state log
	taken  atomic.Uint64 // see Taken
	size   atomic.Int64  // of messages since Items were taken
	due    atomic.Uint64 // end of the first batch in carried; 0: none
	open   atomic.Uint64 // its first offset; 0: none
	marked atomic.Bool   // batches may remove records (K1)
	unsure atomic.Bool   // limit is not known because of records that are not appended yet

	fresh    atomic.Uint64 // the first offset that expires and is not on all in-sync replicas; 0: none
	expiring atomic.Int64  // how many records are going to expire

	sourced atomic.Uint64 // the offset of the first progress that is not on all in-sync replicas; 0: none

	writing sync.Mutex // held while a Mark is made and appended, so that the last one has limit

	mu       sync.Mutex
	expiries expiries
	progress progress
	swept    uint64          // version of set when Due last forgot expiries
	pending  removal.Pending // in the state log, and not in the set yet
	carried  removal.Carried // in the data log, and not in the set yet
	untaken  []removal.Span  // in the set, and perhaps not in the state log
	carries  bool            // the last batch has something in carried
	passed   uint64          // what batches before it have removed is in the set
	limit    uint64          // how many records a subject has at most; 0: that is not known
	kept     uint64          // the limit of the last Raise
	turn     uint64          // rises when publishes may keep more than before
	await    struct {        // of Limiting: with limit and turn, the records before until count
		limit, turn, until uint64
	}
	coming  uint64 // end of the last batch, if a record in it may be beyond its limit; 0: none
	marks   bool   // the state log may have a Mark, or one is to be appended
	marking bool
	taking  bool // untaken is being written
}

// Config is what a Keeper needs.
type Config struct {
	State, Data *log.Log
	// Append appends to the state log. Its Done is called when the append is on all in-sync
	// replicas.
	Append func(*log.Append) (first uint64, err error)
	// Changed is called when the set has got more, with no lock held.
	Changed func()
	// Now returns the time of a record.
	Now func() int64
}

// spanBytes is what a Span takes in an Item, about.
const spanBytes = 4

// Init loads the removed records. Its errors are those of Load.
func (k *Keeper) Init(c Config) error {
	k.Config = c
	_, stateEnd, _ := c.State.Offsets()
	_, end, _ := c.Data.Offsets()
	loaded, err := Load(c.State, c.Data, stateEnd, end, true, &k.set)
	k.marked.Store(loaded.Marked)
	k.marks = loaded.Marked
	k.taken.Store(loaded.Taken)
	k.passed, k.limit, k.untaken = loaded.Taken, loaded.Limit, loaded.Carried
	if first := c.Data.Start(); first == end {
		k.limit = 1 // there are no records
	}
	k.expiries.load(loaded.Expiries, loaded.CarriedExpiries, k.gone)
	k.expiring.Store(int64(k.expiries.len()))
	k.progress.load(c.Data, loaded.Progress, loaded.ProgressCarried)
	k.size.Store(takenData) // the next leader reads no more than this one
	return err
}

// Set returns the removed records. A removal is in it when it is on all in-sync replicas.
func (k *Keeper) Set() *removal.Set { return &k.set }

// Taken returns the offset of the data log below which the state log has what batches have removed.
func (k *Keeper) Taken() uint64 { return k.taken.Load() }

// Bytes returns the size of the Items that were appended to the state log.
func (k *Keeper) Bytes() uint64 { return k.bytes.Load() }

// Spans returns offsets as spans of records of the data log, by epoch. Neighbours share a span.
func (k *Keeper) Spans(offsets []uint64) (spans []removal.Span) {
	for len(offsets) > 0 {
		n := 1
		for n < len(offsets) && offsets[n] == offsets[0]+uint64(n) {
			n++
		}
		spans = slices.AppendSeq(spans, removal.Split(offsets[0], offsets[0]+uint64(n), k.Data.EpochAt))
		offsets = offsets[n:]
	}
	return spans
}

// stateRemoval is an Item in the state log that is not in the set yet.
type stateRemoval struct {
	removal.Removal
	keeper *Keeper
	done   func(error)
}

// Remove removes the records of spans from start up to and without end, at most removal.ItemSpans
// spans. done is called, perhaps before Remove returns, when they are in the set; an error says
// that this is unknown, and removing them again is harmless. If Remove returns an error, done is
// not called, and nothing was removed.
func (k *Keeper) Remove(spans []removal.Span, start, end uint64, durability log.Durability, done func(error)) error {
	r := &stateRemoval{keeper: k, done: done}
	for _, span := range spans {
		span.From, span.Next = max(span.From, start), min(span.Next, end)
		if part, ok := span.Within(k.Data); ok {
			r.Spans = append(r.Spans, part)
		}
	}
	if len(r.Spans) == 0 {
		done(nil)
		return nil
	}
	k.mu.Lock()
	k.pending.Add(&r.Removal) // before it is in the log: K3
	k.mu.Unlock()
	item := removal.AppendItem(nil, r.Spans...)
	_, err := k.Append(&log.Append{
		Records:    []log.Record{{Time: k.Now(), Subject: []byte(removal.Subject), Data: item}},
		Durability: durability, Done: r,
	})
	if err != nil {
		k.mu.Lock()
		k.pending.Done(&r.Removal)
		k.mu.Unlock()
		return err
	}
	k.bytes.Add(uint64(len(item)))
	return nil
}

// Committed implements log.Completion. Records are in the set before they are out of pending, so
// that Snapshot misses none.
func (r *stateRemoval) Committed(_, _ uint64, err error) {
	k := r.keeper
	if err == nil {
		for _, span := range r.Spans {
			k.set.Add(span.From, span.Next)
		}
	}
	k.mu.Lock()
	k.pending.Done(&r.Removal)
	k.mu.Unlock()
	if err == nil {
		k.Changed()
	}
	r.done(err)
}

// Limiting returns the limit of records per subject beyond which there may be some, if that is the
// limit that holds and readers see the records before high; 0: there are none, or not all records
// that may be beyond it are readable yet. turn is for Limited.
func (k *Keeper) Limiting(limit, high uint64) (unlimited, turn uint64) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if limit == 0 || k.limit > 0 && k.limit <= limit {
		return 0, k.turn
	}
	if a := &k.await; a.until == 0 || a.limit != limit || a.turn != k.turn {
		a.limit, a.turn = limit, k.turn
		_, a.until, _ = k.Data.Offsets()
		a.until = max(a.until, k.coming)
	}
	if high < k.await.until {
		return 0, k.turn
	}
	return limit, k.turn
}

// Limited notes that no subject has more records than a limit, as of a turn, and writes that to the
// state log.
func (k *Keeper) Limited(limit, turn uint64, durability log.Durability) error {
	k.mu.Lock()
	if k.turn != turn {
		k.mu.Unlock()
		return nil
	}
	k.limit = limit
	below := k.known()
	k.mu.Unlock()
	return k.takeOver(carriage{}, below, durability, func(error) {})
}

// known returns an offset below which the state log has what batches have removed. Without a Mark
// no batch has removed anything (K1). mu is held.
func (k *Keeper) known() uint64 {
	if k.marks = true; k.marked.Load() {
		return k.taken.Load()
	}
	_, end, _ := k.Data.Offsets()
	return end
}

// Raise notes the limit that publishes keep to from now on; 0: there is none, or the next batch
// can't keep to it. It concerns Limiting only if it is above the one before.
func (k *Keeper) Raise(limit uint64, durability log.Durability) {
	k.mu.Lock()
	raised := k.limit > 0 && (limit == 0 || limit > k.limit)
	if raised {
		k.limit = limit
	}
	if limit == 0 || limit != k.kept {
		k.turn++
	}
	k.kept = limit
	k.unsure.Store(limit == 0)
	write, below := raised && k.marks, k.taken.Load() // without a Mark the state log has no limit
	k.mu.Unlock()
	if write {
		_ = k.takeOver(carriage{}, below, durability, func(error) {})
	}
}

// Marked reports whether batches may remove records. If not, Mark is to be called first.
func (k *Keeper) Marked() bool { return k.marked.Load() }

// Mark writes a Mark to the state log if there is none. No record before below has a removal in its
// batch, and all are on all in-sync replicas. done is called, perhaps before Mark returns, when the
// Mark is as well, or can't be written.
func (k *Keeper) Mark(below uint64, durability log.Durability, done func()) {
	k.mu.Lock()
	if k.marking || k.marked.Load() {
		k.mu.Unlock()
		done()
		return
	}
	k.marking, k.marks, k.passed = true, true, below
	k.mu.Unlock()
	finish := func(error) {
		k.mu.Lock()
		k.marking = false
		k.mu.Unlock()
		done()
	}
	if err := k.takeOver(carriage{}, below, durability, finish); err != nil {
		finish(err)
	}
}

// carry notes that a batch which is going to be appended, and ends at an offset, removes the
// records of spans, when its own ones expire, and how far sources have come (nil: it has none).
// unlimited says that it has a record which may be beyond the limit of its subject. Forget follows
// if it isn't appended. Calls come in the order of the log.
func (k *Keeper) carry(end uint64, unlimited bool, spans []removal.Span, expiries []removal.Expiry, progress *removal.Progress) {
	k.mu.Lock()
	defer k.mu.Unlock()
	_, base, _ := k.Data.Offsets()
	if k.coming = 0; unlimited { // a search since Raise has not seen that record
		k.limit, k.coming = 0, end
		k.turn++
	}
	if k.carries = len(spans) > 0; k.carries {
		k.carried.Add(base, end, spans)
		k.first()
	}
	k.expiries.add(expiries, base, end)
	k.noteExpiries()
	k.progress.add(k.Data, progress)
	k.sourced.Store(k.progress.next())
}

// noteExpiries notes what is asked for without mu. mu is held.
func (k *Keeper) noteExpiries() {
	k.fresh.Store(k.expiries.next())
	k.expiring.Store(int64(k.expiries.len()))
}

// first notes which batch is the first in carried. mu is held.
func (k *Keeper) first() {
	base, end := k.carried.Next()
	k.open.Store(base)
	k.due.Store(end)
}

// Settled returns an offset up to high before which the set has all that batches have removed. Who
// counts the records before the high watermark counts only up to there: between the moment when
// readers see a batch and the one when its removals are in the set, there are too many.
func (k *Keeper) Settled(high uint64) uint64 {
	if open := k.open.Load(); open > 0 {
		return min(open, high)
	}
	return high
}

// Forget takes back the last carry.
func (k *Keeper) Forget() {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.carries {
		k.carried.Undo()
		k.first()
	}
	k.coming, k.await.until = 0, 0 // Limiting would wait for records that never come
	k.expiries.undo()
	k.noteExpiries()
	k.progress.undo()
	k.sourced.Store(k.progress.next())
}

// Appended notes that messages of a size were appended.
func (k *Keeper) Appended(size int) {
	if k.size.Add(int64(size)); k.unsure.Load() && k.unsure.Swap(false) {
		k.mu.Lock()
		k.turn++ // the records that Raise was about are in the log now
		k.mu.Unlock()
	}
}

// Commit adds to the set what batches have removed that end at an offset or before: they are on all
// in-sync replicas. Now and then it writes that, and when their records expire, to the state log.
func (k *Keeper) Commit(end uint64, durability log.Durability) {
	due, fresh, sourced := k.due.Load(), k.fresh.Load(), k.sourced.Load()
	much := k.size.Load() >= takenData && k.marked.Load()
	if !much && (due == 0 || due > end) && (fresh == 0 || fresh >= end) && (sourced == 0 || sourced >= end) {
		return
	}
	k.mu.Lock()
	k.carried.Take(end, func(s removal.Span) {
		k.set.Add(s.From, s.Next)
		k.untaken = append(k.untaken, s)
	})
	k.first()
	k.expiries.commit(end, k.gone)
	k.noteExpiries()
	k.progress.commit(end)
	k.sourced.Store(k.progress.next())
	k.passed = max(k.passed, end)
	below, c := k.passed, carriage{k.untaken, k.expiries.untaken}
	take := !k.taking && (c.size() >= takenItems || k.size.Load() >= takenData)
	if take {
		k.untaken, k.expiries.untaken, k.taking = nil, nil, true
		k.size.Store(0)
	}
	k.mu.Unlock()
	if !take {
		return
	}
	finish := func(err error) {
		k.mu.Lock()
		defer k.mu.Unlock()
		if k.taking = false; err != nil {
			k.untaken = append(c.spans, k.untaken...)
			k.expiries.untaken = append(c.expiries, k.expiries.untaken...)
		}
	}
	if err := k.takeOver(c, below, durability, finish); err != nil {
		finish(err)
	}
}

// carriage is what batches of the data log carry: what they have removed, and when their records
// expire.
type carriage struct {
	spans    []removal.Span
	expiries []expiry
}

// size returns what c takes in the state log, about.
func (c *carriage) size() int { return len(c.spans)*spanBytes + len(c.expiries)*expiryBytes }

// takeOver appends to the state log what batches carry, and a Mark behind it: with that, the state
// log has what batches before below carry. done is called when that is on all in-sync replicas,
// unless it returns an error.
func (k *Keeper) takeOver(c carriage, below uint64, durability log.Durability, done func(error)) error {
	k.writing.Lock()
	defer k.writing.Unlock()
	progress, turn, noted := k.unnoted()
	a := &log.Append{Durability: durability, Done: completion(func(err error) {
		if err == nil {
			k.take(below)
		}
		if noted && err == nil {
			k.noted(progress.Offset, turn)
		}
		done(err)
	})}
	now, size := k.Now(), 0
	for _, items := range []iter.Seq[[]byte]{removal.Items(slices.Values(c.spans)), k.expiryItems(c.expiries)} {
		for item := range items {
			size += len(item)
			a.Records = append(a.Records, log.Record{Time: now, Subject: []byte(removal.Subject), Data: slices.Clone(item)})
		}
	}
	if noted {
		a.Records = append(a.Records, progressRecord(now, &progress))
	}
	a.Records = append(a.Records, k.mark(now, below))
	_, err := k.Append(a)
	if err == nil {
		k.bytes.Add(uint64(size))
	}
	return err
}

// take notes that a Mark is on all in-sync replicas.
func (k *Keeper) take(below uint64) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.taken.Store(max(k.taken.Load(), below))
	k.marked.Store(true)
}

// mark returns the record with a Mark: an Item without spans.
func (k *Keeper) mark(now int64, below uint64) log.Record {
	k.mu.Lock()
	m := removal.Mark{Below: below, Limit: k.limit}
	k.mu.Unlock()
	if below > k.Data.Start() {
		m.Epoch, _ = k.Data.EpochAt(below - 1)
	}
	return log.Record{Time: now, Subject: []byte(removal.Subject), Data: removal.AppendItem(nil), Attributes: removal.AppendMark(nil, m)}
}

// completion is what is called when an append is on all in-sync replicas.
type completion func(error)

// Committed implements log.Completion.
func (c completion) Committed(_, _ uint64, err error) { c(err) }

// Snapshot yields records with all removals and expiries that the state log has when it is called.
// So the state log may lose its records up to there once these are in it. Each is valid until the
// next one.
func (k *Keeper) Snapshot() iter.Seq[log.Record] {
	return func(yield func(log.Record) bool) {
		k.mu.Lock()
		pending, passed, marks, expiries := k.pending.Spans(), k.passed, k.marks, k.expiries.kept()
		progress := k.progress.kept
		k.mu.Unlock()
		now, subject := k.Now(), []byte(removal.Subject)
		k.set.Trim(k.Data.Start())
		for item := range removal.Items(func(yield func(removal.Span) bool) {
			for _, span := range pending {
				if !yield(span) {
					return
				}
			}
			for from, next := range k.set.Ranges(0, math.MaxUint64) {
				for span := range removal.Split(from, next, k.Data.EpochAt) {
					if !yield(span) {
						return
					}
				}
			}
		}) {
			if !yield(log.Record{Time: now, Subject: subject, Data: item}) {
				return
			}
		}
		for item := range k.expiryItems(expiries) {
			if !yield(log.Record{Time: now, Subject: subject, Data: item}) {
				return
			}
		}
		if len(progress.Sources) > 0 && !yield(progressRecord(now, &progress)) {
			return
		}
		if marks { // or the state log loses one that is on its way to the replicas
			yield(k.mark(now, max(passed, k.Data.Start())))
		}
	}
}
