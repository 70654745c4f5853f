package viewing

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/carillon-mq/carillon/broker/protocol"
	"github.com/carillon-mq/carillon/broker/publish"
	"github.com/carillon-mq/carillon/broker/view"
	"github.com/carillon-mq/carillon/broker/work"
)

// silent is the links to brokers that never answer.
type silent struct {
	publish.Hub
	asked func()
}

func (s silent) Forward(string, *protocol.Message) (linked bool, behind work.Behind) {
	s.asked()
	return true, behind
}

// TestAQuestionEndsWhenAnotherBrokerLeads: a broker that died does not answer. Who asked it does
// not wait for the whole time of an answer once another one leads.
func TestAQuestionEndsWhenAnotherBrokerLeads(t *testing.T) {
	var moved atomic.Bool
	s := New(Config[*leader]{
		Self: "0", Payload: 4 << 10, Hub: silent{asked: func() { moved.Store(true) }},
		Shard: func(string, int) (*leader, bool, string) {
			if moved.Load() {
				return nil, false, "2"
			}
			return nil, false, "1"
		},
	})
	_, err := s.ask(t.Context(), &question{Kind: handOver, Topic: "in"})
	if !errors.Is(err, errUnreached) {
		t.Errorf("got %v, want that the shard was not reached", err)
	}
}

// asked is the links to brokers that a test answers for.
type asked struct {
	publish.Hub
	answer func(p *piece)
}

func (a asked) Forward(_ string, m *protocol.Message) (linked bool, behind work.Behind) {
	p := &piece{}
	if _, err := unframed(m.Data, p); err != nil {
		return false, behind
	}
	a.answer(p)
	return true, behind
}

// tell has a service take an answer to a question of a number.
func tell(s *Service[*leader], number uint64, left uint64) {
	data := framed(&piece{From: "1", Number: number, Count: 1}, framed(&answer{Left: left}, nil))
	s.Take([]protocol.Message{{Subject: []byte(answerSubject), Data: data}}, nil, true)
}

// TestAnAnswerToTheProcessBeforeIsNotTaken: a broker that was killed and starts again asks others
// while they still answer what it asked before.
func TestAnAnswerToTheProcessBeforeIsNotTaken(t *testing.T) {
	led := func(string, int) (*leader, bool, string) { return nil, false, "1" }
	var before uint64
	ctx, kill := context.WithCancel(t.Context())
	first := New(Config[*leader]{Self: "0", Payload: 4 << 10, Shard: led, Hub: asked{answer: func(p *piece) {
		before = p.Number
		kill()
	}}})
	_, _ = first.ask(ctx, &question{Kind: handOver, Topic: "in"})

	var again *Service[*leader]
	again = New(Config[*leader]{Self: "0", Payload: 4 << 10, Shard: led, Hub: asked{answer: func(p *piece) {
		tell(again, before, 1)
		tell(again, p.Number, 2)
	}}})
	a, err := again.ask(t.Context(), &question{Kind: handOver, Topic: "in", Shard: 1})
	if err != nil || a.Left != 2 {
		t.Errorf("got the answer %+v, %v, which is not of this question", a, err)
	}
}

// TestWorkInVainCountsAsWork: by which the pause of an owner without windows grows. While a shard
// has no leader, or one that is silent, the others tell their present values nonetheless.
func TestWorkInVainCountsAsWork(t *testing.T) {
	for _, other := range []string{"", "2"} {
		synctest.Test(t, func(t *testing.T) {
			const slow = 3 * time.Second
			var s *Service[*leader]
			s = New(Config[*leader]{Self: "0", Payload: 4 << 10, Hub: asked{answer: func(p *piece) {
				number := p.Number
				time.AfterFunc(slow, func() { tell(s, number, 0) })
			}}, Shard: func(_ string, shard int) (*leader, bool, string) {
				return nil, false, []string{"1", other}[shard]
			}})
			s.Hub = silentOf{s.Hub, "2"}
			of := viewOf(view.Window{})
			v, err := view.Compile(of.Spec)
			if err != nil {
				t.Fatal(err)
			}
			o := newOwner(s, Place{Topic: "in", Name: "in", Shards: 2}, of, v)
			tenure, err := o.begin()
			if err != nil {
				t.Fatal(err)
			}
			if took, err := o.judgePresent(t.Context(), tenure); err != nil || took != slow {
				t.Errorf("the other led by %q: work of %v, %v; want %v", other, took, err, slow)
			}
		})
	}
}

// silentOf is links of which those to one broker get no answer.
type silentOf struct {
	publish.Hub
	broker string
}

func (s silentOf) Forward(broker string, m *protocol.Message) (linked bool, behind work.Behind) {
	if broker == s.broker {
		return true, behind
	}
	return s.Hub.Forward(broker, m)
}

// TestLargeAnswersWaitForEachOther: those that don't fit together come in time, one by one.
func TestLargeAnswersWaitForEachOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const questions, size, most = 16, 2000, 3000
		var s *Service[*leader]
		s = New(Config[*leader]{Self: "0", Payload: 1 << 10, Memory: most,
			Shard: func(string, int) (*leader, bool, string) { return nil, false, "1" },
			Hub: asked{answer: func(p *piece) {
				is := &piece{From: "1", Number: p.Number}
				data := framed(&answer{Left: 7}, make([]byte, size))
				pieces := slices.Collect(slices.Chunk(data, 512))
				is.Count = len(pieces)
				go func() {
					for n, data := range pieces {
						time.Sleep(10 * time.Millisecond)
						is.Index = n
						s.Take([]protocol.Message{{Subject: []byte(answerSubject), Data: framed(is, data)}}, nil, true)
					}
				}()
			}}})
		began := time.Now()
		var all sync.WaitGroup
		for n := range questions {
			all.Go(func() {
				a, err := s.ask(t.Context(), &question{Kind: present, Topic: "in", Shard: n})
				if err != nil || a.Left != 7 || len(a.data) != size {
					t.Errorf("question %d: %+v, %v", n, a, err)
				}
			})
		}
		all.Wait()
		if took := time.Since(began); took >= answerWithin { // of the bubble's time
			t.Errorf("the answers took %v", took)
		}
		s.link.mu.Lock()
		defer s.link.mu.Unlock()
		if s.link.bytes != 0 || len(s.link.parts) != 0 {
			t.Errorf("%d bytes are taken of %d messages", s.link.bytes, len(s.link.parts))
		}
	})
}

// TestPiecesThatStayAloneAreForgotten: of a question whose broker has died, though no other comes.
func TestPiecesThatStayAloneAreForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 1, tumbling(0, 0), 1)
		defer w.close()
		s := w.services[0]
		pass(5 * time.Second)
		before := s.bytes.Load()
		first := framed(&piece{From: "7", Number: 1, Count: 3}, make([]byte, 1000))
		s.Take([]protocol.Message{{Subject: []byte(askSubject), Data: first}}, nil, true)
		if n := s.bytes.Load() - before; n != 3000 {
			t.Errorf("a message of 3 pieces takes %d bytes", n)
		}
		pass(2 * answerWithin)
		if n := s.bytes.Load() - before; n != 0 {
			t.Errorf("%d bytes are taken of a message that does not come", n)
		}
	})
}
