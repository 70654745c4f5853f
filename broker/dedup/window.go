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

// Window holds the ids of a shard's messages for as long as a second message with one of them is a
// duplicate. An id is held as 128 bits of hash under secret seeds. Collisions are not to be
// expected in the life of a cluster, and a table without pointers costs the garbage collector
// nothing.
//
// The leader fills the window as it judges messages, and a follower from the batches that it
// appends and truncates. So every broker that can be elected has it. Rejected: reading it from the
// log at the election. With a million ids that takes more than a second, in which nobody can
// publish.
//
// A duplicate is acknowledged and not stored. If the window had ended, that loses a message; a
// message that is wrongly taken for new is only stored twice. So an id counts as known only while
// its age is surely within the window:
//
//  1. Ages are measured on the clock's Mono, which doesn't jump, and not by records' times.
//  2. The age of an id that was read from a batch, and not judged by this process, is computed from
//     the record's time. It is unknown if the time can't be compared with records' times
//     (clock.Verdict.Elapsed), or if the record's time is in the future by more than clock.Slack or
//     a quarter of the window.
//  3. An id is at least as old as the ids after it in the log.
//  4. When the time steps, the ages of ids that were read from batches change by that step.
//
// Records that could not be read are listed (Unread) until an id there would be too old.
type Window struct {
	mu      sync.Mutex      // guards all fields; taken after the Shard's
	counted *atomic.Int64   // ids of all windows of this kind
	ofTopic *atomic.Int64   // of those of its Topic; nil: it stands alone
	known   map[Hash]uint64 // offsets
	queue   []knownID       // a ring, oldest first
	head, n int
	since   int64 // all ids of records in the log since this moment are known
	off     int64 // of the clock's time from Mono, by which the ages of ids were computed
	logged  int   // number of the oldest ids whose age is from their record's time
	unread  []Unread
}

// Hash is the hash of a message id.
type Hash [2]uint64

type knownID struct {
	hash Hash
	at   int64 // when it was stored, on the clock's Mono
}

var idSeeds = [2]maphash.Seed{maphash.MakeSeed(), maphash.MakeSeed()}

// HashOf returns the hash of an id in this process; another process has other seeds.
func HashOf(id []byte) Hash {
	return Hash{maphash.Bytes(idSeeds[0], id), maphash.Bytes(idSeeds[1], id)}
}

// Arguments of Forget: since when all ids are known.
const (
	Never  = math.MaxInt64 // no id is known
	Always = math.MinInt64 // all ids are known
)

// Init sets the counter of all ids. The window is that of a shard that isn't open.
func (w *Window) Init(in *atomic.Int64) { w.counted, w.since = in, Never }

// Lock takes the lock that some methods require.
func (w *Window) Lock() { w.mu.Lock() }

// Unlock releases the lock.
func (w *Window) Unlock() { w.mu.Unlock() }

// Len returns the number of known ids. The lock is held.
func (w *Window) Len() int { return w.n }

// Known is one id of a Window.
type Known struct {
	ID     Hash
	At     int64 // when it was stored, on the clock's Mono
	Offset uint64
}

// All returns the ids that were stored since a moment, the oldest first.
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

// Admits reports whether the leader may take a new message with an id. The lock is held.
//
//  1. The shards of a Topic that this broker leads may have as many ids together as are free in
//     MaxTogether. So one Topic leaves half of them to others, two leave a third, and one that
//     comes later always finds a part of the rest. No id that is known is taken from anybody.
//  2. A shard may always have LeastIDs. All may be taken after an election, whose winner had its
//     ids already.
//
// Rejected: an equal share for each shard. Of 10,000 shards few have ids, and the share is 200.
func (w *Window) Admits() bool {
	own := int64(w.n)
	if w.ofTopic != nil {
		own = w.ofTopic.Load()
	}
	return w.n < LeastIDs || w.n < MaxIDs && own < MaxTogether-w.counted.Load()
}

// Full reports whether there is no room for another id that is read. The lock is held.
func (w *Window) Full() bool { return w.n >= MaxIDs || w.counted.Load() >= MaxTogether }

// Add adds an unknown id that was stored at a moment. The lock is held.
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
	w.count(1)
}

// Undo forgets the newest ids until n are left. The lock is held.
func (w *Window) Undo(n int) {
	for w.n > n {
		w.n--
		delete(w.known, w.queue[(w.head+w.n)%len(w.queue)].hash)
		w.count(-1)
	}
	w.logged = min(w.logged, w.n)
}

// Follow applies the present difference of the clock's time from Mono. The lock is held.
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
		w.since -= step // if the time went back, ids that were too old to be read are not
	}
}

// Expire forgets the ids of messages that were stored before a moment. The lock is held.
func (w *Window) Expire(before int64) {
	for w.n > 0 && w.queue[w.head].at < before {
		w.drop()
	}
	w.forgetUnread(before, math.MaxUint64)
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
	w.count(-1)
}

// ForgetBefore forgets all ids. Those of records since a moment are noted again afterwards. off is
// the difference of the clock's time from Mono.
func (w *Window) ForgetBefore(since, off int64) {
	w.Forget(Never)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.since, w.off = since, off
}

// Forget forgets all ids, and sets since when all are known: Always or Never.
func (w *Window) Forget(since int64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.Undo(0)
	w.known, w.queue, w.head, w.unread = nil, nil, 0, nil
	w.since = since
}

// count adds to the counters. The lock is held.
func (w *Window) count(n int) {
	w.counted.Add(int64(n))
	if w.ofTopic != nil {
		w.ofTopic.Add(int64(n))
	}
}

// Count moves the ids to other counters, and forgets the oldest if there is no room for all.
// ofTopic counts those of all windows of a Topic that are counted in the same one; nil: none does.
func (w *Window) Count(in, ofTopic *atomic.Int64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.counted == in {
		return
	}
	w.count(-w.n)
	w.counted, w.ofTopic = in, ofTopic
	w.count(w.n)
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
	w.forgetUnread(math.MinInt64, end)
}

// ExpireNow is Expire for a caller that doesn't hold mu. It returns how many are left.
func (w *Window) ExpireNow(before int64) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.Expire(before)
	return w.n
}

// Read reports whether the log was read since it was opened.
func (w *Window) Read() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.since != Never
}

// Complete reports whether all ids of records since a moment are known.
func (w *Window) Complete(since int64) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.since <= since
}

// Note adds the ids of a batch from an offset on. span is the length of the window in nanoseconds.
// It returns the number of ids that were forgotten to make room.
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

// older makes all ids at least as old as an id that follows them in the log and was stored at a
// moment. The lock is held.
func (w *Window) older(at int64) {
	for i := w.n - 1; i >= 0; i-- {
		id := &w.queue[(w.head+i)%len(w.queue)]
		if id.at <= at {
			return
		}
		id.at = at
	}
}

// ReplaceLogged replaces the ids that this window read from the log by those that another window
// read from it. Ids that were judged here stay, with their ages. The lock is held; only the caller
// uses the other window.
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
	w.since, w.off, w.unread = from.since, from.off, from.unread
	w.forgetUnread(math.MinInt64, first) // what was judged here is known
}
