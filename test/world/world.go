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
	delays  *rand.Rand // of whoever asks for I/O; guarded by mu
	running sync.WaitGroup

	struck   []string // names of the faults, in order
	topics   []*declared
	deleted  []*declared
	deleting *declared // nil: none; only one is at a time
	machines []*machine
	network  *network
	jumps    bool     // clocks jump
	patient  bool     // nothing strikes but disks that hang, one after the other
	spoilt   *machine // whose disk lost or changed something since all was whole; nil: none
	flipped  bool     // and nobody may have noticed
	forgot   bool     // etcd has forgotten a shard
	rolled   bool     // a copy that was rolled back was to lead
	emptied  int      // empty Topics that a person deleted, since they waited for their logs
	// cursorsLost says that a folder of cursors was lost. A broker that opens the shard without it
	// doesn't notice.
	cursorsLost bool
	etcd        *etcd
	judge       *judge
	clients     []*client
	logged      *logbook

	old        bool         // there is an hour, at whose end a volume is rolled back to its beginning
	pace       atomic.Int64 // by how much longer clients pause than they would otherwise
	rolledBack int          // volumes that were rolled back by an hour

	trimmed    int           // how often a reader saw a log that limits had shortened
	taken      int           // and records that compaction had taken
	compaction atomic.Uint64 // how many records brokers removed by compaction
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
const collectEvery = 20_000

func newWorld(seed uint64, o Options) *world {
	w := &world{seed: seed, options: o, trace: o.Trace, began: time.Now(), hash: fnv.New64a(),
		rng: rand.New(rand.NewPCG(seed, 1)), delays: rand.New(rand.NewPCG(seed, 2)), logged: &logbook{}, poke: make(chan struct{}, 1)}
	w.logged.w = w
	w.pace.Store(1)
	w.network, w.etcd, w.judge = newNetwork(w), newEtcd(w), newJudge(w)
	return w
}

func (w *world) now() time.Duration { return time.Since(w.began) }

// after has do called when d has passed, not before everything that happens earlier has had all its
// effects.
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

// next takes an event that is due, chosen by the seed, out of the list. Without one it says how
// long it is until the next.
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

// run lets things happen until a moment, or until done says so, or something broke.
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

// sleep lets time go on until something is due, what comes up meanwhile included. wait is negative
// if nothing is to come yet.
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

// fail notes the first thing that broke. Any goroutine may call it.
func (w *world) fail(format string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.broken == nil {
		w.broken = fmt.Errorf(format, args...)
	}
}

// compacted notes what a process did by compaction.
func (w *world) compacted(did upkeep.Compacted) { w.compaction.Add(did.Records) }

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
