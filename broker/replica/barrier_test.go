package replica

import (
	"io"
	"net"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/carillon-mq/carillon/broker/coordination"
	"github.com/carillon-mq/carillon/broker/env"
	"github.com/carillon-mq/carillon/broker/env/crashfs"
	"github.com/carillon-mq/carillon/internal/testutil"
)

// confirms reports whether a question asked now is answered within limit.
func (w *world) confirms(l *Leading, limit time.Duration) bool {
	round, began := l.RequestRound(), time.Now()
	for l.Confirmed() < round {
		if time.Since(began) > limit {
			return false
		}
		time.Sleep(time.Millisecond)
	}
	return true
}

// TestALeaderProvesThatItLeads: a leader proves by a barrier round that it leads, without appending
// a record. A follower that cannot be reached prevents the proof until it has left the set.
func TestALeaderProvesThatItLeads(t *testing.T) {
	story(t, "a b c", func(w *world) {
		w.minInSync = 2
		w.place(orders, 1, "a b c")
		a := w.nodes["a"]
		a.publish(orders, numbered(3)...)
		l := a.leads[orders]
		if !w.confirms(l, 100*time.Millisecond) {
			t.Fatal("nobody confirms")
		}
		w.wires.freeze("a", "c")
		if w.confirms(l, time.Second) {
			t.Error("it is confirmed though c is not reached")
		}
		w.thawed(t, l, "c")
	})
}

// thawed makes a broker reachable again and waits for its confirmation.
func (w *world) thawed(t *testing.T, l *Leading, broker string) {
	round := l.RequestRound()
	w.wires.thaw("a", broker)
	w.within(5*time.Second, "the question is answered", func() bool { return l.Confirmed() >= round })
}

// TestADeposedLeaderProvesNothing: a deposed leader that does not know about it can prove nothing,
// however long it asks. The new leader can.
func TestADeposedLeaderProvesNothing(t *testing.T) {
	story(t, "a b c", func(w *world) {
		w.minInSync = 2
		w.place(orders, 1, "a b c")
		a := w.nodes["a"]
		a.publish(orders, numbered(3)...)
		former := a.leads[orders]
		shard := *w.store.shard(orders)
		shard.Epoch, shard.Leader = 2, "b"
		shard.InSync = []coordination.Replica{shard.InSync[1], shard.InSync[2]}
		w.store.put(&shard)
		w.nodes["b"].see() // neither a nor c learns of it
		if w.confirms(former, 30*time.Second) {
			t.Error("the former leader is confirmed, though b leads")
		}
		w.nodes["c"].see()
		w.within(5*time.Second, "the new leader is confirmed", func() bool { return w.confirms(w.nodes["b"].leads[orders], time.Second) })
		if w.confirms(former, 30*time.Second) {
			t.Error("the former leader is confirmed")
		}
	})
}

// TestAQuestionIsAskedAgainOnTheNextConnection: a question that was sent before the connection
// ended is asked again on the next one.
func TestAQuestionIsAskedAgainOnTheNextConnection(t *testing.T) {
	story(t, "a b", func(w *world) {
		w.place(orders, 1, "a b")
		a := w.nodes["a"]
		a.publish(orders, "one")
		l := a.leads[orders]
		w.wires.freeze("a", "b")
		round := l.RequestRound()
		w.wires.reset("b")
		w.wires.thaw("a", "b")
		w.within(5*time.Second, "the question is answered", func() bool { return l.Confirmed() >= round })
	})
}

// TestQuestionsShareRounds: many concurrent questions share a few rounds and frames.
func TestQuestionsShareRounds(t *testing.T) {
	story(t, "a b", func(w *world) {
		w.place(orders, 1, "a b")
		a := w.nodes["a"]
		a.publish(orders, "one")
		l := a.leads[orders]
		w.wires.freeze("a", "b") // so that no round ends meanwhile, however slow the machine is
		first := l.RequestRound()
		last := first
		for range 1000 {
			last = l.RequestRound()
		}
		if last-first > maxRounds { // maxRounds are open, and one is waited for
			t.Errorf("1000 questions at once make %d rounds", last-first+1)
		}
		w.wires.thaw("a", "b")
		w.within(time.Second, "all are answered", func() bool { return l.Confirmed() >= last })
	})
}

// TestMovedReportsConfirmedRounds: Moved reports confirmed rounds, as it reports the watermark.
func TestMovedReportsConfirmedRounds(t *testing.T) {
	story(t, "a b", func(w *world) {
		w.place(orders, 1, "a b")
		a := w.nodes["a"]
		a.publish(orders, "one")
		synctest.Wait()
		moved := make(chan uint64, 100)
		w.moved = func(l *Leading) { moved <- l.Confirmed() }
		round := a.leads[orders].RequestRound()
		select {
		case is := <-moved:
			if is < round {
				t.Errorf("moved when %d of %d was confirmed", is, round)
			}
		case <-time.After(5 * time.Second):
			t.Error("nobody is told")
		}
		w.moved = nil
	})
}

// unannounced is a connection to a broker of version 018b7c1, which closes a connection that
// carries a probe.
type unannounced struct{ net.Conn }

func (unannounced) Announces(coordination.Feature) bool { return false }

// TestAFollowerOfTheVersionBeforeIsNotProbed: a follower of a version without probes is sent none.
// It confirms by being connected, and keeps copying.
func TestAFollowerOfTheVersionBeforeIsNotProbed(t *testing.T) {
	story(t, "", func(w *world) {
		w.start("a", crashfs.New())
		b := w.start("b", crashfs.New())
		w.wires.mu.Lock()
		serve := w.wires.serve["a"]
		w.wires.serve["a"] = func(conn net.Conn, broker string) { serve(unannounced{conn}, broker) }
		w.wires.mu.Unlock()
		w.place(orders, 1, "a b")
		a := w.nodes["a"]
		a.publish(orders, "one")
		l := a.leads[orders]
		for range 10 {
			if !w.confirms(l, time.Millisecond) {
				t.Fatal("it waits for a follower that can't be asked")
			}
		}
		a.publish(orders, "two")
		if asks := b.x.Stats().OutAsks; asks > 2 {
			t.Errorf("it asked %d times for the shard: a frame has ended its connection", asks)
		}
		w.wires.freeze("a", "b")
		w.within(5*time.Second, "the connection ends", func() bool { return !l.Followers()[0].Joined })
		if w.confirms(l, 100*time.Millisecond) {
			t.Error("it is confirmed by a follower that isn't connected")
		}
		w.wires.thaw("a", "b")
	})
}

// BenchmarkBarrier measures the time of a question with two followers, and of a bare round trip of
// as many bytes: over loopback, and over a network with a latency of half a millisecond each way.
func BenchmarkBarrier(b *testing.B) {
	for name, delay := range map[string]time.Duration{"loopback": 0, "1ms": 500 * time.Microsecond} {
		b.Run(name, func(b *testing.B) {
			wrap := func(conn net.Conn) net.Conn { return conn }
			if delay > 0 {
				wrap = func(conn net.Conn) net.Conn { return testutil.Slow(conn, delay) }
			}
			w := overNetwork(b, wrap, func(string) env.FS { return crashfs.New() }, "a", "b", "c")
			w.place(orders, 1, "a b c")
			a := w.nodes["a"]
			confirmed := newGate()
			w.moved = func(l *Leading) { confirmed.move(l.Confirmed()) }
			a.publish(orders, "one")
			l := a.leads[orders]
			b.Run("question", func(b *testing.B) { median(b, func() { confirmed.wait(l.RequestRound()) }) })
			b.Run("16 at once", func(b *testing.B) {
				b.SetParallelism(16)
				b.RunParallel(func(p *testing.PB) {
					for p.Next() {
						confirmed.wait(l.RequestRound())
					}
				})
			})
			b.Run("round trip", func(b *testing.B) { roundTrips(b, delay) })
		})
	}
}

// median reports the median time of f.
func median(b *testing.B, f func()) {
	var took []time.Duration
	for b.Loop() {
		began := time.Now()
		f()
		took = append(took, time.Since(began))
	}
	slices.Sort(took)
	b.ReportMetric(float64(took[len(took)/2].Nanoseconds()), "p50-ns")
}

// roundTrips measures round trips of as many bytes as a probe over loopback.
func roundTrips(b *testing.B, delay time.Duration) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	defer listener.Close()
	go func() {
		conn, err := listener.Accept()
		if err != nil {
			return
		}
		defer conn.Close()
		_, _ = io.Copy(conn, conn) // until the other end closes
	}()
	conn, err := net.Dial("tcp", listener.Addr().String())
	if err != nil {
		b.Fatal(err)
	}
	if delay > 0 {
		conn = testutil.Slow(conn, delay)
	}
	defer conn.Close()
	frame := appendProbe(nil, frameProbe, &probe{})
	median(b, func() {
		if _, err := conn.Write(frame); err != nil {
			b.Fatal(err)
		}
		if _, err := io.ReadFull(conn, frame); err != nil {
			b.Fatal(err)
		}
	})
}
