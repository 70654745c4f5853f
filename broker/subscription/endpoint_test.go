package subscription

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/carillon-mq/carillon/broker/coordination"
	"github.com/carillon-mq/carillon/broker/env/crashfs"
	"github.com/carillon-mq/carillon/broker/log"
	"github.com/carillon-mq/carillon/broker/topic"
)

// hands are Endpoints that record what they are told.
type hands struct {
	mu   sync.Mutex
	sub  *Subscription
	got  []string // "offset" or "offset xcount", and what else happened
	most int      // records that are taken until it is set again

	paused bool
}

func (h *hands) open(s *Subscription, _ *topic.Shard) Endpoint {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.sub = s
	return h
}

func (h *hands) note(format string, args ...any) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.got = append(h.got, fmt.Sprintf(format, args...))
}

func (h *hands) Respecify(spec *coordination.SubscriptionSpec) { h.note("to %s", spec.Push.URL) }
func (h *hands) Forget()                                       { h.note("forget") }
func (h *hands) Close()                                        { h.note("close") }
func (h *hands) Pause(paused bool) {
	if h.paused != paused {
		h.note("pause %v", paused)
	}
	h.paused = paused
}
func (h *hands) Info() EndpointInfo { return EndpointInfo{Reason: "Unreachable", Trouble: "down"} }

func (h *hands) Open() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.most > 0
}

func (h *hands) Take(d *Delivery, r *log.Record) {
	h.mu.Lock()
	h.most--
	h.mu.Unlock()
	if d.Delivered > 1 {
		h.note("%d x%d", d.Offset, d.Delivered)
		return
	}
	h.note("%d", d.Offset)
}

// admit has it take so many records.
func (h *hands) admit(n int) {
	h.mu.Lock()
	h.most = n
	sub := h.sub
	h.mu.Unlock()
	if sub != nil {
		sub.Wake()
	}
}

func (h *hands) expect(t *testing.T, want ...string) {
	t.Helper()
	synctest.Wait()
	h.mu.Lock()
	defer h.mu.Unlock()
	if !slices.Equal(h.got, want) {
		t.Fatalf("the endpoint got %q, want %q", h.got, want)
	}
	h.got = nil
}

func (w *world) attempt(s *Subscription, offset, want uint64) {
	w.t.Helper()
	if got, ok := s.Attempt(offset); got != want || ok != (want > 0) {
		w.t.Fatalf("attempt of %d: %d, %v; want %d", offset, got, ok, want)
	}
}

// pushStory is a story with an Endpoint that takes up to so many records, and a declared
// Subscription with it.
func pushStory(t *testing.T, most int, tell func(t *testing.T, w *world, s *Subscription, spec coordination.SubscriptionSpec)) {
	story(t, func(t *testing.T, w *world) {
		w.hands = &hands{most: most}
		w.restart()
		spec := earliest()
		spec.Push = &coordination.Push{URL: "http://a"}
		w.declare("billing", 1, spec)
		s := w.find("billing")
		w.hands.expect(t, "to http://a")
		tell(t, w, s, spec)
	})
}

func TestAnEndpointIsHandedWhatItTakes(t *testing.T) {
	pushStory(t, 2, func(t *testing.T, w *world, s *Subscription, _ coordination.SubscriptionSpec) {
		w.shard.publish("o", "o", "o", "o")
		w.hands.expect(t, "1", "2")
		w.attempt(s, 1, 1)
		w.attempt(s, 2, 1)
		w.attempt(s, 3, 0) // not handed over
		if err := w.ackNow(s, 1, Done); err != nil {
			t.Fatal(err)
		}
		w.attempt(s, 1, 0) // acknowledged
		w.hands.expect(t)
		w.hands.admit(9)
		w.hands.expect(t, "3", "4")
		time.Sleep(time.Hour) // no deadline passes
		w.hands.expect(t)
		w.attempt(s, 2, 2)
		if i := s.Info(); i.Pending != 3 || i.Redelivered != 1 || i.Endpoint.Trouble != "down" {
			t.Errorf("the state is %+v", i)
		}
		s.Pull(pull("a", 1))
		w.expect("billing", "a", "Pushed 1/0")
	})
}

func TestTheNextLeaderHandsOverAgain(t *testing.T) {
	for _, snapshot := range []bool{false, true} {
		pushStory(t, 9, func(t *testing.T, w *world, s *Subscription, _ coordination.SubscriptionSpec) {
			w.shard.publish("o", "o", "o")
			w.hands.expect(t, "1", "2", "3")
			w.attempt(s, 1, 1)
			w.attempt(s, 2, 1)
			w.attempt(s, 2, 2)
			s.Ack(3, 0, 0, Done, 0, nil)
			time.Sleep(time.Second) // it is written
			if snapshot {
				w.wholeAfter = 1
			}
			w.restart()
			// What was sent counts; what was handed over and not sent does not.
			w.hands.expect(t, "close", "to http://a", "1 x2", "2 x3")
			s = w.find("billing")
			w.attempt(s, 1, 2)
			w.restart()
			w.hands.expect(t, "close", "to http://a", "1 x3", "2 x3")
			w.restart()
			w.hands.expect(t, "close", "to http://a", "1 x3", "2 x3")
		})
	}
}

func TestARecordThatWasNeverSentIsNotGivenUp(t *testing.T) {
	pushStory(t, 9, func(t *testing.T, w *world, s *Subscription, spec coordination.SubscriptionSpec) {
		spec.Ack.MaxDeliver = 1
		w.declare("billing", 1, spec)
		w.hands.expect(t, "to http://a")
		w.shard.publish("o", "o")
		w.hands.expect(t, "1", "2")
		w.attempt(s, 1, 1)
		time.Sleep(time.Second)
		for range 3 {
			w.restart()
			w.hands.expect(t, "close", "to http://a", "2")
		}
		s = w.find("billing")
		w.attempt(s, 2, 1)
		s.Ack(2, 0, 0, Retry, 0, nil) // after its last attempt
		w.hands.expect(t)
		if i := s.Info(); i.Pending != 0 || i.Exhausted != 1 {
			t.Errorf("the state is %+v", i)
		}
	})
}

// TestASparedAttemptIsNoneForTheNextLeader: an outage and a change of the leader give up nothing.
func TestASparedAttemptIsNoneForTheNextLeader(t *testing.T) {
	pushStory(t, 9, func(t *testing.T, w *world, s *Subscription, spec coordination.SubscriptionSpec) {
		spec.Ack.MaxDeliver = 1
		w.declare("billing", 1, spec)
		w.hands.expect(t, "to http://a")
		w.shard.publish("o")
		w.hands.expect(t, "1")
		w.attempt(s, 1, 1)
		s.Spare(1)
		w.attempt(s, 1, 1)
		s.Spare(1)
		s.Spare(1)
		time.Sleep(time.Second)
		w.restart()
		w.hands.expect(t, "close", "to http://a", "1")
		w.attempt(w.find("billing"), 1, 1)
	})
}

func TestAnEndpointComesAndGoes(t *testing.T) {
	pushStory(t, 9, func(t *testing.T, w *world, s *Subscription, spec coordination.SubscriptionSpec) {
		w.shard.publish("o", "o")
		w.hands.expect(t, "1", "2")
		w.attempt(s, 1, 1)
		pulled := spec
		pulled.Push = nil
		w.declare("billing", 1, pulled)
		w.hands.expect(t, "close")
		s.Pull(pull("a", 9))
		w.expect("billing", "a", "1 x2", "2") // the second was never sent
		s.Ack(1, 0, 0, Done, 0, nil)
		w.declare("billing", 1, spec)
		w.hands.expect(t, "to http://a", "2 x2")
		spec.Push = &coordination.Push{URL: "http://b"}
		w.declare("billing", 1, spec)
		w.hands.expect(t, "to http://b")
		spec.Consumer.PauseUntil = time.Now().Add(time.Hour)
		w.declare("billing", 1, spec)
		w.shard.publish("o")
		w.hands.expect(t, "to http://b", "pause true")
		time.Sleep(2 * time.Hour)
		w.hands.expect(t, "pause false", "3")
		w.undeclare("billing")
		w.changed("billing")
		w.hands.expect(t, "close")
		w.attempt(s, 2, 0)
	})
}

func TestAResetHasTheEndpointForget(t *testing.T) {
	pushStory(t, 9, func(t *testing.T, w *world, s *Subscription, _ coordination.SubscriptionSpec) {
		w.shard.publish("o", "o")
		w.hands.expect(t, "1", "2")
		w.attempt(s, 1, 1)
		done := make(chan error, 1)
		if _, err := s.Reset(1, func(err error) { done <- err }); err != nil {
			t.Fatal(err)
		}
		<-done
		w.hands.expect(t, "forget", "1", "2")
	})
}

func TestWhatAnEndpointRefusesBecomesADeadLetter(t *testing.T) {
	pushStory(t, 9, func(t *testing.T, w *world, _ *Subscription, spec coordination.SubscriptionSpec) {
		w.dead = &morgue{}
		w.restart()
		w.hands.expect(t, "close", "to http://a")
		spec.Ack.MaxDeliver, spec.DeadLetter = 2, "dead"
		w.declare("billing", 1, spec)
		w.hands.expect(t, "to http://a")
		w.shard.publish("o")
		w.hands.expect(t, "1")
		s := w.find("billing")
		w.attempt(s, 1, 1)
		w.attempt(s, 1, 2)
		s.ExplainAck(1, []byte("422 no"))
		s.Ack(1, 0, 0, Retry, 0, nil)
		if all := w.dead.subjects(); len(all) != 1 || headerOf(&w.dead.stored[0], DeadAnswer) != "422 no" || headerOf(&w.dead.stored[0], DeadAttempts) != "2" {
			t.Errorf("the dead letters are %q", all)
		}
	})
}

// TestACrashHandsOverWhatWasNotAcknowledged: a process dies while records are in a hand. The next
// one hands over what has no durable ack, whether or not the log of cursors has heard of it.
func TestACrashHandsOverWhatWasNotAcknowledged(t *testing.T) {
	for _, written := range []bool{false, true} {
		pushStory(t, 9, func(t *testing.T, w *world, s *Subscription, _ coordination.SubscriptionSpec) {
			w.shard.publish("o", "o", "o")
			w.hands.expect(t, "1", "2", "3")
			w.attempt(s, 1, 1)
			w.attempt(s, 2, 1)
			if err := w.ackNow(s, 1, Done); err != nil {
				t.Fatal(err)
			}
			want := []string{"2 x2", "3"}
			if written {
				time.Sleep(time.Second)
				w.attempt(s, 2, 2) // the log does not hear of this attempt
			}
			crashed := w.fs.(*crashfs.FS).Crash(rand.New(rand.NewPCG(1, 1)))
			_, _ = w.service.Close(), w.disk.Close()
			w.hands.expect(t, "close")
			w.fs = crashed
			w.start()
			w.hands.expect(t, append([]string{"to http://a"}, want...)...)
		})
	}
}

// TestARecordInAHandIsFreeAfterAChangeOfTheLeader: the spec becomes one of pulls between two
// leaders, or just before the first one dies.
func TestARecordInAHandIsFreeAfterAChangeOfTheLeader(t *testing.T) {
	pushStory(t, 9, func(t *testing.T, w *world, s *Subscription, spec coordination.SubscriptionSpec) {
		w.shard.publish("o", "o", "o")
		w.hands.expect(t, "1", "2", "3")
		w.attempt(s, 2, 1)
		if err := w.ackNow(s, 1, Done); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		crashed := w.fs.(*crashfs.FS).Crash(rand.New(rand.NewPCG(1, 1)))
		spec.Push, spec.Ack = nil, coordination.Ack{MaxDeliver: 2, Backoff: []time.Duration{time.Minute}}
		w.declare("billing", 1, spec)
		_, _ = w.service.Close(), w.disk.Close()
		w.fs = crashed
		w.start()
		s = w.find("billing")
		s.Pull(pull("a", 9))
		w.expect("billing", "a", "2 x2", "3")
	})
}

// TestWhatWasNeverSentIsNotCounted: a record that waits in a hand has its attempts before it,
// however the settings change.
func TestWhatWasNeverSentIsNotCounted(t *testing.T) {
	for what, change := range map[string]struct {
		now  func(*coordination.SubscriptionSpec)
		want []string
	}{
		"clients pull":  {func(s *coordination.SubscriptionSpec) { s.Push = nil }, nil},
		"a lower bound": {func(s *coordination.SubscriptionSpec) { s.Ack.MaxDeliver = 1 }, []string{"to http://a"}},
		"dead letters":  {func(s *coordination.SubscriptionSpec) { s.Ack.MaxDeliver, s.DeadLetter = 1, "dead" }, []string{"to http://a"}},
	} {
		pushStory(t, 9, func(t *testing.T, w *world, _ *Subscription, spec coordination.SubscriptionSpec) {
			w.dead = &morgue{}
			w.restart()
			w.hands.expect(t, "close", "to http://a")
			if what != "a lower bound" {
				spec.Ack.MaxDeliver = 1
				w.declare("billing", 1, spec)
				w.hands.expect(t, "to http://a")
			}
			w.shard.publish("o")
			w.hands.expect(t, "1")
			time.Sleep(time.Second)
			w.hands.admit(0)
			w.restart() // the record waits in the queue
			w.hands.expect(t, "close", "to http://a")
			s := w.find("billing")
			change.now(&spec)
			w.declare("billing", 1, spec)
			if spec.Push == nil {
				w.hands.expect(t, "close")
				s.Pull(pull("a", 9))
				w.expect("billing", "a", "1")
				return
			}
			w.hands.expect(t, change.want...)
			w.hands.admit(9)
			time.Sleep(time.Second)
			w.hands.expect(t, "1")
			w.attempt(s, 1, 1)
			if i := s.Info(); i.Pending != 1 || i.Exhausted != 0 || len(w.dead.subjects()) > 0 {
				t.Errorf("%s: the state is %+v", what, i)
			}
		})
	}
}
