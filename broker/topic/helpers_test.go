package topic

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/carillon-mq/carillon/broker/attribute"
	"github.com/carillon-mq/carillon/broker/clock"
	"github.com/carillon-mq/carillon/broker/coordination"
	"github.com/carillon-mq/carillon/broker/env"
	"github.com/carillon-mq/carillon/broker/env/crashfs"
	"github.com/carillon-mq/carillon/broker/log"
	"github.com/carillon-mq/carillon/broker/protocol"
	"github.com/carillon-mq/carillon/broker/publish"
	replication "github.com/carillon-mq/carillon/broker/replica"
	"github.com/carillon-mq/carillon/broker/republish"
	"github.com/carillon-mq/carillon/broker/scheduling"
	"github.com/carillon-mq/carillon/broker/subject"
	"github.com/carillon-mq/carillon/broker/upkeep"
	"github.com/carillon-mq/carillon/broker/work"
	"github.com/carillon-mq/carillon/internal/testutil"
)

const self = "broker-a"

// small makes a few records fill segments and the memory for tails.
var small = log.Options{SegmentSmallest: 8 << 10, SegmentLargest: 16 << 10, TailBytes: 8 << 10, SyncAllFrom: 3}

// testHub notes what is sent, and hands what is published to who offered to take it.
type testHub struct {
	mu      sync.Mutex
	offers  map[*testOffer]struct{}
	answers map[string][]string // by reply subject
	sends   [][]string
	changed *sync.Cond
	quiet   bool // count only
	count   int

	forwarded []string // to other brokers' Takers
}

type testOffer struct {
	hub      *testHub
	taker    publish.Taker
	patterns []string
}

func newHub() *testHub {
	h := &testHub{offers: map[*testOffer]struct{}{}, answers: map[string][]string{}}
	h.changed = sync.NewCond(&h.mu)
	return h
}

func (h *testHub) Offer(t publish.Taker) publish.Offer {
	h.mu.Lock()
	defer h.mu.Unlock()
	o := &testOffer{hub: h, taker: t}
	h.offers[o] = struct{}{}
	return o
}

func (o *testOffer) Set(patterns []string) {
	o.hub.mu.Lock()
	defer o.hub.mu.Unlock()
	o.patterns = slices.Clone(patterns)
}

func (o *testOffer) Close() {
	o.hub.mu.Lock()
	defer o.hub.mu.Unlock()
	delete(o.hub.offers, o)
}

func (h *testHub) Send(messages []protocol.Message) (behind work.Behind) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.count += len(messages)
	if !h.quiet {
		var sent []string
		for i := range messages {
			m := &messages[i]
			h.answers[string(m.Subject)] = append(h.answers[string(m.Subject)], string(m.Data))
			sent = append(sent, string(m.Subject)+" "+string(m.Data))
		}
		h.sends = append(h.sends, sent)
	}
	h.changed.Broadcast()
	return behind
}

func (h *testHub) Interested([]byte) bool { return true }

func (h *testHub) Forward(broker string, m *protocol.Message) (linked bool, behind work.Behind) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.forwarded = append(h.forwarded, fmt.Sprintf("%s %s %s>%s", broker, m.Subject, m.Data, m.Reply))
	return true, behind
}

// publish is one read of one connection.
func (h *testHub) publish(messages ...protocol.Message) (behind bool) {
	return h.publishOf(1, messages...)
}

// publishOf is one read of the connection with that number.
func (h *testHub) publishOf(client uint64, messages ...protocol.Message) (behind bool) {
	h.mu.Lock()
	groups := map[*testOffer][]protocol.Message{}
	for _, m := range messages {
		for o := range h.offers {
			if slices.ContainsFunc(o.patterns, func(p string) bool { return subject.Matches([]byte(p), m.Subject) }) {
				groups[o] = append(groups[o], m)
			}
		}
	}
	h.mu.Unlock()
	for o, group := range groups {
		memory := testutil.LendMessages(group)
		var queues work.Behind
		behind = testutil.Take(o.taker, client, group, memory, &queues) || queues.Any() || behind
		memory.Release()
	}
	return behind
}

// answer waits for the answer to one message.
func (h *testHub) answer(t testing.TB, reply string) string {
	t.Helper()
	h.await(t, "an answer to "+reply, func() bool { return len(h.answers[reply]) > 0 })
	h.mu.Lock()
	defer h.mu.Unlock()
	if n := len(h.answers[reply]); n != 1 {
		t.Fatalf("%d answers to %s: %v", n, reply, h.answers[reply])
	}
	return h.answers[reply][0]
}

// sendOf says in which send a message was answered.
func (h *testHub) sendOf(reply string) int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.IndexFunc(h.sends, func(sent []string) bool {
		return slices.ContainsFunc(sent, func(line string) bool { return strings.HasPrefix(line, reply+" ") })
	})
}

func (h *testHub) await(t testing.TB, what string, ok func() bool) {
	t.Helper()
	late := false
	stop := time.AfterFunc(testutil.Patience, func() {
		h.mu.Lock()
		late = true
		h.mu.Unlock()
		h.changed.Broadcast()
	})
	defer stop.Stop()
	h.mu.Lock()
	defer h.mu.Unlock()
	for !ok() {
		if late {
			t.Fatalf("no %s within %v", what, testutil.Patience)
		}
		h.changed.Wait()
	}
}

// plainCodec says in words what JetStream says in JSON.
type plainCodec struct{}

func (plainCodec) Conditions(header []byte) (c publish.Conditions, refusal error) {
	if len(header) == 0 {
		return c, nil
	}
	h := protocol.Header(header)
	c.ID, _ = h.Get("Id")
	c.ExpectedTopic, _ = h.Get("Expect-Topic")
	c.After, _ = h.Get("After")
	c.ExpectedLastID, _ = h.Get("Expect-Last-Id")
	if value, ok := h.Get("Expect-Last"); ok {
		last, err := strconv.ParseUint(string(value), 10, 64)
		if err != nil {
			return c, err
		}
		c.ExpectedLast, c.ExpectsLast = last, true
	}
	if value, ok := h.Get("Expect-Last-By-Subject"); ok {
		last, err := strconv.ParseUint(string(value), 10, 64)
		if err != nil {
			return c, err
		}
		c.ExpectedLastBySubject, c.ExpectsLastBySubject = last, true
	}
	c.ExpectedSubject, _ = h.Get("Expect-Subject")
	if value, ok := h.Get("Rollup"); ok {
		c.Rollup = map[string]publish.Rollup{"sub": publish.RollupSubject, "all": publish.RollupAll}[string(value)]
	}
	if value, ok := h.Get("TTL"); ok {
		if c.TTL = publish.Never; string(value) != "never" {
			var err error
			if c.TTL, err = time.ParseDuration(string(value)); err != nil {
				return c, err
			}
		}
	}
	if value, ok := h.Get("Schedule"); ok {
		c.Schedule = &scheduling.Request{Pattern: value}
		c.Schedule.Target, _ = h.Get("Target")
		c.Schedule.Source, _ = h.Get("Source")
		c.Rollup = publish.RollupSubject
	}
	if value, ok := h.Get("Scheduler"); ok {
		c.Schedule = &scheduling.Request{Scheduler: value}
		c.Schedule.Next, _ = h.Get("Next")
	}
	if c.Fires, _ = h.Get(scheduling.Header); c.Fires != nil { // the words of package scheduling are JetStream's
		last, _ := h.Get("Nats-Expected-Last-Subject-Sequence")
		c.ExpectedLastBySubject, _ = strconv.ParseUint(string(last), 10, 64)
		c.ExpectedSubject, c.ExpectsLastBySubject = h.Get("Nats-Expected-Last-Subject-Sequence-Subject")
	}
	_, c.Marks = h.Get("Marks")
	_, c.Part = h.Get("Batch")
	c.Increment, _ = h.Get("Add")
	if value, ok := h.Get("Records"); ok {
		var err error
		if c.Records, err = strconv.Atoi(string(value)); err != nil {
			return c, err
		}
	}
	return c, nil
}

// Part reads "Batch: id sequence", with "commit" or "end" behind it.
func (plainCodec) Part(header []byte) (p publish.Part, ok bool) {
	value, ok := protocol.Header(header).Get("Batch")
	if fields := bytes.Fields(value); len(fields) > 1 {
		p.Batch = fields[0]
		p.Sequence, _ = strconv.ParseUint(string(fields[1]), 10, 64)
		p.Sequenced = true
		if len(fields) > 2 {
			p.Commit = map[string]publish.Commit{"commit": publish.CommitWith, "end": publish.CommitBefore}[string(fields[2])]
		}
	}
	return p, ok
}

func (plainCodec) Counter(header, payload []byte) (total, sources []byte, ok bool) {
	sources, _ = protocol.Header(header).Get("Sources")
	return payload, sources, len(payload) > 0 && payload[0] != 'x'
}

// CounterSource knows one stream with one subject.
func (plainCodec) CounterSource(sources []byte, stream, subject, total string) (updated []byte, before string, ok bool) {
	of, before, _ := strings.Cut(string(sources), " ")
	return []byte(stream + "/" + subject + " " + total), before, of == "" || of == stream+"/"+subject
}

func (plainCodec) AppendCounter(dst, header []byte, total, _ string, sources []byte) ([]byte, int) {
	if dst = append(dst, header...); len(sources) > 0 {
		dst = append(append(append(dst[:len(dst)-2], "Sources: "...), sources...), "\r\n\r\n"...)
	}
	return append(dst, total...), len(dst)
}

func (plainCodec) AppendCommit(dst, header []byte) []byte {
	return append(append(dst, header[:len(header)-2]...), "Committed: yes\r\n\r\n"...)
}

func (plainCodec) AppendAck(dst []byte, topic string, a publish.Ack) []byte {
	dst = append(append(dst, topic...), '@')
	dst = strconv.AppendUint(dst, a.Offset, 10)
	if a.Records > 0 {
		dst = strconv.AppendInt(append(dst, '/'), int64(a.Records), 10)
	}
	if len(a.Total) > 0 {
		dst = append(append(dst, " = "...), a.Total...)
	}
	if len(a.Batch) > 0 {
		dst = append(append(dst, ' '), a.Batch...)
	}
	if a.Duplicate {
		dst = append(dst, " again"...)
	}
	return dst
}

func (plainCodec) AppendMarker(dst []byte, ttl time.Duration, last uint64) []byte {
	return fmt.Appendf(dst, "NATS/1.0\r\nMarks: yes\r\nTTL: %s\r\nRollup: sub\r\nExpect-Last-By-Subject: %d\r\n\r\n", ttl, last)
}

func (plainCodec) AppendRefusal(dst []byte, _ string, err error) []byte {
	return append(append(dst, "no: "...), err.Error()...)
}

func message(on, reply, data string, headers ...string) protocol.Message {
	m := protocol.Message{Subject: []byte(on), Reply: []byte(reply)}
	if len(headers) > 0 {
		head := "NATS/1.0\r\n" + strings.Join(headers, "\r\n") + "\r\n\r\n"
		m.Header, m.Data = len(head), []byte(head)
	}
	m.Data = append(m.Data, data...)
	return m
}

// site is one broker and what coordination says.
type site struct {
	front   func(h *testHub) publish.Hub // before hub; nil: nothing
	again   republish.Hub                // nil: nothing is published again
	t       testing.TB
	self    string
	name    string
	link    func(*site) replication.Config // nil: it has no others to link to
	fs      env.FS
	dir     string
	options log.Options
	disk    *log.Disk
	hub     *testHub
	service *Service
	logged  *bytes.Buffer
	logging sync.Mutex // guards logged

	exchange *replication.Exchange
	report   func(context.Context, int64, []coordination.Suspect) error

	revision int64
	life     int64
	brokers  []coordination.Broker
	reports  map[string][]coordination.Suspect // nil: none
	topics   map[string]*coordination.Topic
	shards   map[string]*coordination.Shard
	state    *coordination.State
	payload  int
	// generation of etcd, which restore raises.
	generation int64
	told       func(*ShardLeader, bool)
	compact    upkeep.Compacting
	upkeep     time.Duration // when scrubbing and compression begin
	machine    *testMachine  // nil: the one that the test runs on
	// doubt: the controller names this broker although its copy is in doubt, and records that.
	doubt bool
	// buried are the ids of Topics of which etcd has a tombstone.
	buried map[string]bool
	// attributes are those of subjects; nil: there are none.
	attributes *attribute.Store
}

func newSite(t testing.TB) *site {
	n := &site{t: t, self: self, name: "main-0", fs: crashfs.New(), dir: "data", options: small, life: 1, topics: map[string]*coordination.Topic{}, shards: map[string]*coordination.Shard{}, payload: 1 << 20,
		upkeep: time.Hour} // most tests know in which files records stand, and scrub by themselves
	t.Cleanup(func() { n.stop() })
	return n
}

type syncWriter struct {
	mu *sync.Mutex
	b  *bytes.Buffer
}

func (s *syncWriter) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

// said reports whether the broker logged that.
func (n *site) said(what string) bool {
	n.logging.Lock()
	defer n.logging.Unlock()
	return strings.Contains(n.logged.String(), what)
}

// count says how often the broker has logged that.
func (n *site) count(what string) int {
	n.logging.Lock()
	defer n.logging.Unlock()
	return strings.Count(n.logged.String(), what)
}

// start starts the broker in a new life.
func (n *site) start() error {
	n.hub = newHub()
	var hub publish.Hub = n.hub
	if n.front != nil {
		hub = n.front(n.hub)
	}
	n.logged = &bytes.Buffer{}
	var service *Service
	var ready sync.WaitGroup
	ready.Add(1)
	options := n.options
	options.Committed = func(idle bool) {
		ready.Wait()
		service.Committed(idle)
	}
	disk, err := log.OpenDisk(n.fs, n.dir, options)
	if err != nil {
		ready.Done()
		return err
	}
	linked := replication.Config{Self: n.self}
	if n.link != nil {
		linked = n.link(n)
	}
	c := n.clock()
	linked.Clock = c
	n.exchange = replication.NewExchange(linked)
	service, err = Open(Config{Self: n.self, Name: n.name, Disk: disk, Hub: hub, Codec: plainCodec{}, Payload: n.payload,
		Exchange: n.exchange, Report: n.report, Compact: n.compact, Clock: c,
		Attributes: n.attributes, UpkeepAfter: n.upkeep, Republish: n.again,
		Deleted: func(ctx context.Context, id string) (bool, error) { return n.buried[id], ctx.Err() },
		Logger:  slog.New(slog.NewTextHandler(&syncWriter{mu: &n.logging, b: n.logged}, nil)), Leading: n.told})
	ready.Done()
	if err != nil {
		_ = disk.Close()
		return err
	}
	n.disk, n.service, n.state = disk, service, nil
	if n.machine != nil {
		n.machine.run()
	}
	n.life++
	n.brokers = []coordination.Broker{{ID: self, Name: "main-0", Incarnation: n.life}, {ID: "broker-b", Name: "main-1", Incarnation: 1}}
	return nil
}

// clock is that of a new life.
func (n *site) clock() *clock.Clock {
	if n.machine == nil {
		return nil
	}
	return n.machine.start()
}

func (n *site) stop() {
	if n.service != nil {
		if n.machine != nil {
			n.machine.end()
		}
		_ = n.service.Close()
		n.exchange.Close()
		_ = n.disk.Close()
		n.service = nil
	}
}

// startAgain ends the broker in order, if it runs, and begins another life of it. It serves nothing
// before tell.
func (n *site) startAgain() {
	n.t.Helper()
	n.stop()
	if err := n.start(); err != nil {
		n.t.Fatal(err)
	}
}

// crash ends the broker as a power cut does.
func (n *site) crash() {
	fs := n.fs.(*crashfs.FS)
	fs.StopAfter(0)
	n.stop()
	n.fs = fs.Crash(rand.New(rand.NewPCG(1, uint64(n.life))))
}

// topic declares a Topic; place has this broker lead it.
func (n *site) topic(name string, change func(*coordination.TopicSpec)) *coordination.Topic {
	n.revision++
	t := &coordination.Topic{Name: name, ID: "id-" + name, Generation: 1, Spec: coordination.TopicSpec{Subjects: []string{name + ".>"}, Shards: 1}}
	if before := n.topics[name]; before != nil {
		copied := *before
		t = &copied
		t.Generation++
	}
	if change != nil {
		change(&t.Spec)
	}
	t.Revision = n.revision
	n.topics[name] = t
	return t
}

func (n *site) place(name string, leader string) { n.placeShard(name, 0, leader) }

func (n *site) placeShard(name string, number int, leader string) {
	n.revision++
	id := n.topics[name].ID
	epoch := int64(1)
	key := id
	if number > 0 {
		key = fmt.Sprint(id, "/", number)
	}
	if before := n.shards[key]; before != nil {
		epoch = before.Epoch + 1
	}
	life := n.life
	if leader != self {
		life = 1
	}
	n.shards[key] = &coordination.Shard{Topic: id, Number: number, Epoch: epoch, Leader: leader, Replicas: []string{leader},
		InSync: []coordination.Replica{{Broker: leader, Incarnation: life}}, Revision: n.revision}
	if n.doubt {
		n.shards[key].Doubt = coordination.Doubt{Epoch: epoch, Leader: leader, Reason: "LeastLoss"}
	}
}

// tell has the service follow what is declared now.
func (n *site) tell() {
	var topics []*coordination.Topic
	var shards []*coordination.Shard
	for _, t := range n.topics {
		topics = append(topics, t)
	}
	for _, s := range n.shards {
		shards = append(shards, s)
	}
	n.revision++
	next := coordination.NewState(n.revision, n.brokers, topics, shards, nil)
	next.Generation = n.generation
	if n.reports != nil {
		next = next.With(nil, n.reports)
	}
	var c coordination.Changes
	c.Restored = n.state != nil && n.state.Generation != n.generation
	if n.state != nil {
		for t := range n.state.Topics() {
			if after := next.TopicByID(t.ID); after != t {
				c.Topics = append(c.Topics, coordination.Change[coordination.Topic]{Before: t, After: after})
			}
		}
	}
	for t := range next.Topics() {
		if n.state == nil || n.state.TopicByID(t.ID) == nil {
			c.Topics = append(c.Topics, coordination.Change[coordination.Topic]{After: t})
		}
	}
	for s := range next.AllShards() {
		var before *coordination.Shard
		if n.state != nil {
			before = n.state.Shard(s.Topic, s.Number)
		}
		if before != s {
			c.Shards = append(c.Shards, coordination.Change[coordination.Shard]{Before: before, After: s})
		}
	}
	n.state = next
	n.exchange.Observe(next)
	n.service.Follow(next, c)
}

// eventually waits until ok.
func (n *site) eventually(what string, ok func() bool) {
	n.t.Helper()
	testutil.EventuallyTrue(n.t, what, ok)
}

// serve starts a broker that leads Topics of these names.
func (n *site) serve(names ...string) {
	n.t.Helper()
	if err := n.start(); err != nil {
		n.t.Fatal(err)
	}
	for _, name := range names {
		if n.topics[name] == nil {
			n.topic(name, nil)
		}
		n.place(name, self)
	}
	n.tell()
	n.open(names...)
}

func (n *site) open(names ...string) {
	n.t.Helper()
	for _, name := range names {
		n.eventually(name+" is served", func() bool {
			t := n.service.Topic(name)
			return t != nil && t.WhyNot() == nil
		})
	}
}

// restart is an orderly end and another life.
func (n *site) restart(names ...string) {
	n.t.Helper()
	n.stop()
	n.serve(names...)
}

// ask publishes one message and waits for its answer.
func (n *site) ask(on, data string, headers ...string) string {
	n.t.Helper()
	n.revision++
	reply := fmt.Sprintf("_INBOX.ask.%d", n.revision)
	n.hub.publish(message(on, reply, data, headers...))
	return n.hub.answer(n.t, reply)
}

// read returns what readers see of a Topic: "offset subject payload".
func (n *site) read(name string) []string {
	n.t.Helper()
	var leader *ShardLeader // an ack may come before requests find it
	n.eventually("requests find the leader of "+name, func() bool {
		leader = n.service.Topic(name).Shard()
		return leader != nil
	})
	out, err := readAll(leader)
	if err != nil {
		n.t.Fatal(err)
	}
	return out
}

func readAll(s *ShardLeader) (out []string, err error) {
	start, end := s.Offsets()
	for c := s.NewCursor(start); c.Next() < end; {
		next := c.Next()
		v, err := c.Read(4 << 10)
		if err != nil {
			return out, err
		}
		for b, ok := v.Next(); ok; b, ok = v.Next() {
			it := b.Records()
			for r := (log.Record{}); it.Next(&r); {
				if r.Offset >= next && r.Offset < end {
					out = append(out, fmt.Sprintf("%d %s %s", r.Offset, r.Subject, r.Data[r.Header:]))
				}
			}
		}
		v.Release()
	}
	return out, nil
}

func (n *site) expect(got, want string) {
	n.t.Helper()
	if got != want {
		n.t.Fatalf("answered %q, want %q", got, want)
	}
}
