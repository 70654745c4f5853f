package indexing

import (
	"context"
	"errors"
	"hash/maphash"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/carillon-mq/carillon/broker/removal"
	"github.com/carillon-mq/carillon/broker/subjectindex"
	"github.com/carillon-mq/carillon/broker/work"
)

// Lasts has the last records of a shard's subjects for publish conditions, which are judged by
// goroutines that must not wait for a disk. It has the records that were noted since it was made,
// and finds the others in the background, on demand. Once one was asked for it loads all of them,
// unless they are too many: then it knows also which subjects have none, and nobody waits any more.
//
// A record that is removed is no last record: the one before is found when it is asked for.
type Lasts struct {
	work.State // of the set's finders
	loader     loader
	set        *Indexes
	removed    *removal.Set // nil: no record is removed
	find       Find
	all        FindAll
	findFirsts FindFirsts
	matching   FindMatches
	found      func()
	ctx        *lifetime
	stepping   sync.Mutex // held by the finder
	loading    sync.Mutex // held by the loader
	telling    sync.Mutex // held over found

	share atomic.Int64 // of the set's memory for last records
	asked atomic.Int64 // when a condition asked last, in nanoseconds since 1970
	rests atomic.Bool  // nothing is noted: no condition has asked for a while

	mu      sync.Mutex
	last    map[lastKey]uint64 // of all records from from on
	from    uint64
	end     uint64             // of the log, as of Appended
	noted   bool               // last has records that may not be in the log yet
	forget  bool               // everything is to be forgotten when they are
	trial   trial              // what was noted since Try
	below   map[lastKey]uint64 // what was found below from
	firsts  firsts
	matches matches
	queue   []lastWanted
	halted  bool               // the first in queue waits until the batch is appended that is being gathered
	queued  map[wantedKey]bool // true: a message waits for it
	failed  map[wantedKey]lastFailure
	why     error     // why nothing is looked for until rest
	rest    time.Time // until then finding one has no patience

	told   uint64      // how often found was called, and 1
	untold *time.Timer // a subject was found for which a message waits; nil: none

	complete bool      // below has all subjects with records below from
	tooMany  bool      // they are too many
	loadNext time.Time // when they are loaded at the earliest
}

// loader is a Lasts as the loaders see it.
type loader struct {
	work.State
	of *Lasts
}

// Find returns the offset of the last record of a subject below an offset; 0: there is none. If it
// is not patient it waits for no index that is being made.
type Find func(ctx context.Context, subject string, below uint64, patient bool) (uint64, error)

// FindAll calls f with each subject that has a record below an offset, and the offset of the last
// one, until it says no. It calls begin before each attempt, and waits for no index that is being
// made.
type FindAll func(ctx context.Context, below uint64, begin func(), f func(subject []byte, last uint64) bool) error

// lastKey is a hash of a subject. Its seeds are of this process, so clients can't choose subjects
// that collide.
type lastKey [2]uint64

var lastSeeds = [2]maphash.Seed{maphash.MakeSeed(), maphash.MakeSeed()}

func lastKeyOf(subject []byte) lastKey {
	return lastKey{maphash.Bytes(lastSeeds[0], subject), maphash.Bytes(lastSeeds[1], subject)}
}

// wantedKey is a subject that is looked for: its last record, or its oldest ones if firsts is set.
// With match it is a pattern, and with firsts all records are looked for that match it.
type wantedKey struct {
	lastKey
	firsts, match bool
}

type lastWanted struct {
	key     wantedKey
	subject string
}

type lastFailure struct {
	err error
	at  time.Time
}

// NewLasts returns the last records of a shard. found is called when a subject that Last or Firsts
// was asked for was found, or could not be, with no lock held. removed may be nil; find, all and
// firsts and matching pass what it has. It notes nothing until Begin. Close follows.
func (s *Indexes) NewLasts(removed *removal.Set, find Find, all FindAll, firsts FindFirsts, matching FindMatches, found func()) *Lasts {
	x := &Lasts{set: s, removed: removed, find: find, all: all, findFirsts: firsts, matching: matching, found: found, ctx: newLifetime(), told: 1}
	x.loader.of = x
	x.rests.Store(true)
	x.Reset(0)
	s.lasts.add(x)
	return x
}

// Begin has records noted from now on, if they are not, and reports whether they were not: the log
// ends at an offset, and records that are not in it yet are to be noted. It precedes Last.
func (x *Lasts) Begin(end uint64) bool {
	if !x.rests.Load() {
		return false
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	x.reset(end)
	x.count()
	x.asked.Store(time.Now().UnixNano())
	x.rests.Store(false)
	return true
}

// Reset forgets everything. The log ends at an offset.
func (x *Lasts) Reset(end uint64) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.firsts.undo()
	x.matches.undo()
	x.reset(end)
	x.goOn()
	x.count()
}

// reset is Reset with mu held.
func (x *Lasts) reset(end uint64) {
	x.last, x.below, x.from, x.end = map[lastKey]uint64{}, map[lastKey]uint64{}, end, end
	x.complete, x.tooMany, x.noted, x.forget, x.trial = false, false, false, false, trial{}
	if x.queued == nil {
		x.queued, x.failed = map[wantedKey]bool{}, map[wantedKey]lastFailure{}
	}
	x.firsts.reset()
	x.matches.known = nil
}

// count tells the set how many records are remembered. mu is held.
func (x *Lasts) count() {
	now := int64(len(x.last) + len(x.below) + (x.firsts.held+x.matches.held())/lastBytes)
	x.set.lasts.held.Add(now - x.share.Swap(now))
}

// Note notes the last record of a subject, which may not be in the log yet.
func (x *Lasts) Note(subject []byte, offset uint64) { x.NoteRun(subject, offset, offset) }

// NoteRun is Note for all records from from up to and with last.
func (x *Lasts) NoteRun(subject []byte, from, last uint64) {
	if x.rests.Load() {
		return
	}
	key := lastKeyOf(subject)
	x.mu.Lock()
	defer x.mu.Unlock()
	x.trial.touch(x, key)
	x.last[key], x.noted = last, true
	x.firsts.note(key, from, last)
	x.matches.note(subject, from, last)
}

// Appended says that all records that were noted are in the log, which ends at an offset. If there
// are too many subjects it forgets them, and finds them again when they are asked for. If no
// condition has asked for restAfter, it forgets them, and notes nothing until Begin.
func (x *Lasts) Appended(end uint64) {
	if x.rests.Load() {
		return
	}
	x.mu.Lock()
	x.end, x.noted, x.trial = end, false, trial{}
	x.firsts.appended(x.isGone)
	x.matches.sweep()
	switch {
	case x.asked.Load() < time.Now().Add(-restAfter).UnixNano():
		x.reset(end)
		x.rests.Store(true)
	case x.forget:
		x.forgetAll()
	case len(x.last)+x.firsts.held/lastBytes > mostLasts:
		x.reset(end)
		x.tooMany = true
	}
	x.goOn()
	x.count()
	x.mu.Unlock()
	x.set.lasts.limit()
}

// goOn lets the finder go on: nothing is noted that the log lacks. The lookup begins here, since
// the next batch may be gathered before the finder has its turn. mu is held.
func (x *Lasts) goOn() {
	if x.halted {
		x.halted = false
		x.look(x.queue[0])
		x.set.finders.Wake(x, work.Urgent)
	}
}

// release forgets everything because all shards together remember too much. It reports whether it
// has; otherwise Appended does.
func (x *Lasts) release() bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.noted {
		x.forget = true
		return false
	}
	x.forgetAll()
	x.count()
	return true
}

// forgetAll forgets everything, for a while also what was loaded. mu is held, and nothing is noted
// that the log lacks.
func (x *Lasts) forgetAll() {
	x.reset(x.end)
	x.loadNext = time.Now().Add(crowdedRest)
}

// Last returns the offset of the last record of a subject; 0: there is none. If that is not known,
// it is being found: wait is not 0, and found is called later, unless Told says that it was. An
// error says why the question can't be answered, and a later one may be.
func (x *Lasts) Last(subject []byte) (offset, wait uint64, err error) {
	key := lastKeyOf(subject)
	x.asked.Store(time.Now().UnixNano())
	x.mu.Lock()
	defer x.mu.Unlock()
	if offset, ok := x.known(key); ok {
		if x.rolls(subject, offset) {
			return 0, Rolling, nil
		}
		return offset, 0, nil
	}
	wait, err = x.await(wantedKey{lastKey: key}, subject)
	return 0, wait, err
}

// await queues a subject for which a message waits, or returns why it was not found lately. mu is
// held.
func (x *Lasts) await(key wantedKey, subject []byte) (wait uint64, err error) {
	if f, ok := x.failed[key]; ok {
		delete(x.failed, key)
		if time.Since(f.at) < failedTime {
			return 0, f.err
		}
	}
	if err := x.want(key, subject); err != nil {
		return 0, err
	}
	x.queued[key] = true
	return x.told, nil
}

// Told reports whether found was called since Last returned wait.
func (x *Lasts) Told(wait uint64) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.told != wait
}

// Want has the last record of a subject found that Last will be asked for, or with firsts the
// oldest ones that Firsts will be asked for.
func (x *Lasts) Want(subject []byte, firsts bool) {
	key := lastKeyOf(subject)
	x.mu.Lock()
	defer x.mu.Unlock()
	last, ok := x.known(key)
	if firsts {
		ok = x.firsts.known[key] != nil || ok && last == 0 && x.complete
	}
	if !ok {
		_ = x.want(wantedKey{key, firsts, false}, subject) // Last and Firsts say so, too
	}
}

// known returns the last record of a subject; ok is false if it isn't known. Then offset, if it is
// not 0, is that of a removed record behind which there is none. mu is held.
func (x *Lasts) known(key lastKey) (offset uint64, ok bool) {
	if offset, ok = x.last[key]; !ok {
		offset, ok = x.below[key]
	}
	if ok && offset < x.firsts.floor {
		return 0, true
	}
	if ok && x.isRemoved(offset) {
		return offset, false
	}
	return offset, ok || x.complete
}

func (x *Lasts) isRemoved(offset uint64) bool {
	return x.removed != nil && x.removed.Len() > 0 && x.removed.Has(offset)
}

// isGone reports whether a record is removed, or the log begins behind it.
func (x *Lasts) isGone(offset uint64) bool {
	return x.removed != nil && offset < x.removed.Start() || x.isRemoved(offset)
}

// want queues a subject for a finder. mu is held.
func (x *Lasts) want(key wantedKey, subject []byte) error {
	if _, ok := x.queued[key]; ok {
		return nil
	}
	if now := time.Now(); !key.match && !x.complete && !x.tooMany && !now.Before(x.loadNext) {
		x.loadNext = now.Add(loadRest)
		x.set.loaders.Wake(&x.loader, work.Urgent)
	}
	switch {
	case x.why != nil && time.Now().Before(x.rest):
		return x.why
	case len(x.queue) >= mostFinds:
		return &NotReadyError{Why: "too many last messages are being looked for"}
	}
	x.queued[key] = false
	at := len(x.queue)
	for !key.match && at > 1 && x.queue[at-1].key.match { // the first one is being looked for
		at-- // a pattern takes as long as thousands of subjects
	}
	x.queue = slices.Insert(x.queue, at, lastWanted{key, string(subject)})
	x.set.finders.Wake(x, work.Urgent)
	return nil
}

// step finds some of the subjects that are queued.
func (x *Lasts) step() (more bool) {
	x.stepping.Lock()
	defer x.stepping.Unlock()
	for range findsAtOnce {
		w, from, below, patient, ok := x.next()
		if !ok {
			break
		}
		if w.key.match || w.key.firsts {
			began := time.Now()
			if w.key.match {
				x.findMatches(w, below, patient)
			} else {
				x.findOldest(w, below, patient)
			}
			time.Sleep(pauseAfter(time.Since(began)))
			continue
		}
		ctx, cancel := context.WithTimeout(context.Background(), findTime)
		offset, err := x.find(ctx, w.subject, below, patient)
		cancel()
		x.answer(w, from, below, offset, err)
		x.set.lasts.limit()
	}
	x.mu.Lock()
	due := x.untold != nil && x.untold.Stop()
	more = len(x.queue) > 0 && !x.halted && x.ctx.Err() == nil
	x.mu.Unlock()
	if due {
		x.tell()
	}
	return more
}

// next returns the first subject that is queued and isn't known yet, the present from, and the
// offset below which it is to be found: from, or behind a removed record that was noted.
func (x *Lasts) next() (w lastWanted, from, below uint64, patient, ok bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	for len(x.queue) > 0 && x.ctx.Err() == nil {
		w = x.queue[0]
		if w.key.firsts || w.key.match {
			if x.halted = x.noted && !x.looking(w); x.halted {
				return w, 0, 0, false, false // goOn has it looked for
			}
			return w, 0, x.look(w), !time.Now().Before(x.rest), true
		}
		if offset, known := x.known(w.key.lastKey); !known {
			return w, x.from, max(x.from, offset+1), !time.Now().Before(x.rest), true
		}
		x.answered(1)
	}
	return w, 0, 0, false, false
}

// looking reports whether the records are being looked for of which Firsts or Matches was asked. mu
// is held.
func (x *Lasts) looking(w lastWanted) bool {
	if w.key.match {
		k := x.matches.of(w.subject, w.key.firsts)
		return k != nil && k.looking
	}
	return x.firsts.looking(w.key.lastKey)
}

// look has them looked for, and returns below which offset. mu is held.
func (x *Lasts) look(w lastWanted) (below uint64) {
	if w.key.match {
		return x.matches.look(w.subject, w.key.firsts, x.end)
	}
	return x.firsts.look(w.key.lastKey, x.end)
}

// answer notes what was found of the first subject that is queued. If the index was not ready at
// all, the others get the same error.
func (x *Lasts) answer(w lastWanted, from, below, offset uint64, err error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	key := w.key.lastKey
	last, noted := x.last[key]
	if err == nil && (x.from != from || noted && last >= below && x.isRemoved(last)) {
		return // it is looked for again, below the new offset
	}
	if err == nil {
		x.why = nil
		switch {
		case noted && last >= below: // a newer one was noted
		case noted && offset >= from:
			x.last[key] = offset
		default:
			delete(x.last, key)
			x.foundBelow(key, offset)
		}
		x.count()
		x.answered(1)
		return
	}
	x.notFound(err)
}

// notFound notes why the first subject that is queued was not found. mu is held.
func (x *Lasts) notFound(err error) {
	n := 1
	_, missing := errors.AsType[*subjectindex.MissingError](err)
	if late := errors.Is(err, context.DeadlineExceeded); late || notReady(err) {
		x.rest = time.Now().Add(restTime)
		if late || !missing { // a part that is missing concerns this subject
			x.why, n = err, len(x.queue)
		}
	}
	if len(x.failed) > mostFinds {
		clear(x.failed)
	}
	for _, w := range x.queue[:n] {
		x.failed[w.key] = lastFailure{err, time.Now()}
	}
	x.answered(n)
}

// foundBelow remembers the last record of a subject below from. mu is held.
func (x *Lasts) foundBelow(key lastKey, offset uint64) {
	if len(x.below) >= mostLasts {
		x.below, x.complete = map[lastKey]uint64{}, false
	}
	x.below[key] = offset
}

// answered removes the first subjects that are queued. If a message waits for one, found is called
// within tellTime: not at once, since the sender sends everything again that it has. mu is held.
func (x *Lasts) answered(n int) {
	for _, w := range x.queue[:n] {
		if x.queued[w.key] && x.untold == nil {
			x.untold = time.AfterFunc(tellTime, x.tell)
		}
		delete(x.queued, w.key)
	}
	if x.queue = x.queue[n:]; len(x.queue) == 0 {
		x.queue = nil
	}
}

// tell calls found.
func (x *Lasts) tell() {
	x.telling.Lock()
	defer x.telling.Unlock()
	if x.ctx.Err() != nil {
		return
	}
	x.mu.Lock()
	x.untold = nil
	x.told++
	x.mu.Unlock()
	x.found()
}

// load finds all subjects.
func (x *Lasts) load() {
	x.loading.Lock()
	defer x.loading.Unlock()
	x.mu.Lock()
	from := x.from
	x.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), loadTime)
	defer cancel()
	all := map[lastKey]uint64{}
	held := &x.set.lasts.held
	crowded := false
	err := x.all(ctx, from, func() {
		held.Add(-int64(len(all)))
		clear(all)
	}, func(subject []byte, last uint64) bool {
		before := len(all)
		all[lastKeyOf(subject)] = last
		held.Add(int64(len(all) - before))
		crowded = !x.set.lasts.room(len(all))
		return len(all) <= mostLasts && !crowded && x.ctx.Err() == nil
	})
	held.Add(-int64(len(all)))
	if x.loaded(from, all, crowded, err) {
		x.tell()
	}
	x.set.lasts.limit()
}

// loaded takes all subjects over, and reports whether it has.
func (x *Lasts) loaded(from uint64, all map[lastKey]uint64, crowded bool, err error) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	switch {
	case x.ctx.Err() != nil || x.from != from || notReady(err): // later, if another subject is asked for
	case crowded:
		x.loadNext = time.Now().Add(crowdedRest)
	case err != nil:
		x.loadNext = time.Now().Add(failedRest)
	case len(all) > mostLasts:
		x.tooMany = true
	default:
		x.below, x.complete = all, true
		x.count()
		return true
	}
	return false
}

// Close ends finding, once, and waits for what is being found. found is not called any more.
func (x *Lasts) Close() {
	close(x.ctx.done)
	x.stepping.Lock()
	defer x.stepping.Unlock()
	x.loading.Lock()
	defer x.loading.Unlock()
	x.telling.Lock()
	defer x.telling.Unlock()
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.untold != nil {
		x.untold.Stop()
	}
	x.set.lasts.remove(x)
}
