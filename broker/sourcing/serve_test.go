package sourcing

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/carillon-mq/carillon/broker/coordination"
	"github.com/carillon-mq/carillon/broker/log"
	"github.com/carillon-mq/carillon/broker/protocol"
	"github.com/carillon-mq/carillon/broker/publish"
	"github.com/carillon-mq/carillon/broker/removal"
	"github.com/carillon-mq/carillon/broker/removing"
	"github.com/carillon-mq/carillon/broker/work"
)

// sized is an Origin with one record of a size.
type sized struct {
	stream
	size int
}

func (o *sized) Offsets() (start, end uint64) { return 1, 2 }

func (o *sized) Scan(_, _ uint64, _ int64, f func(r *log.Record) bool) (bool, error) {
	return f(&log.Record{Offset: 1, Subject: []byte("a"), Data: make([]byte, o.size)}), nil
}

func (o *sized) Messages(start, end uint64) uint64 { return end - start }

// link is a Hub with one link, which takes nothing but what drain takes.
type link struct {
	publish.Hub
	payload int
	mu      sync.Mutex
	eased   sync.Cond
	pending []*protocol.Message
	bytes   int
	most    int
}

func (l *link) Wait() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for l.bytes > 64<<20 {
		l.eased.Wait()
	}
}

func (l *link) Forward(_ string, m *protocol.Message) (linked bool, behind work.Behind) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(m.Data) > l.payload || len(m.Reply) >= 64<<10 {
		return true, behind // it is dropped
	}
	l.pending = append(l.pending, m)
	l.bytes += len(m.Data)
	l.most = max(l.most, l.bytes)
	if l.bytes > 64<<20 {
		behind.Add(l)
	}
	return true, behind
}

func (l *link) drain() *protocol.Message {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.pending) == 0 {
		return nil
	}
	m := l.pending[0]
	l.pending = l.pending[1:]
	l.bytes -= len(m.Data)
	l.eased.Broadcast()
	return m
}

func newLink(payload int) *link {
	l := &link{payload: payload}
	l.eased.L = &l.mu
	return l
}

// TestAnswersWaitForTheLink: more is asked for at once than a link may hold. All is answered, and
// the link is not closed.
func TestAnswersWaitForTheLink(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const payload, questions = 8 << 20, 26
		l, o := newLink(payload), &sized{size: payload - 100}
		s := New(Config[*shard]{Hub: l, Payload: payload, Origin: func(string) Origin { return o }})
		for n := range questions {
			q, _ := json.Marshal(&question{From: "b", Number: uint64(n + 1), Origin: "id", Bytes: payload, Wait: patience})
			s.Take([]protocol.Message{{Subject: []byte(askSubject), Data: q}}, nil, true)
		}
		answered := 0
		for synctest.Wait(); ; synctest.Wait() {
			m := l.drain()
			if m == nil {
				break
			}
			if a, err := parseAnswer(dataOf(m)); err == nil && len(a.records) > payload-100 {
				answered++
			}
		}
		s.stop()
		s.running.Wait()
		if answered != questions || l.most > 64<<20+payload {
			t.Errorf("%d of %d are answered, with up to %d bytes on the link", answered, questions, l.most)
		}
	})
}

// TestLargeRecordsAreAskedForByTheirSize: no answer is larger than what was asked for, and what is
// under way at once is bounded.
func TestLargeRecordsAreAskedForByTheirSize(t *testing.T) {
	o := &sized{size: 8 << 20}
	f := newFetcher(coordination.StreamSource{})
	q := f.ask(removal.Source{}, "id")
	a := read(o, &q, 9<<20)
	if b, err := f.answered(a); b != nil || err != nil || a.Needs == 0 {
		t.Fatalf("a question for %d bytes is answered with %+v, %v", q.Bytes, b, err)
	}
	if q = f.ask(removal.Source{}, "id"); q.Bytes < o.size {
		t.Errorf("then it asks for %d bytes", q.Bytes)
	}
	if b, err := f.answered(read(o, &q, 9<<20)); err != nil || len(b.Messages) != 1 {
		t.Errorf("and gets %+v, %v", b, err)
	}
	budget := newBudget(heavyUnits)
	ctx, cancel := context.WithCancel(t.Context())
	var releases []func()
	for range 3 {
		release, err := budget.take(ctx, f.needs)
		if err != nil {
			t.Fatal(err)
		}
		releases = append(releases, release)
	}
	cancel()
	if _, err := budget.take(ctx, heavyUnits*heavyUnit); err == nil {
		t.Error("there is room for all bytes beside others")
	}
	for _, release := range releases {
		release()
	}
	if release, err := budget.take(t.Context(), 2*heavyUnits*heavyUnit); err != nil {
		t.Error(err)
	} else {
		release()
	}
}

// TestARecordOfTheLargestSizeIsAnswered: with its subject it is larger than what a link carries as
// a payload. One that is larger still is passed over, and counted.
func TestARecordOfTheLargestSizeIsAnswered(t *testing.T) {
	const payload = 1 << 20
	for _, size := range []int{payload - 40, payload, payload + 5000} {
		l, o := newLink(payload), &sized{size: size}
		s := New(Config[*shard]{Hub: l, Payload: payload, Origin: func(string) Origin { return o }})
		s.begin(&question{From: "b", Number: 1, Origin: "id", Bytes: 2 * payload, Exact: true, Wait: patience})
		s.running.Wait()
		m := l.drain()
		if m == nil {
			t.Errorf("a record of %d bytes is dropped by the link", size)
			continue
		}
		a, err := parseAnswer(dataOf(m))
		if err != nil {
			t.Fatal(err)
		}
		if b, err := newFetcher(coordination.StreamSource{}).answered(a); err != nil || len(b.Messages) != 1 {
			t.Errorf("a record of %d bytes: %v", size, err)
		}
	}
	f := newFetcher(coordination.StreamSource{})
	q := f.ask(removal.Source{}, "id")
	a := read(&sized{size: payload + spill}, &q, payload+spill-headBytes)
	if b, err := f.answered(a); b != nil || err != nil || f.skipped != 1 || f.ask(removal.Source{}, "id").Next != 2 {
		t.Errorf("one that can't be carried: %+v, %v; %d are passed over", b, err, f.skipped)
	}
	r := &run[*shard]{}
	if r.heardOf(f, nil); r.err == nil {
		t.Error("the source says nothing of it")
	}
}

// TestTheHeaderOfACopyDoesNotCount: the limit of a message's size holds for what was published.
func TestTheHeaderOfACopyDoesNotCount(t *testing.T) {
	f := newFetcher(coordination.StreamSource{Name: "bills"})
	q := f.ask(removal.Source{}, "id")
	b, err := f.answered(read(&sized{size: 1000}, &q, 1<<20))
	if err != nil {
		t.Fatal(err)
	}
	if m := &b.Messages[0]; len(m.Data) <= 1000 || b.Size(m) != 1000 {
		t.Errorf("it has %d bytes, and counts as %d", len(m.Data), b.Size(m))
	}
}

// TestAStreamThatLostItsEndIsReported: what it gets at the sequences that were seen before is not
// passed over silently.
func TestAStreamThatLostItsEndIsReported(t *testing.T) {
	o := &stream{subjects: slices.Repeat([]string{"a"}, 10)}
	f, come := newFetcher(coordination.StreamSource{}), removal.Source{}
	all(t, f, o, &come, 100)
	o.subjects = o.subjects[:4]
	q := f.ask(come, "id")
	if _, err := f.answered(read(o, &q, 1<<20)); err == nil || !strings.Contains(err.Error(), "lost its end") {
		t.Errorf("its error is %v", err)
	}
	f = newFetcher(coordination.StreamSource{StartSequence: 50})
	for range 2 {
		q = f.ask(removal.Source{}, "id")
		a := read(o, &q, 1<<20)
		if _, err := f.answered(a); err != nil {
			t.Errorf("one that has not begun yet: %v", err)
		}
	}
}

// TestAStartInTheFuture: what comes before it is not copied, however often the end was reached.
func TestAStartInTheFuture(t *testing.T) {
	o := &stream{subjects: slices.Repeat([]string{"a"}, 10)}
	f, come := newFetcher(coordination.StreamSource{StartTime: time.Unix(15, 0)}), removal.Source{}
	for range 10 {
		o.subjects = append(o.subjects, "a")
		for _, seq := range all(t, f, o, &come, 100) {
			if seq < 15 {
				t.Errorf("%d is copied", seq)
			}
		}
	}
	if come.Sequence != 20 {
		t.Errorf("it has come to %d", come.Sequence)
	}
	q := question{Origin: "id", Since: time.Unix(100, 0), Bytes: 1, Wait: patience}
	synctest.Test(t, func(t *testing.T) {
		if a, _ := serve(t.Context(), func(string) Origin { return o }, &q, make(chan struct{}, 1), 1<<20); len(a.records) > 0 || q.Since.IsZero() {
			t.Errorf("%d bytes, since %v", len(a.records), q.Since)
		}
	})
}

// TestAQuestionDoesNotWaitForReadsForever: it ends with its context, though all places are taken.
func TestAQuestionDoesNotWaitForReadsForever(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	full := make(chan struct{})
	if a, _ := serve(ctx, func(string) Origin { return &stream{} }, &question{Wait: patience}, full, 1<<20); a.Error == "" {
		t.Error("it is answered")
	}
}

// shard is a Shard that is never asked.
type shard struct{ name string }

func (s *shard) Name() string { return s.name }
func (s *shard) Sources() ([]coordination.StreamSource, log.Durability, *removing.Keeper) {
	return nil, 0, nil
}
func (s *shard) Place() Place                                  { return Place{} }
func (s *shard) AppendSourced(*Batch)                          {}
func (s *shard) Data() *log.Log                                { return nil }
func (s *shard) Offsets() (start, end uint64)                  { return 0, 0 }
func (s *shard) Purge(context.Context, uint64) (uint64, error) { return 0, nil }
func (s *shard) Scan(uint64, uint64, int64, func(*log.Record) bool) (bool, error) {
	return true, nil
}

// TestStatsOfSources: the lag of all sources and of the furthest behind, and how many fail.
func TestStatsOfSources(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := New(Config[*shard]{})
		add := func(name string) (*run[*shard], *fetcher) {
			r := &run[*shard]{begun: time.Now()}
			r.ctx, r.stop = context.WithCancel(s.ctx)
			s.runs[place[*shard]{index: name}] = r
			return r, newFetcher(coordination.StreamSource{Name: name})
		}
		a, of := add("a")
		of.lag = 7
		a.heardOf(of, nil)
		time.Sleep(time.Minute)
		b, of := add("b")
		of.lag = 5
		b.heardOf(of, nil)
		b.heardOf(of, errors.New("the stream is not served"))
		add("c")
		ending, _ := add("d")
		ending.stop()
		s.counts.copied.Add(9)
		if got, want := s.Stats(), (Stats{Sources: 3, Failing: 1, Lag: 12, Most: 7, Silent: time.Minute, Copied: 9}); got != want {
			t.Errorf("Stats() = %+v, want %+v", got, want)
		}
		s.stop()
	})
}
