package indexing

import (
	"context"
	"errors"
	"hash/maphash"
	"sync"
	"time"

	"github.com/carillon-mq/carillon/broker/work"
)

// Lasts has the last records of a shard's subjects for publish conditions, which are judged by
// goroutines that must not wait for a disk. It has the records that were noted since it was made, and
// finds the others in the background, on demand. Once one was asked for it loads all of them, unless
// they are too many: then it knows also which subjects have none, and nobody waits any more.
type Lasts struct {
	work.State // of the set's finders
	loader     loader
	set        *Indexes
	find       Find
	all        FindAll
	found      func()
	ctx        *lifetime
	stepping   sync.Mutex // held by the finder
	loading    sync.Mutex // held by the loader

	mu     sync.Mutex
	last   map[lastKey]uint64 // of all records from from on
	from   uint64
	below  map[lastKey]uint64 // what was found below from
	queue  []lastWanted
	queued map[lastKey]struct{}
	failed map[lastKey]lastFailure
	why    error // why nothing is looked for until rest
	rest   time.Time

	complete bool      // below has all subjects with records below from
	tooMany  bool      // they are too many
	loadNext time.Time // when they are loaded at the earliest
}

// loader is a Lasts as the loaders see it.
type loader struct {
	work.State
	of *Lasts
}

// Find returns the offset of the last record of a subject below an offset; 0: there is none.
type Find func(ctx context.Context, subject string, below uint64) (uint64, error)

// FindAll calls f with each subject that has a record below an offset, and the offset of the last one,
// until it says no. It calls begin before each attempt.
type FindAll func(ctx context.Context, below uint64, begin func(), f func(subject []byte, last uint64) bool) error

// lastKey is a hash of a subject. Its seeds are of this process, so clients can't choose subjects
// that collide.
type lastKey [2]uint64

var lastSeeds = [2]maphash.Seed{maphash.MakeSeed(), maphash.MakeSeed()}

func lastKeyOf(subject []byte) lastKey {
	return lastKey{maphash.Bytes(lastSeeds[0], subject), maphash.Bytes(lastSeeds[1], subject)}
}

type lastWanted struct {
	key     lastKey
	subject string
}

type lastFailure struct {
	err error
	at  time.Time
}

// NewLasts returns the last records of a shard whose log ends at an offset. found is called when
// subjects were found, or could not be, with no lock held. Close follows.
func (s *Indexes) NewLasts(end uint64, find Find, all FindAll, found func()) *Lasts {
	x := &Lasts{set: s, find: find, all: all, found: found, ctx: newLifetime()}
	x.loader.of = x
	x.Reset(end)
	return x
}

// Reset forgets everything. The log ends at an offset.
func (x *Lasts) Reset(end uint64) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.reset(end)
}

// reset is Reset with mu held.
func (x *Lasts) reset(end uint64) {
	x.last, x.below, x.from = map[lastKey]uint64{}, map[lastKey]uint64{}, end
	x.complete, x.tooMany = false, false
	if x.queued == nil {
		x.queued, x.failed = map[lastKey]struct{}{}, map[lastKey]lastFailure{}
	}
}

// Note notes the last record of a subject, which may not be in the log yet.
func (x *Lasts) Note(subject []byte, offset uint64) {
	key := lastKeyOf(subject)
	x.mu.Lock()
	defer x.mu.Unlock()
	x.last[key] = offset
}

// Appended says that all records that were noted are in the log, which ends at an offset. If there are
// too many subjects it forgets them, and finds them again when they are asked for.
func (x *Lasts) Appended(end uint64) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if len(x.last) > mostLasts {
		x.reset(end)
		x.tooMany = true
	}
}

// Last returns the offset of the last record of a subject; 0: there is none. If that is not known,
// it is being found: pending is set, and found is called later. An error says why it can't be known
// for now.
func (x *Lasts) Last(subject []byte) (offset uint64, pending bool, err error) {
	key := lastKeyOf(subject)
	x.mu.Lock()
	defer x.mu.Unlock()
	if offset, ok := x.known(key); ok {
		return offset, false, nil
	}
	if f, ok := x.failed[key]; ok {
		delete(x.failed, key)
		if time.Since(f.at) < failedTime {
			return 0, false, f.err
		}
	}
	err = x.want(key, subject)
	return 0, err == nil, err
}

// Want has the last record of a subject found that Last will be asked for.
func (x *Lasts) Want(subject []byte) {
	key := lastKeyOf(subject)
	x.mu.Lock()
	defer x.mu.Unlock()
	if _, ok := x.known(key); !ok {
		_ = x.want(key, subject) // Last says so, too
	}
}

// known returns the last record of a subject; ok is false if it isn't known. mu is held.
func (x *Lasts) known(key lastKey) (offset uint64, ok bool) {
	if offset, ok = x.last[key]; !ok {
		offset, ok = x.below[key]
	}
	return offset, ok || x.complete
}

// want queues a subject for a finder. mu is held.
func (x *Lasts) want(key lastKey, subject []byte) error {
	if _, ok := x.queued[key]; ok {
		return nil
	}
	if now := time.Now(); !x.tooMany && !now.Before(x.loadNext) {
		x.loadNext = now.Add(loadRest)
		x.set.loaders.Wake(&x.loader, work.Urgent)
	}
	switch {
	case x.why != nil && time.Now().Before(x.rest):
		return x.why
	case len(x.queue) >= mostFinds:
		return &NotReadyError{Why: "too many last messages are being looked for"}
	}
	x.queued[key] = struct{}{}
	x.queue = append(x.queue, lastWanted{key, string(subject)})
	x.set.finders.Wake(x, work.Urgent)
	return nil
}

// Idle reports whether nothing is being found.
func (x *Lasts) Idle() bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	return len(x.queued) == 0
}

// step finds some of the subjects that are queued.
func (x *Lasts) step() (more bool) {
	x.stepping.Lock()
	defer x.stepping.Unlock()
	for n := range findsAtOnce {
		if x.ctx.Err() != nil {
			return false
		}
		x.mu.Lock()
		if len(x.queue) == 0 {
			x.mu.Unlock()
			if n == 0 {
				return false
			}
			break
		}
		w, from := x.queue[0], x.from
		x.mu.Unlock()
		ctx, cancel := context.WithTimeout(context.Background(), findTime)
		offset, err := x.find(ctx, w.subject, from)
		cancel()
		x.answer(w, from, offset, err)
	}
	x.found()
	x.mu.Lock()
	defer x.mu.Unlock()
	return len(x.queue) > 0
}

// answer notes what was found of the first subject that is queued. If the index was not ready, the
// others can't be known for now either.
func (x *Lasts) answer(w lastWanted, from, offset uint64, err error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	answered := 1
	switch {
	case err == nil && x.from != from:
		return // it is looked for again, below the new offset
	case err == nil:
		if x.why = nil; len(x.below) >= mostLasts {
			clear(x.below)
			x.complete = false
		}
		x.below[w.key] = offset
	case notReady(err) || errors.Is(err, context.DeadlineExceeded):
		x.why, x.rest = err, time.Now().Add(restTime)
		answered = len(x.queue)
		fallthrough
	default:
		if len(x.failed) > mostFinds {
			clear(x.failed)
		}
		for _, w := range x.queue[:answered] {
			x.failed[w.key] = lastFailure{err, time.Now()}
		}
	}
	for _, w := range x.queue[:answered] {
		delete(x.queued, w.key)
	}
	if x.queue = x.queue[answered:]; len(x.queue) == 0 {
		x.queue = nil
	}
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
	err := x.all(ctx, from, func() { clear(all) }, func(subject []byte, last uint64) bool {
		all[lastKeyOf(subject)] = last
		return len(all) <= mostLasts && x.ctx.Err() == nil
	})
	x.mu.Lock()
	defer x.mu.Unlock()
	switch {
	case err != nil || x.ctx.Err() != nil || x.from != from: // later, if another subject is asked for
	case len(all) > mostLasts:
		x.tooMany = true
	default:
		x.below, x.complete = all, true
	}
}

// Close ends finding, once, and waits for what is being found. found is not called any more.
func (x *Lasts) Close() {
	close(x.ctx.done)
	x.stepping.Lock()
	defer x.stepping.Unlock()
	x.loading.Lock()
	defer x.loading.Unlock()
}
