package replica

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"log/slog"
	"maps"
	"math/rand/v2"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/carillon-mq/carillon/broker/clock"
	"github.com/carillon-mq/carillon/broker/coordination"
	"github.com/carillon-mq/carillon/broker/env"
	"github.com/carillon-mq/carillon/broker/env/crashfs"
	"github.com/carillon-mq/carillon/broker/log"
)

var orders = ID{Topic: "orders"}

// world is a cluster on a virtual clock: brokers with disks in memory, wires between them, and what
// etcd holds. A test is the controller.
type world struct {
	t          testing.TB
	wires      *wires
	store      *store
	nodes      map[string]*node
	minInSync  int
	durability log.Durability
	options    log.Options
	clocks     map[string]*clock.Clock
	dial       func(ctx context.Context, from, to string) (net.Conn, error) // nil: over wires
	lookRate   int64                                                        // how fast leaders read their whole logs, in bytes per second; 0: as fast as in use
	// contradicted is what Contradicted calls; nil: nothing is contradicted.
	contradicted func(n *node, why string)
	// moved is what Moved calls; it may be nil.
	moved func(l *Leading)
}

// story runs a test in a world with these brokers.
func story(t *testing.T, brokers string, tell func(w *world)) {
	slowStory(t, brokers, 0, tell)
}

// slowStory is story, with leaders that read their whole logs at this rate.
func slowStory(t *testing.T, brokers string, lookRate int64, tell func(w *world)) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "")
		defer w.end()
		w.lookRate = lookRate
		w.startAll(brokers)
		tell(w)
	})
}

func newWorld(t testing.TB, brokers string) *world {
	w := &world{t: t, wires: newWires(), store: newStore(), nodes: map[string]*node{}, minInSync: 1,
		options: log.Options{SegmentSmallest: 8 << 10, SegmentLargest: 64 << 10, TailBytes: 64 << 10}}
	w.startAll(brokers)
	return w
}

// startAll starts these brokers on new disks.
func (w *world) startAll(brokers string) {
	for id := range strings.FieldsSeq(brokers) {
		w.start(id, crashfs.New())
	}
}

func (w *world) end() {
	for _, n := range w.nodes {
		n.stop()
	}
	w.wires.carriers.Wait()
}

// node is one broker's process.
type node struct {
	w    *world
	id   string
	fs   env.FS
	disk *log.Disk
	x    *Exchange
	logs map[ID][Parts]*log.Log
	out  bytes.Buffer
	dead bool

	inDoubt atomic.Bool // its copies

	mu      sync.Mutex
	leads   map[ID]*Leading
	follows map[ID]*Following
	moved   int
	failed  []error

	unreadable []error // what could not be read for followers
}

// start begins a process on a disk and registers it.
func (w *world) start(id string, fs env.FS) *node {
	n := &node{w: w, id: id, fs: fs, logs: map[ID][Parts]*log.Log{}, leads: map[ID]*Leading{}, follows: map[ID]*Following{}}
	dial := w.wires.dial
	if w.dial != nil {
		dial = w.dial
	}
	n.x = NewExchange(Config{
		Self: id, Store: w.store, Clock: w.clocks[id],
		Dial:   func(ctx context.Context, to string) (net.Conn, error) { return dial(ctx, id, to) },
		Logger: slog.New(slog.NewTextHandler(&n.out, &slog.HandlerOptions{Level: slog.LevelDebug})),
	})
	if w.lookRate > 0 {
		n.x.lookPace = log.NewPace(w.lookRate)
	}
	options := w.options
	options.Committed = func(bool) { n.x.Committed() }
	dir := "data"
	if _, real := fs.(*crashfs.FS); !real {
		dir = w.t.TempDir()
	}
	disk, err := log.OpenDisk(fs, dir, options)
	if err != nil {
		w.t.Fatal(err)
	}
	n.disk = disk
	w.nodes[id] = n
	w.wires.mu.Lock()
	w.wires.serve[id] = n.x.Serve
	w.wires.mu.Unlock()
	w.store.register(id)
	w.spread()
	return n
}

// stop ends a process in order.
func (n *node) stop() {
	if n.dead {
		return
	}
	n.dead = true
	n.w.wires.mu.Lock()
	delete(n.w.wires.serve, n.id)
	n.w.wires.mu.Unlock()
	n.x.Close()
	_ = n.disk.Close()
}

// kill ends a process at once, as a power cut does, and gives its disk as it is found afterwards.
func (n *node) kill() env.FS {
	fs := n.fs.(*crashfs.FS)
	fs.StopAfter(0)
	n.w.wires.reset(n.id)
	n.stop()
	n.w.store.gone(n.id)
	delete(n.w.nodes, n.id)
	n.w.spread()
	return fs.Crash(rand.New(rand.NewPCG(1, 1)))
}

// place writes who serves a shard, as the controller does, and lets everybody know. Words are: who
// leads, then the other replicas; one in brackets is not in sync.
func (w *world) place(id ID, epoch int64, words string) {
	shard := coordination.Shard{Topic: id.Topic, Number: id.Shard, Epoch: epoch}
	for word := range strings.FieldsSeq(words) {
		broker := strings.Trim(word, "()")
		shard.Replicas = append(shard.Replicas, broker)
		if broker == word {
			shard.InSync = append(shard.InSync, coordination.Replica{Broker: broker, Incarnation: w.store.lives()[broker]})
		}
		if shard.Leader == "" {
			shard.Leader = broker
		}
	}
	w.store.put(&shard)
	w.spread()
}

// spread lets all brokers see what etcd has.
func (w *world) spread() {
	for _, id := range slices.Sorted(maps.Keys(w.nodes)) {
		w.nodes[id].see()
	}
}

// see does what a broker does when it hears of a new state.
func (n *node) see() {
	state := n.w.store.state()
	n.x.Observe(state)
	for shard := range state.AllShards() {
		if slices.Contains(shard.Replicas, n.id) {
			n.adopt(shard)
		}
	}
}

func (n *node) adopt(shard *coordination.Shard) {
	id := ID{shard.Topic, shard.Number}
	n.mu.Lock()
	l, f := n.leads[id], n.follows[id]
	n.mu.Unlock()
	switch {
	case shard.Leader == n.id && l != nil && l.epoch == shard.Epoch:
		l.Adopt(shard, n.w.minInSync)
	case shard.Leader == n.id:
		var high [Parts]uint64
		if f != nil {
			high = [Parts]uint64{f.High(Data), f.High(State)}
			f.End()
		}
		if l != nil {
			high = [Parts]uint64{l.High(Data), l.High(State)}
			l.End()
		}
		l = n.x.Lead(LeadConfig{ID: id, Shard: shard, MinInSync: n.w.minInSync, Durability: n.w.durability, Logs: n.open(id), High: high,
			Unreadable: func(err error) { n.mu.Lock(); n.unreadable = append(n.unreadable, err); n.mu.Unlock() },
			Moved: func() {
				n.mu.Lock()
				n.moved++
				l := n.leads[id]
				n.mu.Unlock()
				if n.w.moved != nil && l != nil {
					n.w.moved(l)
				}
			}})
		n.mu.Lock()
		n.leads[id] = l
		delete(n.follows, id)
		n.mu.Unlock()
	case f != nil:
		f.Adopt(shard)
	default:
		if l != nil {
			l.End()
		}
		config := FollowConfig{ID: id, Shard: shard, Durability: n.w.durability, Logs: n.open(id),
			Failed: func(err error) { n.mu.Lock(); n.failed = append(n.failed, err); n.mu.Unlock() }}
		if n.w.contradicted != nil {
			config.Contradicted, config.InDoubt = func(why string) { n.w.contradicted(n, why) }, n.inDoubt.Load
		}
		f := n.x.Follow(config)
		n.mu.Lock()
		n.follows[id] = f
		delete(n.leads, id)
		n.mu.Unlock()
	}
}

func (n *node) open(id ID) [Parts]*log.Log {
	logs, ok := n.logs[id]
	if ok {
		return logs
	}
	for p, part := range []string{"", "state"} {
		l, err := n.disk.Open(log.Identity{Topic: id.Topic, Shard: id.Shard, Part: part}, 1, 1, nil)
		if err != nil {
			n.w.t.Fatal(err)
		}
		logs[p] = l
	}
	n.logs[id] = logs
	return logs
}

// local is told when an append is safe at the leader.
type local struct {
	l *Leading
	p Part
}

func (c local) Committed(_, end uint64, err error) {
	if err == nil {
		c.l.Safe(c.p, end)
	}
}

// append appends batches of one record at the leader of a shard.
func (n *node) append(id ID, p Part, promised bool, texts ...string) (end uint64) {
	n.w.t.Helper()
	n.mu.Lock()
	l := n.leads[id]
	n.mu.Unlock()
	for _, text := range texts {
		a := &log.Append{Epoch: uint64(l.epoch), Records: []log.Record{{Subject: []byte("orders"), Data: []byte(text)}}, Durability: log.Memory}
		if promised {
			a.Durability, a.Done = n.w.durability, local{l, p}
		}
		first, err := n.logs[id][p].Append(a)
		if err != nil {
			n.w.t.Fatal(err)
		}
		end = first + 1
		l.Appended(p, end, promised)
	}
	return end
}

func numbered(n int) (texts []string) {
	for i := range n {
		texts = append(texts, fmt.Sprintf("record %d", i))
	}
	return texts
}

// publish appends and waits until all of it is acknowledged.
func (n *node) publish(id ID, texts ...string) {
	n.w.t.Helper()
	end := n.append(id, Data, true, texts...)
	n.w.within(5*time.Second, "the watermark reaches the end", func() bool { return n.leads[id].High(Data) >= end })
}

// within waits for a condition, and fails if it doesn't come about in that time.
func (w *world) within(limit time.Duration, what string, condition func() bool) time.Duration {
	w.t.Helper()
	began := time.Now()
	for !condition() {
		if time.Since(began) > limit {
			for _, id := range slices.Sorted(maps.Keys(w.nodes)) {
				n := w.nodes[id]
				for shard, l := range n.leads {
					w.t.Logf("%s leads %v: in sync %v, high %d %d, %+v", id, shard, l.InSync(), l.High(Data), l.High(State), l.Followers())
				}
				for shard, f := range n.follows {
					ok, why := f.State()
					w.t.Logf("%s follows %v: %v %s", id, shard, ok, why)
				}
				for shard, logs := range n.logs {
					w.t.Logf("%s has %v: %+v %+v", id, shard, LineageOf(logs[Data]), LineageOf(logs[State]))
				}
				w.t.Logf("%s said:\n%s", id, n.out.String())
			}
			w.t.Fatalf("not within %v: %s", limit, what)
		}
		time.Sleep(time.Millisecond)
	}
	return time.Since(began)
}

// inSync reports whether the set is exactly these brokers, each in the life it has now.
func (w *world) inSync(id ID, brokers string) bool {
	shard := w.store.shard(id)
	var want []coordination.Replica
	for b := range strings.FieldsSeq(brokers) {
		want = append(want, coordination.Replica{Broker: b, Incarnation: w.store.lives()[b]})
	}
	return same(want, shard.InSync)
}

// batches are what a log retains from an offset on: where each begins, its epoch and checksum.
func batches(t testing.TB, l *log.Log, start uint64) (all []string) {
	t.Helper()
	_, end, _ := l.Offsets()
	for c := l.NewCursor(start); c.Next() < end; {
		v, err := c.Read(64 << 10)
		if err != nil {
			t.Fatal(err)
		}
		for b, ok := v.Next(); ok; b, ok = v.Next() {
			all = append(all, fmt.Sprintf("%d@%d %08x", b.Base(), b.Epoch(), crc32.ChecksumIEEE(b)))
		}
		v.Release()
	}
	return all
}

// equal reports whether all those brokers have the same batches of a shard, from where all of them
// retain them.
func (w *world) equal(id ID, brokers string) bool {
	for p := range Parts {
		start := uint64(0)
		for b := range strings.FieldsSeq(brokers) {
			start = max(start, w.nodes[b].logs[id][p].Start())
		}
		var first []string
		for i, b := range strings.Fields(brokers) {
			got := batches(w.t, w.nodes[b].logs[id][p], start)
			if i == 0 {
				first = got
			} else if !slices.Equal(first, got) {
				return false
			}
		}
	}
	return true
}

// store is what etcd holds, without etcd.
type store struct {
	mu       sync.Mutex
	revision int64
	brokers  map[string]int64
	shards   map[ID]*coordination.Shard
	swaps    int
	reads    int
	down     bool
	lose     int // answers of swaps that get lost
}

func newStore() *store {
	return &store{revision: 10, brokers: map[string]int64{}, shards: map[ID]*coordination.Shard{}}
}

func (s *store) register(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.revision++
	s.brokers[id] = s.revision
}

func (s *store) gone(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.brokers, id)
}

func (s *store) lives() map[string]int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return maps.Clone(s.brokers)
}

func (s *store) put(shard *coordination.Shard) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.revision++
	shard.Revision = s.revision
	s.shards[ID{shard.Topic, shard.Number}] = shard
}

func (s *store) shard(id ID) *coordination.Shard {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.shards[id]
}

func (s *store) state() *coordination.State {
	s.mu.Lock()
	defer s.mu.Unlock()
	var brokers []coordination.Broker
	for id, incarnation := range s.brokers {
		brokers = append(brokers, coordination.Broker{ID: id, Incarnation: incarnation})
	}
	return coordination.NewState(s.revision, brokers, nil, slices.Collect(maps.Values(s.shards)), nil)
}

var errDown = errors.New("etcd has no leader")

// Vouch, Withdraw and Resign are those of coordination.Client.
func (s *store) Vouch(_ context.Context, self coordination.Replica, before *coordination.Shard, _ coordination.Reach, leads bool) (*coordination.Shard, error) {
	return s.say(self, before, self.Incarnation, !leads)
}

func (s *store) Withdraw(_ context.Context, self coordination.Replica, before *coordination.Shard) (*coordination.Shard, error) {
	return s.say(self, before, 0, true)
}

func (s *store) Resign(_ context.Context, self coordination.Replica, before *coordination.Shard) (*coordination.Shard, error) {
	return s.say(self, before, self.Incarnation, true)
}

func (s *store) say(self coordination.Replica, before *coordination.Shard, incarnation int64, unled bool) (*coordination.Shard, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	id := ID{before.Topic, before.Number}
	if s.down {
		return nil, errDown
	}
	if s.shards[id].Revision != before.Revision || s.brokers[self.Broker] != self.Incarnation {
		return nil, &coordination.StaleError{What: before.String()}
	}
	after := *before
	after.InSync = slices.Clone(before.InSync)
	for i := range after.InSync {
		if after.InSync[i].Broker == self.Broker {
			after.InSync[i].Incarnation = incarnation
		}
	}
	if unled && after.Leader == self.Broker {
		after.Leader = ""
	}
	s.revision++
	after.Revision = s.revision
	s.shards[id] = &after
	return &after, nil
}

func (s *store) SwapInSync(ctx context.Context, self coordination.Replica, before *coordination.Shard, inSync []coordination.Replica) (*coordination.Shard, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.down {
		return nil, errDown
	}
	s.swaps++
	id := ID{before.Topic, before.Number}
	stale := s.shards[id].Revision != before.Revision || s.brokers[self.Broker] != self.Incarnation
	for _, m := range inSync {
		stale = stale || !slices.Contains(before.InSync, m) && s.brokers[m.Broker] != m.Incarnation
	}
	if stale {
		return nil, &coordination.StaleError{What: before.String()}
	}
	after := *before
	after.InSync = slices.Clone(inSync)
	s.revision++
	after.Revision = s.revision
	s.shards[id] = &after
	if s.lose > 0 {
		s.lose--
		return nil, errDown
	}
	done := after
	return &done, nil
}

func (s *store) ReadShards(ctx context.Context, topicID string) (all []*coordination.Shard, revision int64, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.down {
		return nil, 0, errDown
	}
	s.reads++
	for id, shard := range s.shards {
		if id.Topic == topicID {
			all = append(all, shard)
		}
	}
	return all, s.revision, nil
}
