package viewing

import (
	"cmp"
	"context"
	"log/slog"
	"reflect"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/carillon-mq/carillon/broker/log"
	"github.com/carillon-mq/carillon/broker/protocol"
	"github.com/carillon-mq/carillon/broker/publish"
	"github.com/carillon-mq/carillon/broker/view"
	"github.com/carillon-mq/carillon/broker/work"
)

// Shard is a shard that this broker leads. *topic.ShardLeader implements it.
type Shard interface {
	comparable
	Name() string
	// Offsets returns the offsets that readers see: start ≤ offset < end.
	Offsets() (start, end uint64)
	// Scan calls f with some records, as a records.Reader does.
	Scan(from, end uint64, budget int64, f func(r *log.Record) bool) (done bool, err error)
	// Watch calls changed after end has moved, until stop.
	Watch(changed func()) (stop func())
	// Unreadable judges why the state log can't be read. After a *log.CorruptError no replica has it.
	Unreadable(err error) error
	// State returns the state log, and AppendState appends to it. a.Done is called when the append is
	// as durable on all in-sync replicas as a asks, or has failed.
	State() *log.Log
	AppendState(a *log.Append) (first uint64, err error)
	// LastFor reads the last record of a subject.
	LastFor(subject string) (log.Record, error)
	// Confirm confirms that no newer leader had begun to lead when it was called: now, or with a later
	// call of done.
	Confirm(done func(err error)) (now bool)
}

// Config is what a Service needs.
type Config[S Shard] struct {
	Self string // id of this broker
	// Led returns the shards that this broker leads and that are readable.
	Led func() []S
	// Changed returns a channel that is closed when one of them, or a view, may have changed.
	Changed func() <-chan struct{}
	// Of returns where a shard is, and the views of its Topic.
	Of func(shard S) (Place, []*Declared)
	// Shard returns the shard of a Topic with an id if this broker leads it and it is readable, and
	// which broker leads it otherwise; empty: none.
	Shard func(topic string, number int) (shard S, here bool, leader string)
	// Locate returns where a Topic of a name keeps a subject, or why it doesn't.
	Locate func(topic string, subject []byte) (id string, number int, err error)
	// Append publishes a message into a Topic on behalf of a user. done is called once, with its
	// offset.
	Append func(user, topic string, m *protocol.Message, done func(offset uint64, err error))
	// MayRead reports whether a user may still have all that a filter of subjects leaves of a Topic.
	MayRead func(user, topic string, filter []string) bool
	// Durability returns that of a shard's Topic.
	Durability func(shard S) log.Durability
	// Trim has the state log of a shard trimmed if it is worth it: that many bytes of views are not
	// needed there.
	Trim func(shard S, bytes int64)
	// Now returns the time of records. sure: it is not in doubt.
	Now func() (now time.Time, sure bool)
	Hub publish.Hub
	// Payload is how large a message between brokers may be.
	Payload int
	// Memory is how many bytes all parts and owners take. Beyond it they wait.
	Memory int64
	// SaveEvery is after how much time a part that has changed writes a checkpoint; 0: saveEvery.
	// Simulations, which last some seconds, have a shorter one.
	SaveEvery time.Duration
	Logger    *slog.Logger
}

// Service keeps the views of all shards that this broker leads, and is the owner of those whose
// Topic's first shard is led here. Its methods are safe for concurrent use.
type Service[S Shard] struct {
	Config[S]
	ctx     context.Context
	stop    context.CancelFunc
	running sync.WaitGroup
	offer   publish.Offer
	turns   chan struct{} // one for each part that reads
	encodes chan struct{} // one for each checkpoint that is in memory
	link    link
	chunk   int // chunkBytes, except in tests
	// maxParts, maxOwners and waitingBytes are those of limits.go, except in tests.
	maxParts, maxOwners, waitingBytes int

	budget            // of Config.Memory, except in tests
	ownersHere        atomic.Int64
	saves, savedBytes atomic.Uint64
	written, alerts   atomic.Uint64 // messages that owners have appended
	restarts          atomic.Uint64 // of owners
	waiting           atomic.Int64  // views that there is no room for

	mu      sync.Mutex
	ledgers map[S]*ledger
	runs    map[runKey[S]]*run[S]
	begun   uint64 // runs
}

// runKey is a view of a shard, or the owner of a view that is at its shard.
type runKey[S Shard] struct {
	shard S
	name  string
	owner bool
}

// run is a goroutine of a part or an owner.
type run[S Shard] struct {
	of     *Declared
	number uint64 // of all runs
	ctx    context.Context
	stop   context.CancelFunc
	ended  chan struct{}
	part   *part[S]  // or
	owner  *owner[S] // nil: as long as it can't be compiled
}

// ledger is what is known of a state log.
type ledger struct {
	// entry is held from when the shard was led on, and after a part has ended, until all parts hold
	// what they need; nil then.
	entry *log.Hold

	mu    sync.Mutex
	found map[key]*saved // nil: it was not read, or that is old
	used  map[key]bool   // of found: parts have begun with them
	at    time.Time
}

// New returns a Service. Start starts it.
func New[S Shard](config Config[S]) *Service[S] {
	if config.Logger == nil {
		config.Logger = slog.New(slog.DiscardHandler)
	}
	if config.SaveEvery == 0 {
		config.SaveEvery = saveEvery
	}
	s := &Service[S]{Config: config, turns: make(chan struct{}, max(1, runtime.GOMAXPROCS(0)/2)), encodes: make(chan struct{}, encodesAtOnce), chunk: chunkBytes, maxParts: maxParts, maxOwners: maxOwners, waitingBytes: waitingBytes,
		ledgers: map[S]*ledger{}, runs: map[runKey[S]]*run[S]{}}
	s.ctx, s.stop = context.WithCancel(context.Background())
	s.budget.init(config.Memory)
	s.link.init(&s.budget)
	return s
}

// Start begins to keep views.
func (s *Service[S]) Start() {
	s.offer = s.Hub.Offer(s)
	s.offer.Set([]string{prefix + ">"})
	s.running.Go(func() {
		poll := work.Poll{Often: often, Rarely: rarely, Lively: lively, Changed: s.Changed}
		for some := false; poll.Wait(s.ctx, some); {
			some = s.look()
		}
	})
}

// Close stops all, and waits for that.
func (s *Service[S]) Close() {
	if s.offer != nil {
		s.offer.Close()
	}
	s.mu.Lock() // no question begins to be answered any more, and no run begins
	s.stop()
	s.stopRuns(func(runKey[S]) bool { return true })
	s.mu.Unlock()
	s.running.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, l := range s.ledgers {
		l.release()
	}
}

// Leading notes that this broker leads a shard, and everything in its state log is on all in-sync
// replicas, or that it doesn't lead it any more. It precedes others that may trim the state log.
func (s *Service[S]) Leading(shard S, open bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !open {
		if l := s.ledgers[shard]; l != nil {
			l.release()
			delete(s.ledgers, shard)
		}
		s.stopRuns(func(at runKey[S]) bool { return at.shard == shard })
		return
	}
	if _, views := s.Of(shard); len(views) > 0 && s.ctx.Err() == nil {
		s.ledgerOf(shard)
	}
}

// ledgerOf returns the ledger of a shard. mu is held.
func (s *Service[S]) ledgerOf(shard S) *ledger {
	l := s.ledgers[shard]
	if l == nil {
		state := shard.State()
		l = &ledger{entry: state.Hold(state.Start())}
		s.ledgers[shard] = l
	}
	return l
}

func (l *ledger) release() {
	if l.entry != nil {
		l.entry.Release()
		l.entry = nil
	}
}

// leave keeps what a part has held of a state log until its successor holds it, or there is none.
func (s *Service[S]) leave(shard S, hold *log.Hold) {
	s.mu.Lock()
	defer s.mu.Unlock()
	l := s.ledgers[shard]
	if l == nil || l.entry != nil && l.entry.Offset() <= hold.Offset() {
		hold.Release()
		return
	}
	l.release()
	l.entry = hold
}

// find returns what the state log of a shard has of a view, or nil.
func (s *Service[S]) find(ctx context.Context, shard S, k key) (*saved, error) {
	s.mu.Lock()
	if ctx.Err() != nil {
		s.mu.Unlock()
		return nil, ctx.Err()
	}
	l := s.ledgerOf(shard)
	s.mu.Unlock()
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.found == nil || l.used[k] || time.Since(l.at) > freshFor {
		found, err := find(shard)
		if err != nil {
			return nil, err
		}
		l.found, l.used, l.at = found, map[key]bool{}, time.Now()
	}
	is := l.found[k]
	delete(l.found, k)
	l.used[k] = true // the part writes what is later
	return is, nil
}

// forget has the state log of a shard read again.
func (s *Service[S]) forget(shard S) {
	s.mu.Lock()
	l := s.ledgers[shard]
	s.mu.Unlock()
	if l != nil {
		l.mu.Lock()
		l.found = nil
		l.mu.Unlock()
	}
}

// look begins what is not kept yet, and stops what is not led here any more or has changed. It
// reports whether there is anything.
func (s *Service[S]) look() bool {
	s.link.tidy()
	s.mu.Lock()
	defer s.mu.Unlock()
	parts, owners := 0, 0
	for at, r := range s.runs {
		select {
		case <-r.ended:
			delete(s.runs, at)
			s.holders.Add(-1)
			continue
		default:
		}
		if at.owner {
			owners++
			r.owner.expire()
		} else {
			parts++
		}
	}
	waiting, seen := 0, map[runKey[S]]bool{}
	for _, is := range s.viewed() {
		shard, place := is.shard, is.place
		settled := true
		for _, of := range is.views {
			at := runKey[S]{shard: shard, name: of.Name}
			seen[at] = s.same(at, of)
			if s.runs[at] == nil {
				if parts >= s.maxParts {
					waiting++
				} else if s.begin(at, place, of) {
					parts, seen[at] = parts+1, true
				}
			}
			if r := s.runs[at]; r == nil {
				settled = settled && !s.waitsFor(shard)
			} else if !r.part.held.Load() {
				settled = false
			}
			if place.Number != 0 {
				continue
			}
			at.owner = true
			if seen[at] = s.same(at, of); s.runs[at] == nil {
				if owners >= s.maxOwners {
					waiting++
				} else if s.begin(at, place, of) {
					owners, seen[at] = owners+1, true
				}
			}
		}
		if l := s.ledgers[shard]; l != nil && settled {
			l.release()
		}
	}
	s.stopRuns(func(at runKey[S]) bool { return !seen[at] })
	s.waiting.Store(int64(waiting))
	s.ownersHere.Store(int64(owners))
	return len(s.runs) > 0
}

// ledShard is a shard that is led here, with the views of its Topic.
type ledShard[S Shard] struct {
	shard S
	place Place
	views []*Declared
}

// viewed returns the shards with views that are led here, in the order of their Topics' ids and
// their numbers: so the same ones wait as long as there is no room. The state logs of others are
// not held. mu is held.
func (s *Service[S]) viewed() (all []ledShard[S]) {
	for _, shard := range s.Led() {
		if place, views := s.Of(shard); len(views) > 0 {
			all = append(all, ledShard[S]{shard, place, views})
		} else if l := s.ledgers[shard]; l != nil {
			l.release()
		}
	}
	slices.SortFunc(all, func(a, b ledShard[S]) int {
		return cmp.Or(cmp.Compare(a.place.Topic, b.place.Topic), cmp.Compare(a.place.Number, b.place.Number))
	})
	return all
}

// waitsFor reports whether the state log of a shard is held for views that are not kept. mu is
// held.
func (s *Service[S]) waitsFor(shard S) bool {
	l := s.ledgers[shard]
	if l == nil || l.entry == nil {
		return false
	}
	state := shard.State()
	_, end, _ := state.Offsets()
	return state.BytesBetween(l.entry.Offset(), end) <= int64(s.waitingBytes)
}

// same reports whether a run is of a view as it is declared. mu is held.
func (s *Service[S]) same(at runKey[S], of *Declared) bool {
	r := s.runs[at]
	return r != nil && r.ctx.Err() == nil && (r.of == of || reflect.DeepEqual(r.of, of))
}

// stopRuns stops some runs, in the order in which they began. mu is held.
func (s *Service[S]) stopRuns(which func(at runKey[S]) bool) {
	var some []*run[S]
	for at, r := range s.runs {
		if which(at) {
			some = append(some, r)
		}
	}
	slices.SortFunc(some, func(a, b *run[S]) int { return cmp.Compare(a.number, b.number) })
	for _, r := range some {
		r.stop()
	}
}

// begin begins a part or an owner. It reports false if the service is closed, or the view can't be
// compiled, which its declaration precludes. mu is held.
func (s *Service[S]) begin(at runKey[S], place Place, of *Declared) bool {
	if s.ctx.Err() != nil {
		return false
	}
	v, err := view.Compile(of.Spec)
	if err != nil {
		s.Logger.Error("a view can't be kept by this version", "view", of.Name, "error", err)
		return false
	}
	s.begun++
	r := &run[S]{of: of, number: s.begun, ended: make(chan struct{})}
	r.ctx, r.stop = context.WithCancel(context.Background()) // Close stops it, in its turn
	keep := func(context.Context) {}
	if at.owner {
		r.owner = newOwner(s, place, of, v)
		keep = r.owner.run
	} else {
		r.part = &part[S]{service: s, shard: at.shard, place: place, of: of, view: v, key: keyOf(of, v), wake: make(chan struct{}, 1)}
		keep = r.part.run
	}
	s.runs[at] = r
	s.holders.Add(1)
	s.running.Go(func() {
		defer close(r.ended)
		defer r.stop()
		keep(r.ctx)
	})
	return true
}

// part returns the part of a view at a shard that is led here, or nil.
func (s *Service[S]) part(shard S, name string) *part[S] {
	s.mu.Lock()
	defer s.mu.Unlock()
	if r := s.runs[runKey[S]{shard: shard, name: name}]; r != nil && r.ctx.Err() == nil {
		return r.part
	}
	return nil
}

// owner returns the owner of a view of a Topic if it is here, or nil.
func (s *Service[S]) owner(shard S, name string) *owner[S] {
	s.mu.Lock()
	defer s.mu.Unlock()
	if r := s.runs[runKey[S]{shard, name, true}]; r != nil && r.ctx.Err() == nil {
		return r.owner
	}
	return nil
}
