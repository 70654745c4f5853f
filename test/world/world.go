package world

import (
	"fmt"
	"hash"
	"hash/fnv"
	"io"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing/synctest"
	"time"

	"github.com/carillon-mq/carillon/broker/upkeep"
)

// world is everything that a seed decides: machines, the network, etcd, clients, and what happens
// to them.
type world struct {
	seed    uint64
	options Options
	trace   io.Writer
	began   time.Time

	mu      sync.Mutex
	events  []*event
	poke    chan struct{} // a token: there is another event
	made    uint64
	stamps  uint64 // of calls and answers of clients
	steps   int
	hash    hash.Hash64
	broken  error
	rng     *rand.Rand // of the world's own goroutine
	delays  *rand.Rand // of the duration of I/O; guarded by mu
	running sync.WaitGroup

	struck   []string // names of the faults, in order
	topics   []*declared
	deleted  []*declared
	outputs  []*declared // the Topics that Views write into
	deleting *declared   // the Topic that is being deleted, one at a time; nil: none
	machines []*machine
	network  *network
	jumps    bool     // clocks jump
	sourced  bool     // there are Topics with sources
	viewed   bool     // there are Topics with Views
	patient  bool     // the only fault is a hanging disk, on one machine at a time
	altered  *machine // the machine whose files were altered since all shards were whole; nil: none
	flipped  bool     // bits were flipped there, perhaps unnoticed
	forgot   bool     // etcd has forgotten a shard
	rolled   bool     // a rolled back copy has been made to lead
	anew     bool     // a manifest was lost beside a damaged leader
	emptied  int      // empty Topics that were deleted by hand because they waited for their logs
	// cursorsLost says that a folder of cursors was lost. A broker that opens the shard without it
	// does not notice.
	cursorsLost bool
	etcd        *etcd
	judge       *judge
	clients     []*client
	logged      *logbook

	old        bool         // a volume is rolled back by an hour (rollback.go)
	pace       atomic.Int64 // factor by which clients' pauses are longer than usual
	rolledBack int          // volumes that were rolled back by an hour
	still      atomic.Bool  // clients do nothing
	misled     bool         // all clocks were wrong at once

	trimmed    int           // reads of a log that limits had shortened
	taken      int           // reads that met records that compaction had removed
	compaction atomic.Uint64 // records that brokers removed by compaction
}

// event is a completion of I/O, or of a pause of the schedule. Its function runs on the world's
// goroutine and never blocks.
type event struct {
	due   time.Duration
	order uint64
	label string
	do    func()
}

// collectEvery is after how many steps garbage is collected: at the same steps in each run of a
// seed, and never between them.
const collectEvery = 10_000

// collectLooks is likewise after how many looks at a world that is to be whole.
const collectLooks = 20

func newWorld(seed uint64, o Options) *world {
	w := &world{seed: seed, options: o, trace: o.Trace, began: time.Now(), hash: fnv.New64a(),
		rng: rand.New(rand.NewPCG(seed, 1)), delays: rand.New(rand.NewPCG(seed, 2)), logged: &logbook{}, poke: make(chan struct{}, 1)}
	w.logged.w = w
	w.pace.Store(1)
	w.network, w.etcd, w.judge = newNetwork(w), newEtcd(w), newJudge(w)
	return w
}

func (w *world) now() time.Duration { return time.Since(w.began) }

// after calls do once d has passed and all earlier events have taken full effect.
func (w *world) after(d time.Duration, label string, do func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.made++
	w.events = append(w.events, &event{due: w.now() + d, order: w.made, label: label, do: do})
	select {
	case w.poke <- struct{}{}:
	default:
	}
}

// delay is a duration between two others, for I/O.
func (w *world) delay(from, to time.Duration) time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	return from + time.Duration(w.delays.Int64N(int64(to-from)+1))
}

// io blocks its caller until d has passed and the world lets it go on.
func (w *world) io(d time.Duration, label string) {
	done := make(chan struct{})
	w.after(d, label, func() { close(done) })
	<-done
}

// stamp orders what clients do and are told.
func (w *world) stamp() uint64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.stamps++
	return w.stamps
}

// next removes a due event, chosen by the seed, from the list. If none is due, it returns the time
// until the next one, or a negative wait if there is none.
func (w *world) next() (e *event, wait time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	now, due, first := w.now(), 0, time.Duration(-1)
	for i, e := range w.events {
		if e.due <= now {
			w.events[due], w.events[i] = w.events[i], w.events[due]
			due++
		} else if first < 0 || e.due < first {
			first = e.due
		}
	}
	if due == 0 {
		if first < 0 {
			return nil, -1
		}
		return nil, first - now
	}
	// The swaps above leave an order that depends on the list alone, which depends on the seed
	// alone.
	i := w.rng.IntN(due)
	e = w.events[i]
	last := len(w.events) - 1
	w.events[i] = w.events[last]
	w.events[last] = nil
	w.events = w.events[:last]
	return e, 0
}

// run processes events until a moment, until done returns true, or until a promise is broken.
func (w *world) run(until time.Duration, done func() bool) {
	for w.broken == nil {
		synctest.Wait() // until every goroutine waits for I/O or time
		if done != nil && done() {
			return
		}
		e, wait := w.next()
		if e == nil {
			left := until - w.now()
			if left <= 0 {
				return
			}
			w.sleep(wait, left)
			continue
		}
		if w.now() >= until && e.due > until {
			w.after(0, e.label, e.do)
			return
		}
		w.steps++
		w.note(e.label)
		e.do()
		if w.steps%collectEvery == 0 {
			synctest.Wait()
			collect()
		}
	}
}

// sleep lets time pass until the next event is due or a new event is added. wait is negative if no
// event is scheduled.
func (w *world) sleep(wait, left time.Duration) {
	if wait >= 0 {
		left = min(wait, left)
	}
	timer := time.NewTimer(left)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-w.poke:
	}
}

// note puts a line into the transcript.
func (w *world) note(line string) {
	fmt.Fprintf(w.hash, "%d %s\n", w.now(), line)
	if w.trace != nil {
		fmt.Fprintf(w.trace, "%12v  %s\n", w.now(), line)
	}
}

func (w *world) notef(format string, args ...any) { w.note(fmt.Sprintf(format, args...)) }

// fail records the first broken promise. Any goroutine may call it.
func (w *world) fail(format string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.broken == nil {
		w.broken = fmt.Errorf(format, args...)
	}
}

// compacted counts the records that a process removed by compaction.
func (w *world) compacted(did upkeep.Rewrites) { w.compaction.Add(did.Records) }

func (w *world) chance(percent int) bool { return w.rng.IntN(100) < percent }

func (w *world) between(from, to time.Duration) time.Duration {
	return from + time.Duration(w.rng.Int64N(int64(to-from)+1))
}

func (w *world) machine(id string) *machine {
	i := slices.IndexFunc(w.machines, func(m *machine) bool { return m.id == id })
	if i < 0 {
		return nil
	}
	return w.machines[i]
}

// collect collects garbage.
func collect() { runtime.GC() }

func sortConns(conns []*conn) {
	slices.SortFunc(conns, func(a, b *conn) int { return int(a.number) - int(b.number) })
}
