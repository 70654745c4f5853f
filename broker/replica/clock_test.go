package replica

import (
	"context"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/carillon-mq/carillon/broker/clock"
	"github.com/carillon-mq/carillon/broker/env/crashfs"
)

// timed starts brokers whose wall clocks are wrong by the given amounts.
func (w *world) timed(wrong map[string]time.Duration) {
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan struct{}, len(wrong))
	w.clocks = map[string]*clock.Clock{}
	for id, by := range wrong {
		began := time.Now()
		c := clock.New(clock.Config{
			Wall: func() time.Time { return time.Now().Add(by) },
			Mono: func() int64 { return int64(time.Since(began)) + int64(len(id)) },
		})
		w.clocks[id] = c
		go func() { c.Run(ctx); ended <- struct{}{} }()
	}
	w.t.Cleanup(func() {
		stop()
		for range cap(ended) {
			<-ended
		}
	})
	for id := range wrong {
		w.start(id, crashfs.New())
	}
}

// off returns the deviation of a broker's time from the true time.
func (w *world) off(id string) time.Duration { return time.Until(w.clocks[id].Time()) }

func TestALeaderAndItsFollowersAgreeOnTheTime(t *testing.T) {
	const year = 365 * 24 * time.Hour
	story(t, "", func(w *world) {
		w.timed(map[string]time.Duration{"a": year, "b": 0, "c": 100 * time.Millisecond})
		w.place(orders, 1, "a b c")
		w.within(time.Second, "a leader with a wrong clock goes by the median", func() bool {
			v := w.clocks["a"].Verdict()
			return w.off("a").Abs() < clock.Bound && v.Known == 3 && v.Doubt == clock.None
		})
		w.nodes["a"].publish(orders, "one")
		time.Sleep(time.Minute)
		if v := w.clocks["a"].Verdict(); w.off("a").Abs() > clock.Bound || v.Known != 3 {
			t.Errorf("a minute later it is %v off: %+v", w.off("a"), v)
		}
		for _, id := range []string{"b", "c"} {
			if v := w.clocks[id].Verdict(); w.off(id).Abs() > clock.Bound || v.Known != 2 {
				t.Errorf("follower %s is %v off: %+v", id, w.off(id), v)
			}
		}
		// A broker that cannot be reached does not vote.
		w.wires.freeze("a", "c")
		w.within(20*time.Second, "it knows two", func() bool { return w.clocks["a"].Verdict().Known == 2 })
		w.wires.thaw("a", "c")
		w.within(5*time.Second, "it knows three", func() bool { return w.clocks["a"].Verdict().Known == 3 })
	})
}

// TestAFollowerOfTheVersionBeforeIsSentNoClocks: a broker of an earlier version is sent no clock
// frames, and its connection stays up.
func TestAFollowerOfTheVersionBeforeIsSentNoClocks(t *testing.T) {
	story(t, "", func(w *world) {
		w.timed(map[string]time.Duration{"a": 0, "b": 0})
		w.wires.mu.Lock()
		serve := w.wires.serve["a"]
		w.wires.serve["a"] = func(conn net.Conn, broker string) { serve(unannounced{conn}, broker) }
		w.wires.mu.Unlock()
		w.place(orders, 1, "a b")
		w.nodes["a"].publish(orders, "one")
		time.Sleep(10 * time.Second)
		if v := w.clocks["b"].Verdict(); v.Known != 1 {
			t.Errorf("the follower was sent clocks: %+v", v)
		}
		for _, n := range w.nodes {
			if strings.Contains(n.out.String(), "Ended a replication connection") {
				t.Errorf("a connection ended:\n%s", n.out.String())
			}
		}
	})
}
