package dedup

import (
	"hash/maphash"
	"math"
	"sync"
	"sync/atomic"

	"github.com/carillon-mq/carillon/broker/clock"
	"github.com/carillon-mq/carillon/broker/log"
	"github.com/carillon-mq/carillon/broker/publish"
)

// Window remembers the ids of a shard's messages for as long as a second one is a duplicate, by
// 128 bits of hash under secret seeds: two ids that are taken for one are not to be expected in
// the life of a cluster, and a table without pointers costs the garbage collector nothing.
//
// The leader of the shard fills it as messages are judged, a follower from the batches that it
// appends and truncates. So whichever broker is elected has it. To read it from the log at the
// election was the simpler way: with a million ids that takes more than a second, in which nobody
// can publish.
//
// A duplicate is acknowledged and not kept. If the window was over by then, a message is lost; if a
// message is kept twice within the window, it is kept twice. So an id is known only while its age
// is surely within the window:
//
//  1. Ages are measured on the clock's Mono, which doesn't jump, and not by records' times.
//  2. The age of an id that this process has not judged itself, but read from a batch, is what the
//     record's time says. It is not known if the time can't be compared with records'
//     (clock.Verdict.Elapsed), or if the record is of the future by more than clock.Slack and a
//     quarter of the window allow.
//  3. An id is no younger than an id behind it in the log.
//  4. When the time steps, ids that were read from batches become older or younger by that.
type Window struct {
	mu      sync.Mutex // guards all of it, and comes after the Shard's
	counted *atomic.Int64
	known   map[Hash]uint64 // offsets
	queue   []knownID       // a ring, oldest first
	head, n int
	since   int64 // the ids of all records in the log from this moment on are known
	off     int64 // of the clock's time from Mono, by which the ages of ids were computed
	logged  int   // how many of the oldest have an age by their record's time
}

// Hash stands for a message id.
type Hash [2]uint64

type knownID struct {
	hash Hash
	at   int64 // when it was kept, on the clock's Mono
}

var idSeeds = [2]maphash.Seed{maphash.MakeSeed(), maphash.MakeSeed()}

// HashOf returns the hash of an id in this process; another process has other seeds.
func HashOf(id []byte) Hash {
	return Hash{maphash.Bytes(idSeeds[0], id), maphash.Bytes(idSeeds[1], id)}
}

// Moments for Forget: since when all ids are known.
const (
	Never  = math.MaxInt64 // since when nothing is known
	Always = math.MinInt64 // since when all is
)

// Init has the ids be counted, of a shard that isn't open.
func (w *Window) Init(in *atomic.Int64) { w.counted, w.since = in, Never }

// Lock guards what the methods do that ask for the lock to be held.
func (w *Window) Lock() { w.mu.Lock() }

// Unlock ends what Lock began.
func (w *Window) Unlock() { w.mu.Unlock() }

// Len is how many ids are known. The lock is held.
func (w *Window) Len() int { return w.n }

// Known is an id that a Window knows.
type Known struct {
	ID     Hash
	At     int64 // when it was kept, on the clock's Mono
	Offset uint64
}

// All returns the ids that were kept at a moment or later, the oldest first.
func (w *Window) All(since int64) (all []Known) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.Expire(since)
	for i := range w.n {
		id := w.queue[(w.head+i)%len(w.queue)]
		all = append(all, Known{id.hash, id.at, w.known[id.hash]})
	}
	return all
}

// Find returns the offset of the message with that id. The lock is held.
func (w *Window) Find(h Hash) (offset uint64, ok bool) {
	offset, ok = w.known[h]
	return offset, ok
}

// Full says whether there is no room for another id. The lock is held.
func (w *Window) Full() bool { return w.n >= MaxIDs || w.counted.Load() >= MaxTogether }

// Add remembers an id that is not known and was kept at a moment. The lock is held.
func (w *Window) Add(h Hash, offset uint64, at int64) {
	if w.known == nil {
		w.known = map[Hash]uint64{}
	}
	if w.n == len(w.queue) {
		larger := make([]knownID, max(2*w.n, 16))
		for i := range w.n {
			larger[i] = w.queue[(w.head+i)%len(w.queue)]
		}
		w.queue, w.head = larger, 0
	}
	w.queue[(w.head+w.n)%len(w.queue)] = knownID{h, at}
	w.known[h] = offset
	w.n++
	w.counted.Add(1)
}

// Undo forgets the newest ids until n are left. The lock is held.
func (w *Window) Undo(n int) {
	for w.n > n {
		w.n--
		delete(w.known, w.queue[(w.head+w.n)%len(w.queue)].hash)
		w.counted.Add(-1)
	}
	w.logged = min(w.logged, w.n)
}

// Follow takes over how far the clock's time is from Mono. The lock is held.
func (w *Window) Follow(off int64) {
	step := off - w.off
	if step == 0 {
		return
	}
	w.off = off
	if -int64(clock.Bound) <= step && step <= int64(clock.Bound) {
		return // clocks that agree
	}
	for i := range w.logged {
		w.queue[(w.head+i)%len(w.queue)].at -= step
	}
	if w.since != Never && w.since != Always {
		w.since -= step // what was too old to be read isn't, if the time went back
	}
}

// Expire forgets the ids of messages that were kept before a moment. The lock is held.
func (w *Window) Expire(before int64) {
	for w.n > 0 && w.queue[w.head].at < before {
		w.drop()
	}
	w.since = max(w.since, before)
	if w.n == 0 && len(w.queue) > 1024 {
		w.known, w.queue, w.head = nil, nil, 0 // a map doesn't shrink
	}
}

// drop forgets the oldest id. The lock is held.
func (w *Window) drop() {
	oldest := &w.queue[w.head]
	delete(w.known, oldest.hash)
	w.since = max(w.since, oldest.at+1)
	w.head = (w.head + 1) % len(w.queue)
	w.n--
	w.logged = max(w.logged-1, 0)
	w.counted.Add(-1)
}

// ForgetBefore lets go of all. What the log holds from a moment on is told again, by a time that is
// so far from Mono.
func (w *Window) ForgetBefore(since, off int64) {
	w.Forget(Never)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.since, w.off = since, off
}

// Forget lets go of all, and notes since when all is known: Always or Never.
func (w *Window) Forget(since int64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.Undo(0)
	w.known, w.queue, w.head = nil, nil, 0
	w.since = since
}

// Count has the ids be counted elsewhere, and forgets the oldest if there is no room for all.
func (w *Window) Count(in *atomic.Int64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.counted == in {
		return
	}
	w.counted.Add(-int64(w.n))
	w.counted = in
	in.Add(int64(w.n))
	for w.n > 0 && in.Load() > MaxTogether {
		w.drop()
	}
}

// Truncate forgets the ids of records from end on, which the log doesn't hold any more.
func (w *Window) Truncate(end uint64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	n := w.n
	for n > 0 && w.known[w.queue[(w.head+n-1)%len(w.queue)].hash] >= end {
		n--
	}
	w.Undo(n)
}

// ExpireNow is Expire for a caller that doesn't hold mu. It returns how many are left.
func (w *Window) ExpireNow(before int64) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.Expire(before)
	return w.n
}

// Read says whether the log was read since it was opened.
func (w *Window) Read() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.since != Never
}

// Complete says whether all ids are known of records from a moment on.
func (w *Window) Complete(since int64) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.since <= since
}

// Note takes over the ids of a batch of the log from an offset on, for a window of so many
// nanoseconds. It says how many had to be forgotten for them.
func (w *Window) Note(codec publish.Codec, c *clock.Clock, b log.Batch, from uint64, span int64) (forgotten int, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	mono := c.Mono()
	if span <= 0 {
		w.Expire(mono + 1)
		return 0, nil
	}
	if !c.Verdict().Elapsed {
		w.since = mono + 1
		return 0, nil
	}
	w.Follow(c.Off())
	w.Expire(mono - span)
	slack := max(int64(clock.Bound), min(int64(clock.Slack), span/4))
	err = publish.EachID(codec, b, from, func(id []byte, offset uint64, time int64) {
		at := c.Written(time)
		if at < w.since || time-w.off-mono > slack {
			return
		}
		w.older(at)
		h := HashOf(id)
		if _, ok := w.Find(h); ok {
			return // published again when the window was shorter, or there was none
		}
		if w.Full() {
			forgotten++
			if w.n == 0 {
				w.since = at + 1
				return
			}
			w.drop()
		}
		w.Add(h, offset, at)
		w.logged = w.n
	})
	if err != nil {
		w.since = max(w.since, c.Written(b.LastTime())+1)
	}
	return forgotten, err
}

// older has no id be younger than one that was kept at a moment and stands behind it. The lock is
// held.
func (w *Window) older(at int64) {
	for i := w.n - 1; i >= 0; i-- {
		id := &w.queue[(w.head+i)%len(w.queue)]
		if id.at <= at {
			return
		}
		id.at = at
	}
}

// ReplaceLogged takes over the ids that another window read from the same log in place of those
// that this one read. Those that were judged here stay, with their ages. The lock is held; nobody
// else knows the other one.
func (w *Window) ReplaceLogged(from *Window) {
	judged := make([]knownID, 0, w.n-w.logged)
	offsets := make([]uint64, 0, w.n-w.logged)
	again := make(map[Hash]bool, w.n-w.logged)
	first := uint64(math.MaxUint64)
	for i := w.logged; i < w.n; i++ {
		id := w.queue[(w.head+i)%len(w.queue)]
		again[id.hash] = true
		judged, offsets = append(judged, id), append(offsets, w.known[id.hash])
		first = min(first, w.known[id.hash])
	}
	w.Undo(0)
	for i := range from.n {
		id := from.queue[(from.head+i)%len(from.queue)]
		if offset := from.known[id.hash]; offset < first && !again[id.hash] && !w.Full() {
			w.Add(id.hash, offset, id.at)
		}
	}
	w.logged = w.n
	for i, id := range judged {
		w.Add(id.hash, offsets[i], id.at)
	}
	w.since, w.off = from.since, from.off
}
