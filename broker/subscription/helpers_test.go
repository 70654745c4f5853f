package subscription

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math"
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
	"github.com/carillon-mq/carillon/broker/removal"
	"github.com/carillon-mq/carillon/broker/stamping"
	"github.com/carillon-mq/carillon/broker/subject"
	"github.com/carillon-mq/carillon/broker/topic"
	"github.com/carillon-mq/carillon/internal/testutil"
)

func TestMain(m *testing.M) { testutil.RunWithoutLeaks(m) }

// shard is a Source of two logs. Everything synced is readable.
type shard struct {
	t           testing.TB
	data, state *log.Log
	gone        removal.Set
	epoch       uint64 // of what is appended
	inherited   uint64 // end of data when this was made

	mu       sync.Mutex
	watchers map[int]func()
	watches  int
	asked    func()                          // called once, at the next Offsets
	hold     chan struct{}                   // until it is closed, no append to state is reported as durable
	judge    func(err error) error           // judges read errors; nil: no other replica
	counting func(ctx context.Context) error // the index when it counts; nil: it is ready

	removed      removal.Set
	removing     removal.Pending // guarded by mu
	removalBytes atomic.Uint64
	holdRemovals chan struct{} // until it is closed, no removal is reported as durable
	refuse       error         // of AppendState; nil: it appends
	releases     bool          // removals hide records, also those of former lives
	// The error of Remove, and that with which its result is reported; nil: none.
	refuseRemovals, loseRemovals error
}

func (s *shard) Removed() *removal.Set { return &s.gone }

func (s *shard) Unreadable(err error) error {
	if s.judge == nil {
		return err
	}
	return s.judge(err)
}

func (s *shard) Offsets() (start, end uint64) {
	start, _, end = s.data.Offsets()
	s.mu.Lock()
	asked := s.asked
	s.asked = nil
	s.mu.Unlock()
	if asked != nil {
		asked()
	}
	return start, end
}

// Count reads the log.
func (s *shard) Count(ctx context.Context, _ time.Duration, patterns []string, from, end uint64) (n uint64, err error) {
	if s.counting != nil {
		if err := s.counting(ctx); err != nil {
			return 0, err
		}
	}
	for c := s.data.NewCursor(from); c.Next() < end; {
		v, err := c.Read(64 << 10)
		if err != nil {
			return 0, err
		}
		for b, ok := v.Next(); ok; b, ok = v.Next() {
			it := b.Records()
			for r := (log.Record{}); it.Next(&r); {
				if r.Offset >= from && r.Offset < end && !s.gone.Has(r.Offset) && slices.ContainsFunc(patterns, func(p string) bool { return subject.Matches([]byte(p), r.Subject) }) {
					n++
				}
			}
		}
		v.Release()
	}
	return n, nil
}

func (s *shard) NewCursor(from uint64) *log.Cursor { return s.data.NewCursor(from) }
func (s *shard) State() *log.Log                   { return s.state }
func (s *shard) Data() *log.Log                    { return s.data }
func (s *shard) Inherited() uint64                 { return s.inherited }

func (s *shard) AppendState(a *log.Append) (first uint64, err error) {
	s.mu.Lock()
	hold, refused := s.hold, s.refuse
	s.mu.Unlock()
	if refused != nil {
		return 0, refused
	}
	if done := a.Done; hold != nil && done != nil {
		a.Done = held{done, hold}
	}
	a.Epoch = s.epoch
	return s.state.Append(a)
}

// RemovalItems yields all removals of the state log, as a leader does.
func (s *shard) RemovalItems(yield func(log.Record) bool) {
	s.mu.Lock()
	spans := s.removing.Spans()
	s.mu.Unlock()
	for from, next := range s.removed.Ranges(0, math.MaxUint64) {
		if s.releases {
			spans = slices.AppendSeq(spans, removal.Split(from, next, s.data.EpochAt))
		} else {
			spans = append(spans, removal.Span{Epoch: 1, From: from, Next: next})
		}
	}
	for item := range removal.Items(slices.Values(spans)) {
		if !yield(log.Record{Subject: []byte(removal.Subject), Data: item}) {
			return
		}
	}
}

func (s *shard) RemovalBytes() uint64 { return s.removalBytes.Load() }

// shardRemoval is a removal on its way to the state log.
type shardRemoval struct {
	removal.Removal
	shard *shard
	done  func(error)
}

// remove removes one offset. done is called when that is durable.
func (s *shard) remove(offset uint64, done func()) error {
	return s.log([]removal.Span{{Epoch: 1, From: offset, Next: offset + 1}}, func(err error) {
		if err == nil {
			done()
		}
	})
}

// Remove removes records, as a leader does: readers don't see them any more.
func (s *shard) Remove(spans []removal.Span, done func(error)) error {
	spans = slices.Clone(spans)
	s.mu.Lock()
	refused, lost := s.refuseRemovals, s.loseRemovals
	s.mu.Unlock()
	switch {
	case refused != nil:
		return refused
	case lost != nil:
		done(lost)
		return nil
	}
	return s.log(spans, func(err error) {
		if err == nil {
			for _, span := range spans {
				s.gone.Add(span.From, span.Next)
			}
			s.moved()
		}
		done(err)
	})
}

// log writes a removal to the state log.
func (s *shard) log(spans []removal.Span, done func(error)) error {
	r := &shardRemoval{removal.Removal{Spans: spans}, s, done}
	item := removal.AppendItem(nil, r.Spans...)
	s.mu.Lock()
	s.removing.Add(&r.Removal)
	s.mu.Unlock()
	a := log.Append{Epoch: s.epoch, Done: r, Records: []log.Record{{Subject: []byte(removal.Subject), Data: item}}}
	if s.holdRemovals != nil {
		a.Done = held{r, s.holdRemovals}
	}
	if _, err := s.state.Append(&a); err != nil {
		return err
	}
	s.removalBytes.Add(uint64(len(item)))
	return nil
}

func (r *shardRemoval) Committed(_, _ uint64, err error) {
	if err == nil {
		for _, span := range r.Spans {
			r.shard.removed.Add(span.From, span.Next)
		}
	}
	r.shard.mu.Lock()
	r.shard.removing.Done(&r.Removal)
	r.shard.mu.Unlock()
	if err == nil {
		r.shard.moved()
	}
	r.done(err)
}

// loadRemoved reads the removals of the state log, as a leader does.
func (s *shard) loadRemoved() error {
	for c := s.state.NewCursor(s.state.Start()); ; {
		v, err := c.Read(readLargest)
		if err != nil || v.End == v.From {
			return err
		}
		for b, ok := v.Next(); ok; b, ok = v.Next() {
			it := b.Records()
			for r := (log.Record{}); it.Next(&r); {
				if string(r.Subject) != removal.Subject {
					continue
				}
				err = errors.Join(err, removal.EachSpan(r.Data, func(span removal.Span) {
					s.removed.Add(span.From, span.Next)
					if part, ok := span.Within(s.data); ok && s.releases {
						s.gone.Add(part.From, part.Next)
					}
				}))
			}
		}
		if v.Release(); err != nil {
			return err
		}
	}
}

// held is a Completion that waits.
type held struct {
	done  log.Completion
	until chan struct{}
}

func (h held) Committed(first, end uint64, err error) {
	go func() {
		<-h.until
		h.done.Committed(first, end, err)
	}()
}

func (s *shard) Watch(changed func()) (stop func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.watches++
	id := s.watches
	if s.watchers == nil {
		s.watchers = map[int]func(){}
	}
	s.watchers[id] = changed
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.watchers, id)
	}
}

// moved calls who watches without mu: a cursorStore locks itself, and asks for Offsets while it is
// locked.
func (s *shard) moved() {
	s.mu.Lock()
	watchers := slices.Collect(maps.Values(s.watchers))
	s.mu.Unlock()
	for _, changed := range watchers {
		changed()
	}
}

// publish appends one batch of records, with their subjects as payloads.
func (s *shard) publish(subjects ...string) {
	s.t.Helper()
	records := make([]log.Record, len(subjects))
	for i, name := range subjects {
		records[i] = log.Record{Time: time.Now().UnixNano(), Subject: []byte(name), Data: []byte(name)}
	}
	s.append(records...)
}

// append appends records, with their stamps, which readers see then.
func (s *shard) append(records ...log.Record) {
	s.t.Helper()
	var stamps stamping.Writer
	_, end, _ := s.data.Offsets()
	stamps.Begin(end)
	for i := range records {
		stamps.AddBytes(end+uint64(i), records[i].Stamp)
	}
	a := &log.Append{Epoch: s.epoch, Records: records}
	if data := stamps.Data(); len(data) > 0 {
		a.Extensions = []log.Extension{{Type: stamping.ExtensionType, Data: data}}
	}
	if _, err := s.data.Append(a); err != nil {
		s.t.Fatal(err)
	}
	if err := s.data.Flush(); err != nil {
		s.t.Fatal(err)
	}
	s.moved()
}

// publishN publishes records one by one: subject.1 and so on.
func (s *shard) publishN(subject string, n int) {
	for i := range n {
		s.publish(fmt.Sprintf("%s.%d", subject, i+1))
	}
}

// mailbox is a DeliverySink that records its calls.
type mailbox struct {
	mu       sync.Mutex
	gathered []string
	got      map[string][]string
	gone     map[string]bool
	all      []Delivery
	flushed  int

	delivering func()        // called before each delivery; may be nil
	token      atomic.Uint64 // of the last flow control request
	watchers   map[*boxInterest]func()
}

func newMailbox() *mailbox {
	return &mailbox{got: map[string][]string{}, gone: map[string]bool{}, watchers: map[*boxInterest]func(){}}
}

func (m *mailbox) note(to []byte, format string, args ...any) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.gathered = append(m.gathered, string(to)+"\x00"+fmt.Sprintf(format, args...))
}

// Deliver records "offset", with what is unusual: "offset x times".
func (m *mailbox) Deliver(to []byte, d *Delivery, r *log.Record) {
	if m.delivering != nil {
		m.delivering()
	}
	m.mu.Lock()
	m.all = append(m.all, *d)
	m.mu.Unlock()
	if d.Delivered > 1 {
		m.note(to, "%d x%d", d.Offset, d.Delivered)
	} else {
		m.note(to, "%d", d.Offset)
	}
}

func (m *mailbox) End(to []byte, why End, messages, bytes int) {
	m.note(to, "%s %d/%d", why, messages, bytes)
}

func (m *mailbox) Heartbeat(to []byte, lastSequence, lastOffset, stalled uint64) {
	if stalled != 0 {
		m.note(to, "beat %d/%d stalled %v", lastSequence, lastOffset, stalled == m.token.Load())
		return
	}
	m.note(to, "beat %d/%d", lastSequence, lastOffset)
}

// FlowControl records "flow", and keeps the token.
func (m *mailbox) FlowControl(to []byte, token uint64) {
	m.token.Store(token)
	m.note(to, "flow")
}

// Watch watches a destination that comes and goes by come and leave. A group is to/group.
func (m *mailbox) Watch(_ string, to []byte, group string, changed func()) Interest {
	name := string(to)
	if group != "" {
		name += "/" + group
	}
	i := &boxInterest{m, name}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.watchers[i] = changed
	return i
}

type boxInterest struct {
	m  *mailbox
	to string
}

func (i *boxInterest) Present() bool { return i.m.Interested([]byte(i.to)) }

func (i *boxInterest) Stop() {
	i.m.mu.Lock()
	defer i.m.mu.Unlock()
	delete(i.m.watchers, i)
}

func (m *mailbox) Flush() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.flushed++
	for _, line := range m.gathered {
		to, what, _ := strings.Cut(line, "\x00")
		m.got[to] = append(m.got[to], what)
	}
	m.gathered = m.gathered[:0]
}

func (m *mailbox) Interested(to []byte) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return !m.gone[string(to)]
}

// deliveries returns the number of deliveries until now.
func (m *mailbox) deliveries() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.all)
}

// take returns what an inbox received since the last call.
func (m *mailbox) take(to string) []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	got := m.got[to]
	delete(m.got, to)
	return got
}

func (m *mailbox) leave(to string) { m.set(to, true) }

// come undoes leave.
func (m *mailbox) come(to string) { m.set(to, false) }

func (m *mailbox) set(to string, gone bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.gone[to] = gone
	for i, changed := range m.watchers {
		if i.to == to {
			changed()
		}
	}
}

// last returns the last delivery.
func (m *mailbox) last() Delivery {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.all[len(m.all)-1]
}

// want is the desired Subscriptions of one Topic.
type want struct {
	subs       []*coordination.Subscription
	unreadable []string
	retention  coordination.StreamRetention
	former     bool // a broker of an earlier version is registered
}

func (w *want) TopicByID(id string) *coordination.Topic {
	return &coordination.Topic{ID: id, Spec: coordination.TopicSpec{Shards: 1, Stream: coordination.StreamSettings{Retention: w.retention}}}
}

func (w *want) AllHave(coordination.Feature) bool { return !w.former }

func (w *want) Subscriptions(string) []*coordination.Subscription { return w.subs }
func (w *want) Subscription(_, name string) *coordination.Subscription {
	for _, s := range w.subs {
		if s.Name == name {
			return s
		}
	}
	return nil
}
func (w *want) Unreadable() []string { return w.unreadable }

// world is a broker with one Topic.
type world struct {
	t       testing.TB
	fs      env.FS
	disk    *log.Disk
	shard   *shard
	epoch   uint64                // of shard
	judge   func(err error) error // of the next shard
	service *Service
	boxes   map[string]*mailbox
	mu      sync.Mutex
	desired want
	promise log.Durability
	opts    log.Options
	dead    *morgue       // nil: dead letters are not supported
	hands   *hands        // nil: Endpoints are not supported
	ahead   time.Duration // how far the next broker's clock is ahead
	// wholeAfter is after how many bytes of the state log brokers write a snapshot; 0: as in use.
	wholeAfter int
	// observed is the State that the next service observes before the shard is led; nil: none.
	observed *want
}

const topicID = "t1"

func newWorld(t testing.TB) *world {
	w := &world{t: t, fs: crashfs.New(), boxes: map[string]*mailbox{}}
	w.start()
	return w
}

func (w *world) box(name string) *mailbox {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.boxes[name] == nil {
		w.boxes[name] = newMailbox()
	}
	return w.boxes[name]
}

func (w *world) start() {
	w.t.Helper()
	var err error
	if w.disk, err = log.OpenDisk(w.fs, "data", w.opts); err != nil {
		w.t.Fatal(err)
	}
	if w.shard, err = w.open(); err != nil {
		w.t.Fatal(err)
	}
	w.shard.judge = w.judge
	if removes(w.desired.retention) {
		if err = w.shard.loadRemoved(); err != nil {
			w.t.Fatal(err)
		}
	}
	w.serve()
}

// inherit has the next epoch begin with the logs as they are.
func (w *world) inherit() {
	w.epoch++
	w.shard.epoch = w.epoch
	_, w.shard.inherited, _ = w.shard.data.Offsets()
}

// open opens the logs of the shard, for a leader of the next epoch.
func (w *world) open() (*shard, error) {
	w.epoch++
	s := &shard{t: w.t, epoch: w.epoch, releases: removes(w.desired.retention)}
	var err error
	if s.data, err = w.disk.Open(log.Identity{Topic: topicID}, 1, 1, nil); err != nil {
		return nil, err
	}
	if s.state, err = w.disk.Open(log.Identity{Topic: topicID, Part: "state"}, 1, 1, nil); err != nil {
		return nil, err
	}
	_, s.inherited, _ = s.data.Offsets()
	return s, nil
}

func (w *world) serve() {
	var dead DeadLetters
	if w.dead != nil {
		dead = w.dead
	}
	var endpoint func(*Subscription, *topic.Shard) Endpoint
	if w.hands != nil {
		endpoint = w.hands.open
	}
	w.service = New(Config{
		DeadLetters: dead, Endpoint: endpoint,
		Self: "b1", Clock: clock.New(clock.Config{Wall: func() time.Time { return time.Now().Add(w.ahead) }}), Logger: slog.New(slog.DiscardHandler),
		Sink: func(_ *topic.Shard, name string) DeliverySink { return w.box(name) },
	})
	if w.wholeAfter > 0 {
		w.service.wholeAfter = w.wholeAfter
	}
	w.follow()
	if w.observed != nil {
		w.service.ahead = w.observed
	}
	w.service.lead(&servedShard{Source: w.shard, topicID: topicID, name: "orders", weaker: w.promise})
}

// follow passes the desired Subscriptions to the service.
func (w *world) follow() {
	desired := w.desired
	desired.subs = slices.Clone(w.desired.subs)
	w.service.follow(&desired, coordination.Changes{Unreadable: true})
}

// changed passes the one of a name.
func (w *world) changed(name string) {
	desired := w.desired
	desired.subs = slices.Clone(w.desired.subs)
	s := &coordination.Subscription{Topic: topicID, Name: name}
	w.service.follow(&desired, coordination.Changes{Subscriptions: []coordination.Change[coordination.Subscription]{{After: s}}})
}

// declare declares a Subscription or changes its spec.
func (w *world) declare(name string, made int64, spec coordination.SubscriptionSpec) {
	w.undeclare(name)
	w.desired.subs = append(w.desired.subs, &coordination.Subscription{Topic: topicID, Name: name, Made: made, Spec: &spec, Created: time.Now()})
	w.changed(name)
}

func (w *world) undeclare(name string) {
	w.desired.subs = slices.DeleteFunc(w.desired.subs, func(s *coordination.Subscription) bool { return s.Name == name })
}

func (w *world) find(name string) *Subscription {
	w.t.Helper()
	s, err := w.service.Wait(w.t.Context(), topicID, name)
	if err != nil {
		w.t.Fatal(err)
	}
	return s
}

func (w *world) stop() {
	w.t.Helper()
	if err := w.service.Close(); err != nil {
		w.t.Error(err)
	}
	if err := w.disk.Close(); err != nil {
		w.t.Error(err)
	}
}

// restart stops the broker in order and starts it again.
func (w *world) restart() {
	w.t.Helper()
	w.stop()
	w.start()
}

// expect waits until nothing moves, and compares what an inbox received.
func (w *world) expect(name, to string, want ...string) {
	w.t.Helper()
	synctest.Wait()
	if got := w.box(name).take(to); !slices.Equal(got, want) {
		w.t.Fatalf("%s got %q, want %q", to, got, want)
	}
}

// story runs a test in a synctest bubble.
func story(t *testing.T, tell func(t *testing.T, w *world)) {
	t.Helper()
	snapshotStory(t, 0, tell)
}

// snapshotStory is story with brokers that write a snapshot after so many bytes of the state log.
func snapshotStory(t *testing.T, wholeAfter int, tell func(t *testing.T, w *world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := &world{t: t, fs: crashfs.New(), boxes: map[string]*mailbox{}, wholeAfter: wholeAfter}
		w.start()
		defer func() { w.stop() }()
		tell(t, w)
	})
}

func earliest() coordination.SubscriptionSpec {
	return coordination.SubscriptionSpec{Start: coordination.Start{From: coordination.FromEarliest}}
}

func pull(to string, batch int) Pull { return Pull{To: []byte(to), Batch: batch} }

// ackNow acknowledges and waits for the answer.
func (w *world) ackNow(s *Subscription, offset uint64, kind AckKind) error {
	answer := make(chan error, 1)
	s.Ack(offset, 0, 0, kind, 0, func(err error) { answer <- err })
	return <-answer
}
