package viewing

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"

	"github.com/carillon-mq/carillon/broker/protocol"
	"github.com/carillon-mq/carillon/broker/publish"
	"github.com/carillon-mq/carillon/broker/work"
)

// TestEachBrokerKnowsTheTroubleOfAView: it is what the owner says, wherever that is, and within the
// time of who asks.
func TestEachBrokerKnowsTheTroubleOfAView(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 1, tumbling(0, 0), 2)
		defer w.close()
		set := func(losses, refusals int) {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.losses, w.refusals = losses, refusals
		}
		say := func(made int64, want string) {
			t.Helper()
			for n, s := range w.services {
				ctx, stop := context.WithTimeout(t.Context(), time.Second)
				got := s.Trouble(ctx, "in", "means", made)
				stop()
				if want == "" && got != "" || !strings.Contains(got, want) {
					t.Errorf("broker %d says %q, want %q", n, got, want)
				}
			}
		}
		set(0, 100)
		for n, l := range w.topics["in"] {
			w.lead(l, n)
			w.publish(n, event{time.Now().UnixMilli(), "a", 1})
			w.publish(n, event{time.Now().Add(5 * time.Second).UnixMilli(), "a", 1})
		}
		pass(20 * time.Second)
		say(3, "topic out: it is full")
		say(4, "the leader has not begun with its results yet") // it was made again
		set(0, 0)
		pass(2*lastRetry + time.Second)
		say(3, "")
		set(100, 0)
		ctx, stop := context.WithTimeout(t.Context(), time.Second)
		defer stop()
		began := time.Now()
		if got := w.services[2].Trouble(ctx, "in", "means", 3); !strings.Contains(got, "it is not known whether the results are up to date: shard 0: the leader of the shard does not answer") || time.Since(began) > time.Second+100*time.Millisecond {
			t.Errorf("without an answer it says %q after %v", got, time.Since(began))
		}
		set(0, 0)
		first := w.topics["in"][0]
		first.mu.Lock()
		first.now = nil
		first.mu.Unlock()
		say(3, "it is not known whether the results are up to date: shard 0: the shard has no leader")
	})
}

// TestAnEarlierVersionSaysNoTrouble: a broker of an earlier version does not know the question, so
// no trouble is told. If the broker leads the shard no more, it is not known whether there is some.
func TestAnEarlierVersionSaysNoTrouble(t *testing.T) {
	for told, want := range map[string]string{
		`this version knows no question "trouble"`:   "",
		"view means is not kept there at the moment": "",
		errNotLed.Error(): "it is not known whether the results are up to date: shard 0: " + errNotLed.Error(),
	} {
		var s *Service[*leader]
		s = New(Config[*leader]{Self: "0", Payload: 4 << 10,
			Shard: func(string, int) (*leader, bool, string) { return nil, false, "1" },
			Hub: asked{answer: func(p *piece) {
				data := framed(&piece{From: "1", Number: p.Number, Count: 1}, framed(&answer{Error: told}, nil))
				s.Take([]protocol.Message{{Subject: []byte(answerSubject), Data: data}}, nil, true)
			}}})
		if got := s.Trouble(t.Context(), "in", "means", 3); got != want {
			t.Errorf("told %q it says %q, want %q", told, got, want)
		}
	}
}

// TestAReasonIsBounded: it stays text.
func TestAReasonIsBounded(t *testing.T) {
	for _, why := range []string{"full", strings.Repeat("é", maxTrouble), "x" + strings.Repeat("é", maxTrouble), strings.Repeat("\xffx", maxTrouble)} {
		got := bounded(why)
		if len(got) > maxTrouble || len(why) > maxTrouble && len(got) < maxTrouble-1 || !utf8.ValidString(got) || len(why) <= maxTrouble && got != why {
			t.Errorf("of %d bytes it has %d: %q", len(why), len(got), got)
		}
	}
}

// behindOnce is a hub. The link of its first message is behind until eased is closed.
type behindOnce struct {
	publish.Hub
	eased chan struct{}
	sent  atomic.Int32
}

func (h *behindOnce) Wait() { <-h.eased }

func (h *behindOnce) Forward(broker string, m *protocol.Message) (linked bool, behind work.Behind) {
	if h.sent.Add(1) == 1 {
		behind.Add(h)
		return true, behind
	}
	return h.Hub.Forward(broker, m)
}

// TestALinkThatIsBehindHoldsNobodyUpForLonger: a question ends with the time of its caller. Nothing
// more is sent to the other broker until it reads again. Then questions go on.
func TestALinkThatIsBehindHoldsNobodyUpForLonger(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var s *Service[*leader]
		hub := &behindOnce{eased: make(chan struct{}), Hub: asked{answer: func(p *piece) { tell(s, p.Number, 0) }}}
		s = New(Config[*leader]{Self: "0", Payload: 4 << 10, Hub: hub,
			Shard: func(string, int) (*leader, bool, string) { return nil, false, "1" }})
		for n := range 2 {
			began := time.Now()
			ctx, stop := context.WithTimeout(t.Context(), time.Second)
			if got := s.Trouble(ctx, "in", "means", 3); !strings.HasSuffix(got, errSilent.Error()) || time.Since(began) != time.Second || hub.sent.Load() != 1 {
				t.Errorf("%d: after %v and %d messages it says %q", n, time.Since(began), hub.sent.Load(), got)
			}
			stop()
		}
		close(hub.eased)
		if got := s.Trouble(t.Context(), "in", "means", 3); got != "" {
			t.Errorf("afterwards it says %q", got)
		}
	})
}

// TestTroubleIsToldWhileOtherAnswersWait: for memory, which may be the trouble.
func TestTroubleIsToldWhileOtherAnswersWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		told := map[uint64]bool{}
		s := New(Config[*leader]{Self: "0", Payload: 4 << 10, Hub: asked{answer: func(p *piece) { told[p.Number] = true }},
			Shard: func(string, int) (*leader, bool, string) { return nil, false, "" }})
		for range answersAtOnce {
			s.link.working <- struct{}{}
		}
		s.answer("1", 1, framed(&question{Kind: handOver, Topic: "in"}, nil))
		s.answer("1", 2, framed(&question{Kind: whyLate, Topic: "in", View: strings.Repeat("v", 256), Made: 3}, nil))
		s.running.Wait()
		if told[1] || !told[2] {
			t.Errorf("told of the questions %v, want only the second", told)
		}
	})
}
