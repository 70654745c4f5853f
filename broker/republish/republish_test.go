package republish

import (
	"bytes"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/carillon-mq/carillon/broker/coordination"
	"github.com/carillon-mq/carillon/broker/env/crashfs"
	"github.com/carillon-mq/carillon/broker/log"
	"github.com/carillon-mq/carillon/broker/protocol"
	"github.com/carillon-mq/carillon/broker/work"
	"github.com/carillon-mq/carillon/internal/testutil"
)

// shard is a led shard whose high watermark a test sets, and the hub that it is published to.
type shard struct {
	t    *testing.T
	data *log.Log
	high atomic.Uint64
	rule *Rule

	publisher *Publisher
	queue     Queue
	logged    bytes.Buffer

	forbidden string // a subject that the user may not publish on

	mu   sync.Mutex
	got  []string
	gate sync.Mutex // held: the hub takes nothing
}

func (s *shard) Name() string                        { return "orders" }
func (s *shard) Offsets() (start, end uint64)        { return s.data.Start(), s.high.Load() }
func (s *shard) NewCursor(offset uint64) *log.Cursor { return s.data.NewCursor(offset) }

func (s *shard) may(user string, on []byte) bool {
	return user == "ann" && string(on) != s.forbidden
}

func (s *shard) Publish(messages []protocol.Message) (behind work.Behind) {
	s.gate.Lock()
	defer s.gate.Unlock()
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, m := range messages {
		s.got = append(s.got, string(m.Subject)+"|"+string(m.Data))
	}
	return behind
}

func ruleOf(r coordination.Republish) *Rule {
	return RuleOf("orders", &coordination.TopicSpec{Stream: coordination.StreamSettings{Republish: &r, User: "ann"}})
}

func newShard(t *testing.T, r coordination.Republish, payload int) *shard {
	disk, err := log.OpenDisk(crashfs.New(), "data", log.Options{})
	testutil.Must(t, err)
	t.Cleanup(func() { _ = disk.Close() })
	s := &shard{t: t, rule: ruleOf(r)}
	s.data, err = disk.Open(log.Identity{Topic: "orders"}, 1, 1, nil)
	testutil.Must(t, err)
	s.high.Store(1)
	s.publisher = NewPublisher(s, payload, s.may, slog.New(slog.NewTextHandler(io.MultiWriter(&s.logged, t.Output()), nil)))
	t.Cleanup(s.publisher.Close)
	s.queue.Init(s.publisher, s)
	return s
}

// store appends records as one batch, and notes those that the rule takes. A record is
// "subject|header|payload".
func (s *shard) store(records ...string) {
	s.t.Helper()
	var batch []log.Record
	for _, r := range records {
		part := strings.SplitN(r, "|", 3)
		header := strings.ReplaceAll(part[1], "/", "\r\n")
		batch = append(batch, log.Record{Time: 1e18, Subject: []byte(part[0]), Header: len(header), Data: []byte(header + part[2])})
	}
	first, err := s.data.Append(&log.Append{Epoch: 1, Records: batch})
	testutil.Must(s.t, err)
	var notes []Note
	for i, r := range batch {
		if s.rule.Takes(r.Subject) {
			at := first + uint64(i)
			notes = append(notes, Note{Rule: s.rule, Offset: at, Count: 1, Known: at%2 == 0, Last: at / 2})
		}
	}
	s.queue.Append(notes)
}

func (s *shard) commit(high uint64) {
	s.high.Store(high)
	s.queue.Moved()
}

// gets waits until that was published, and nothing else.
func (s *shard) gets(want ...string) {
	s.t.Helper()
	var got []string
	testutil.EventuallyTrue(s.t, "as much is published", func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		got = slices.Clone(s.got)
		return len(got) >= len(want)
	})
	for i := range got {
		got[i] = strings.ReplaceAll(got[i], "\r\n", "/")
	}
	if !slices.Equal(got, want) {
		s.t.Fatalf("published are\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	s.mu.Lock()
	s.got = nil
	s.mu.Unlock()
}

// TestMessagesArePublishedOnceTheyAreCommitted: in order, with the headers of nats-server behind
// their own.
func TestMessagesArePublishedOnceTheyAreCommitted(t *testing.T) {
	s := newShard(t, coordination.Republish{Source: "a.*", Destination: "b.$1"}, 0)
	s.store("a.1||x", "c.1||no", "a.2|NATS/1.0/Mine: yes//|y")
	s.store("a.3||")
	s.commit(2)
	const head, at = "NATS/1.0/Nats-Stream: orders/Nats-Subject: a.", "/Nats-Time-Stamp: 2001-09-09T01:46:40Z"
	s.gets("b.1|" + head + "1/Nats-Sequence: 1" + at + "//x")
	s.commit(5)
	s.gets("b.2|NATS/1.0/Mine: yes/Nats-Stream: orders/Nats-Subject: a.2/Nats-Sequence: 3"+at+"//y",
		"b.3|"+head+"3/Nats-Sequence: 4"+at+"/Nats-Last-Sequence: 2//")
	s.commit(5)
	s.commit(6)
	s.gets()
}

// TestHeadersThatActOnAStreamAreLeftOut: they were for the stream that has stored the message.
// Another one, which the copy reaches, stores it.
func TestHeadersThatActOnAStreamAreLeftOut(t *testing.T) {
	s := newShard(t, coordination.Republish{Source: ">", Destination: "b.>"}, 0)
	s.store("a|NATS/1.0/Nats-Batch-Id: x/Nats-Batch-Sequence: 2/Nats-Msg-Id: one/Nats-Batch-Commit: 1/Nats-Expected-Last-Sequence: 0/" +
		"Nats-Expected-Stream: orders/Nats-Stream-Source: other 1 > > a/Nats-Schedule: @every 1m/Nats-Schedule-Target: t/Nats-Scheduler: s/" +
		"Nats-Schedule-Next: purge/Mine: Nats-TTL/Nats-TTL: 1h/Nats-Rollup: sub/Nats-Incr: +1/Carillon-After: y/Carillon-Mine: z//|p")
	s.commit(2)
	s.gets("b.a|NATS/1.0/Nats-Msg-Id: one/Mine: Nats-TTL/Carillon-Mine: z/Nats-Stream: orders/Nats-Subject: a/Nats-Sequence: 1/" +
		"Nats-Time-Stamp: 2001-09-09T01:46:40Z//p")
}

// TestOnlyHeaders: payloads stay away, and their size is said.
func TestOnlyHeaders(t *testing.T) {
	s := newShard(t, coordination.Republish{Source: ">", Destination: "b.>", HeadersOnly: true}, 0)
	s.store("a||four")
	s.commit(2)
	s.gets("b.a|NATS/1.0/Nats-Stream: orders/Nats-Subject: a/Nats-Sequence: 1/Nats-Time-Stamp: 2001-09-09T01:46:40Z/Nats-Msg-Size: 4//")
}

// TestAMessageThatComesBackIsNotPublishedAgain: its header names the stream. Those of other streams
// are published.
func TestAMessageThatComesBackIsNotPublishedAgain(t *testing.T) {
	s := newShard(t, coordination.Republish{Source: ">", Destination: "b.>"}, 0)
	s.store("a|NATS/1.0/Nats-Stream: orders/Nats-Stream: other//|", "b|NATS/1.0/Nats-Stream: orders2//|", "c|NATS/1.0/Nats-Stream: other/Nats-Stream: orders//|")
	s.commit(4)
	s.gets("b.b|NATS/1.0/Nats-Stream: orders2/Nats-Stream: orders/Nats-Subject: b/Nats-Sequence: 2/Nats-Time-Stamp: 2001-09-09T01:46:40Z/Nats-Last-Sequence: 1//")
}

// TestAMessageThatIsTooLargeIsNotPublished: links would close.
func TestAMessageThatIsTooLargeIsNotPublished(t *testing.T) {
	s := newShard(t, coordination.Republish{Source: ">", Destination: "b.>", HeadersOnly: true}, 200)
	s.store("a|NATS/1.0/Long: "+strings.Repeat("x", 100)+"//|", "b||")
	s.commit(3)
	testutil.EventuallyTrue(t, "both are judged", func() bool { st := s.publisher.Stats(); return st.Published == 1 && st.Dropped == 1 })
}

// TestARecordThatIsGone: records that the log doesn't have any more are passed, and the others are
// published.
func TestARecordThatIsGone(t *testing.T) {
	s := newShard(t, coordination.Republish{Source: ">", Destination: "b.>", HeadersOnly: true}, 0)
	s.store("a||1", "a||2")
	s.data.Roll()
	s.store("a||3")
	_, err := s.data.Trim(3)
	testutil.Must(t, err)
	s.commit(4)
	testutil.EventuallyTrue(t, "all are passed", func() bool { st := s.publisher.Stats(); return st.Published == 1 && st.Dropped == 2 })
	if s.store("a||4"); s.data.Start() != 3 {
		t.Fatalf("the log begins at %d", s.data.Start())
	}
	s.commit(5)
	testutil.EventuallyTrue(t, "the next one is published", func() bool { return s.publisher.Stats().Published == 2 })
}

// TestTooManyWait: newer messages are dropped and counted, which is said once. Memory is given
// back.
func TestTooManyWait(t *testing.T) {
	s := newShard(t, coordination.Republish{Source: ">", Destination: "b.>", HeadersOnly: true}, 0)
	s.store("a||1")
	note := Note{Rule: s.rule, Offset: 2, Count: 1}
	s.queue.Append(slices.Repeat([]Note{note}, waiting))
	s.queue.Append([]Note{note})
	if st := s.publisher.Stats(); st.Dropped != 2 || strings.Count(s.logged.String(), "too many wait") != 1 {
		t.Errorf("%+v, logged is\n%s", st, s.logged.String())
	}
	var others []*Queue
	for range waitingInAll / waiting {
		q := &Queue{}
		q.Init(s.publisher, s)
		q.Append(slices.Repeat([]Note{note}, waiting))
		others = append(others, q)
	}
	if held := s.publisher.held.Load(); held != waitingInAll {
		t.Errorf("%d wait in all", held)
	}
	for _, q := range append(others, &s.queue) {
		q.Close()
		q.Append([]Note{note})
		q.Moved()
	}
	if held := s.publisher.held.Load(); held != 0 {
		t.Errorf("%d wait of closed queues", held)
	}
}

// TestAQueueThatGoesOnForLongStaysSmall: it never becomes empty, and its memory does not grow.
func TestAQueueThatGoesOnForLongStaysSmall(t *testing.T) {
	s := newShard(t, coordination.Republish{Source: ">", Destination: "b.>", HeadersOnly: true}, 0)
	s.store("a||0")
	for i := range 300 {
		s.store(fmt.Sprintf("a||%d", i+1))
		s.commit(uint64(i + 2))
		testutil.EventuallyTrue(t, "it is published", func() bool { return s.publisher.Stats().Published == uint64(i+1) })
	}
	s.queue.mu.Lock()
	defer s.queue.mu.Unlock()
	if cap(s.queue.notes) > 64 {
		t.Errorf("it has room for %d", cap(s.queue.notes))
	}
}

// TestTheUserMayPublish: messages on subjects without the right of the stream's user stay away.
func TestTheUserMayPublish(t *testing.T) {
	s := newShard(t, coordination.Republish{Source: ">", Destination: "b.>", HeadersOnly: true}, 0)
	s.forbidden = "b.secret"
	s.store("a||0")
	s.store("secret||0")
	s.store("c||0")
	s.commit(4)
	testutil.EventuallyTrue(t, "all are published or dropped", func() bool { return s.publisher.Stats() == Stats{Published: 2, Dropped: 1} })
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.got) != 2 || !strings.HasPrefix(s.got[0], "b.a|") || !strings.HasPrefix(s.got[1], "b.c|") {
		t.Errorf("got %q", s.got)
	}
}
