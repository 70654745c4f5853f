package topic

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/carillon-mq/carillon/broker/clock"
	"github.com/carillon-mq/carillon/broker/coordination"
	"github.com/carillon-mq/carillon/broker/env/crashfs"
	"github.com/carillon-mq/carillon/broker/log"
)

// expires serves orders on a machine of its own, with messages that may expire.
func expires(t *testing.T, change func(*coordination.TopicSpec)) *site {
	n := newSite(t)
	n.machine = newMachine(t)
	n.mayExpire(change)
	n.serve("orders")
	return n
}

// mayExpire declares that messages of orders may expire.
func (n *site) mayExpire(change func(*coordination.TopicSpec)) {
	n.topic("orders", func(s *coordination.TopicSpec) {
		if s.Stream.AllowMessageTTL, s.Stream.AllowRollup = true, true; change != nil {
			change(s)
		}
	})
}

// marking is a change that asks for markers with a TTL of an hour.
func marking(s *coordination.TopicSpec) { s.Stream.SubjectDeleteMarkerTTL = time.Hour }

// TestAMessageExpires: after its TTL and no earlier, in whichever life of the broker, and whether
// the expiry is read from the batch, from the state log, or from a snapshot of that.
func TestAMessageExpires(t *testing.T) {
	t.Parallel()
	n := expires(t, nil)
	n.ask("orders.a", "1", "TTL: 1h")
	n.ask("orders.a", "2")
	n.ask("orders.a", "3", "TTL: never")
	n.ask("orders.b", "4", "TTL: 2h")
	n.ask("orders.b", "5", "TTL: 3h")
	n.machine.pass(59 * time.Minute)
	n.shows("too early", "1 orders.a", "2 orders.a", "3 orders.a", "4 orders.b", "5 orders.b")
	n.machine.pass(2 * time.Minute)
	n.shows("after an hour", "2 orders.a", "3 orders.a", "4 orders.b", "5 orders.b")
	n.restart("orders")
	n.machine.pass(time.Hour)
	n.shows("after two hours, in the next life", "2 orders.a", "3 orders.a", "5 orders.b")

	s := n.leaderOf("orders") // what it has now is in a snapshot only
	s.State().Roll()
	_, mark, _ := s.State().Offsets()
	var records []log.Record
	for r := range s.RemovalItems {
		r.Data, r.Attributes = slices.Clone(r.Data), slices.Clone(r.Attributes)
		records = append(records, r)
	}
	if _, err := s.AppendState(&log.Append{Records: records}); err != nil {
		t.Fatal(err)
	}
	if _, err := s.State().Trim(mark); err != nil || s.State().Start() != mark {
		t.Fatal(s.State().Start(), err)
	}
	n.restart("orders")
	n.shows("before three hours", "2 orders.a", "3 orders.a", "5 orders.b")
	n.machine.pass(time.Hour)
	n.shows("after three hours, from a snapshot", "2 orders.a", "3 orders.a")
	n.machine.pass(100 * 24 * time.Hour)
	n.shows("what never expires stays", "2 orders.a", "3 orders.a")
}

// TestTTLsThatAreRefused: by a Topic without them, and of messages with several records.
func TestTTLsThatAreRefused(t *testing.T) {
	n := newSite(t)
	n.topic("orders", nil)
	n.serve("orders")
	for _, ttl := range []string{"1h", "never"} {
		n.expect(n.ask("orders.a", "x", "TTL: "+ttl), "no: topic orders: its messages may not have a TTL")
	}
	n.mayExpire(nil)
	n.tell()
	n.eventually("the setting holds", func() bool { return n.ask("orders.a", "x", "TTL: 1h") == "orders@1" })
	n.expect(n.ask("orders.a", "\x01a\x01b", "TTL: 1h", "Records: 2"), "no: topic orders: a message with several records can't have a TTL")
}

// TestNothingExpiresWhileTheTimeIsInDoubt: the clock jumps ahead, or back, and is corrected.
func TestNothingExpiresWhileTheTimeIsInDoubt(t *testing.T) {
	t.Parallel()
	for _, wrong := range []time.Duration{year, -year} {
		n := expires(t, func(s *coordination.TopicSpec) { s.Retention.Age = 2 * time.Hour })
		n.ask("orders.a", "1", "TTL: 1h")
		n.ask("orders.b", "2")
		n.machine.set(wrong)
		n.eventually("it is said", func() bool { return n.said("No message expires") })
		s := n.leaderOf("orders")
		if reason, why := s.AgePaused(); reason == clock.None || why == "" {
			t.Error("deletion by age is not shown as paused")
		}
		n.machine.pass(3 * time.Hour)
		n.ask("orders.c", "3")
		n.restart("orders")
		n.eventually("it is said again", func() bool { return n.said("No message expires") })
		n.shows("in doubt", "1 orders.a", "2 orders.b", "3 orders.c")
		n.machine.set(0)
		n.machine.pass(0)
		n.machine.pass(2 * clock.Again)
		n.shows("the clock is right again", "3 orders.c")
		if reason, _ := n.leaderOf("orders").AgePaused(); reason != clock.None {
			t.Error(reason)
		}
	}
}

// TestAgeSparesWhatNeverExpires: records are removed one by one, at their age, and their segments
// go.
func TestAgeSparesWhatNeverExpires(t *testing.T) {
	t.Parallel()
	n := expires(t, func(s *coordination.TopicSpec) { s.Retention.Age = time.Hour })
	var want []string
	for i := range 300 {
		if i%100 == 50 {
			n.ask("orders.a", strings.Repeat("x", 100), "TTL: never")
			want = append(want, fmt.Sprint(i+1, " orders.a"))
			continue
		}
		n.ask("orders.a", strings.Repeat("x", 100))
	}
	n.machine.pass(30 * time.Minute)
	n.ask("orders.b", "younger")
	n.ask("orders.b", "much younger", "TTL: 5m")
	n.ask("orders.b", "with a longer life than the Topic's", "TTL: 5h")
	n.machine.pass(31 * time.Minute)
	n.shows("after an hour", append(slices.Clone(want), "301 orders.b", "303 orders.b")...)
	n.eventually("the first segment is gone", func() bool { return n.leaderOf("orders").Data().Start() > 1 })
	n.restart("orders")
	n.machine.pass(time.Hour)
	n.shows("after two hours", want...)
}

// TestAMarkerTakesThePlaceOfTheLastMessage: of a subject, and only of the last one. It expires,
// too, and nothing takes its place.
func TestAMarkerTakesThePlaceOfTheLastMessage(t *testing.T) {
	t.Parallel()
	n := expires(t, marking)
	n.ask("orders.older", "1")
	n.ask("orders.older", "2", "TTL: 1h")
	n.ask("orders.newer", "3", "TTL: 1h")
	n.ask("orders.newer", "4")
	n.ask("orders.both", "5", "TTL: 1h")
	n.ask("orders.both", "6", "TTL: 1h")
	n.ask("orders.marks", "7", "TTL: 1h", "Marks: yes")
	n.machine.pass(61 * time.Minute)
	n.shows("after an hour", "1 orders.older", "4 orders.newer", "8 orders.both")
	r, err := n.leaderOf("orders").Get(8)
	if err != nil || !strings.Contains(string(r.Data[:r.Header]), "TTL: 1h0m0s") || len(r.Data) > r.Header {
		t.Errorf("a marker is %q (%v)", r.Data, err)
	}
	n.restart("orders")
	n.machine.pass(61 * time.Minute)
	n.shows("after two hours", "1 orders.older", "4 orders.newer")
	if _, end := n.leaderOf("orders").Offsets(); end != 9 {
		t.Errorf("the log ends with %d", end)
	}
}

// TestAMarkerRollsUpNoPattern: of a subject with wildcards there is none, and what matches it
// stays.
func TestAMarkerRollsUpNoPattern(t *testing.T) {
	n := expires(t, marking)
	n.ask("orders.a", "1")
	n.expect(n.ask("orders.*", "2", "TTL: 2h"), "orders@2")
	n.ask("orders.b.c", "3", "TTL: 2h")
	n.machine.pass(3 * time.Hour)
	n.shows("with the marker of the other", "1 orders.a", "4 orders.b.c")
}

// TestATTLIsNoShorterThanThatOfMarkers: a marker that stands for an earlier message must not
// outlive a later one, unless each subject has one message only.
func TestATTLIsNoShorterThanThatOfMarkers(t *testing.T) {
	for most, want := range map[int64][]string{0: {"1 orders.a"}, 1: {"2 orders.a"}} {
		n := expires(t, func(s *coordination.TopicSpec) { marking(s); s.Stream.MaxPerSubject = most })
		n.ask("orders.a", "1", "TTL: 10m")
		n.machine.pass(11 * time.Minute)
		n.shows(fmt.Sprint("with at most ", most), want...)
	}
}

// TestNoCrashLosesAMarker: the power is cut at each step at which a marker takes the place of a
// message. The subject always has one or the other, and once the broker is back a marker.
func TestNoCrashLosesAMarker(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(1, 1))
	for step := range 12 {
		fs := crashfs.New()
		n := newSite(t)
		n.machine, n.fs = newMachine(t), fs
		n.mayExpire(marking)
		n.serve("orders")
		n.ask("orders.a", "1", "TTL: 1h")
		n.ask("orders.b", "2")
		fs.StopAfter(step)
		n.machine.pass(61 * time.Minute)
		s := n.leaderOf("orders")
		n.eventually("a marker, or a disk that stopped", func() bool {
			return s.Removed().Has(1) || s.failure() != nil || s.failed.Load() != nil
		})
		n.stop()
		n.fs = fs.Crash(rng)
		n.serve("orders")
		if got := left(t, n.leaderOf("orders")); len(got) != 2 {
			t.Errorf("cut at step %d, it shows %v", step, got)
		}
		n.eventually("a marker", func() bool { return n.leaderOf("orders").Removed().Has(1) })
		got := left(t, n.leaderOf("orders"))
		if len(got) != 2 || got[0] != "2 orders.b" || !strings.HasSuffix(got[1], " orders.a") {
			t.Errorf("cut at step %d, it shows %v in the end", step, got)
		}
		n.stop()
	}
}

// TestNoCrashLosesATTL: the power is cut at each step of the first publish with one. If the message
// was kept, it expires.
func TestNoCrashLosesATTL(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(2, 1))
	kept := 0
	for step := 0; step < 45; step += 4 {
		fs := crashfs.New()
		n := newSite(t)
		n.machine, n.fs = newMachine(t), fs
		n.mayExpire(nil)
		n.serve("orders")
		n.leaderOf("orders")
		fs.StopAfter(step)
		got := n.ask("orders.a", "1", "TTL: 1h")
		n.stop()
		n.fs = fs.Crash(rng)
		n.serve("orders")
		if start, end := n.leaderOf("orders").Offsets(); start < end {
			kept++
		} else if got == "orders@1" {
			t.Errorf("cut at step %d, an acknowledged message is lost", step)
		}
		n.machine.pass(61 * time.Minute)
		n.shows(fmt.Sprint("cut at step ", step))
		n.stop()
	}
	if kept == 0 || kept == 12 {
		t.Errorf("kept %d times", kept)
	}
}

// TestTheNextLeaderExpiresMessages: leaders die before, or while, messages expire. The next one
// removes them, and leaves one marker of each subject.
func TestTheNextLeaderExpiresMessages(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 3)
	for _, n := range c.sites {
		n.machine = newMachine(t)
		n.mayExpire(func(s *coordination.TopicSpec) { s.Stream.SubjectDeleteMarkerTTL = 24 * time.Hour })
	}
	c.begin()
	for life := range 4 {
		i, next := life%3, (life+1)%3
		n := c.sites[i]
		of := fmt.Sprint("orders.", life)
		n.ask(of, "stays")
		n.ask(of, "with an older one", "TTL: 25h")
		n.ask(of+".a", "alone", "TTL: 25h")
		if life == 3 { // before, the next leader removes them, or both try to
			for _, n := range c.sites {
				n.machine.pass(26 * time.Hour)
			}
		}
		c.kill(i)
		c.elect(next, next, (next+1)%3)
		c.tell()
		c.sites[next].open("orders")
		c.start(i)
		c.settle("all are in sync", func() bool { return len(c.inSync()) == 3 })
	}
	want := map[string]int{}
	for life := range 4 {
		want[fmt.Sprint("orders.", life)]++
		want[fmt.Sprint("orders.", life, ".a")]++
	}
	s := c.sites[1].leaderOf("orders")
	var end uint64
	c.sites[1].eventually("one record of each subject, and four markers", func() bool {
		got, markers := map[string]int{}, 0
		var start uint64
		start, end = s.Offsets()
		if _, err := s.Scan(start, end, 1<<20, func(r *log.Record) bool {
			if got[string(r.Subject)]++; strings.Contains(string(r.Data[:r.Header]), "Marks: yes") {
				markers++
			}
			return true
		}); err != nil {
			t.Fatal(err)
		}
		return maps.Equal(got, want) && markers == 4
	})
	if got := end - 1; got != 4*3+4 {
		t.Errorf("%d messages and markers were kept", got)
	}
}

// TestWhatExpiresMayBeGone: it was deleted, purged or replaced before.
func TestWhatExpiresMayBeGone(t *testing.T) {
	n := expires(t, marking)
	for i := range 4 {
		n.ask(fmt.Sprint("orders.", i), "x", "TTL: 1h")
	}
	s := n.leaderOf("orders")
	if err := n.erase(s, 2); err != nil {
		t.Fatal(err)
	}
	n.ask("orders.2", "replaces it", "Rollup: sub")
	if _, err := s.Purge(t.Context(), 2); err != nil {
		t.Fatal(err)
	}
	n.machine.pass(61 * time.Minute)
	n.shows("after an hour", "5 orders.2", "6 orders.3")
}

// TestASealedTopicKeepsWhatExpires: nothing comes in, and nothing goes out.
func TestASealedTopicKeepsWhatExpires(t *testing.T) {
	n := expires(t, nil)
	n.ask("orders.a", "1", "TTL: 1h")
	n.mayExpire(func(s *coordination.TopicSpec) { s.Stream.DiscardNew, s.Stream.Sealed = true, true })
	n.tell()
	s := n.leaderOf("orders")
	n.eventually("it is sealed", func() bool { rules, _ := s.Expiry(); return !rules.On })
	n.machine.pass(2 * time.Hour)
	n.shows("sealed", "1 orders.a")
	n.mayExpire(func(s *coordination.TopicSpec) { s.Stream.DiscardNew, s.Stream.Sealed = false, false })
	n.tell()
	n.shows("no longer sealed")
}
