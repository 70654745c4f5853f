package topic

import (
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/carillon-mq/carillon/broker/clock"
	"github.com/carillon-mq/carillon/broker/coordination"
)

const year = 365 * 24 * time.Hour

// timed is a site on a machine of its own that serves orders: ids for two minutes, records for ten
// hours.
func timed(t *testing.T) *site {
	n := newSite(t)
	n.machine = newMachine(t)
	n.topic("orders", func(s *coordination.TopicSpec) {
		s.Deduplication, s.Retention.Age = 2*time.Minute, 10*time.Hour
	})
	n.serve("orders")
	return n
}

// keeps asks for a message with an id, and says whether it was kept.
func (n *site) keeps(id string) bool {
	n.t.Helper()
	got := n.ask("orders.a", "x", "Id: "+id)
	if !strings.HasPrefix(got, "orders@") {
		n.t.Fatalf("answered %q", got)
	}
	return !strings.HasSuffix(got, " again")
}

// looked waits until the keeper has looked at orders by the present time, and deletion by age is
// paused, or is not.
func (n *site) looked(paused bool) *ShardLeader {
	n.t.Helper()
	s := n.service.Topic("orders").Shard()
	n.eventually(fmt.Sprintf("it is looked at, and deletion by age is paused: %t", paused), func() bool {
		// The keeper may be at the shard already, by the time before. So it is to come to it, and
		// once more: then it has been through with it.
		for range 2 {
			s.retention.Renew()
			n.eventually("the keeper comes to it", s.retention.Seen)
		}
		reason, _ := s.AgePaused()
		return (reason != clock.None) == paused
	})
	return s
}

// lastTime is how far from the true time the last record's is, which was just kept.
func (n *site) lastTime() time.Duration {
	n.t.Helper()
	_, end := n.service.Topic("orders").Shard().Offsets()
	r, err := n.service.Topic("orders").Shard().Get(end - 1)
	if err != nil {
		n.t.Fatal(err)
	}
	return time.Duration(r.Time - time.Now().Add(time.Duration(n.machine.passed.Load())).UnixNano())
}

// TestAClockThatIsWrongDuringOnePublish: the clock is wrong by a year while one message is
// published. Its id and later ones are remembered as long as all others, retention continues, and
// the record has the time at which it was published.
func TestAClockThatIsWrongDuringOnePublish(t *testing.T) {
	for _, wrong := range []time.Duration{year, -year} {
		t.Run(wrong.String(), func(t *testing.T) {
			n := timed(t)
			n.keeps("x")
			n.machine.set(wrong)
			if !n.keeps("bad") || n.lastTime().Abs() > clock.Bound {
				t.Errorf("the record's time is %v off", n.lastTime())
			}
			if n.keeps("x") || n.keeps("bad") {
				t.Error("a message was kept twice within the window")
			}
			n.machine.set(0)
			if !n.keeps("daily") || n.keeps("daily") || n.lastTime().Abs() > clock.Bound {
				t.Error("back in time, ids are not known as long as they are to be")
			}
			n.machine.pass(24 * time.Hour)
			if !n.keeps("daily") || !n.keeps("bad") {
				t.Error("a day later, with a window of 2 minutes, a message was taken for a duplicate")
			}
			n.machine.pass(24 * time.Hour)
			s := n.looked(false)
			n.eventually("what is a day old goes", func() bool { return s.Data().Start() == 6 })
		})
	}
}

// TestALoneClockJumps: while a lone clock is a year ahead, nothing is deleted by its age, also in
// the next life of the broker and of its machine. Ids still expire by the elapsed time.
func TestALoneClockJumps(t *testing.T) {
	for _, wrong := range []time.Duration{year, -year} {
		for _, c := range []struct {
			name           string
			reboot, forget bool
		}{
			{name: "its broker starts anew"},
			{name: "its machine starts anew", reboot: true},
			{name: "its machine starts anew and all but the log is lost", reboot: true, forget: true},
		} {
			t.Run(fmt.Sprint(wrong, c.name), func(t *testing.T) {
				t.Parallel() // they wait for the keeper's ticks
				n := timed(t)
				n.keeps("x")
				n.machine.set(wrong)
				n.looked(true)
				n.eventually("it is said", func() bool { return n.said("not deleted by their age") })
				n.machine.pass(time.Minute)
				if n.keeps("x") {
					t.Error("what is a minute old is not known")
				}
				n.machine.pass(5 * time.Minute)
				if !n.keeps("x") {
					t.Error("what is six minutes old was taken for a duplicate")
				}
				n.keeps("y")
				n.machine.pass(20 * time.Hour)
				n.machine.forgets = c.forget
				if c.reboot {
					n.machine.boots++
				}
				n.restart("orders")
				if c.forget && wrong > 0 {
					return // nothing tells that the machine was not off for a year
				}
				s := n.looked(true)
				if start, _, _ := s.Data().Offsets(); start != 1 {
					t.Errorf("the log starts at %d", start)
				}
				if !n.keeps("y") { // it is 20 hours old
					t.Error("by a time in doubt a message was taken for a duplicate")
				}
				if off := n.lastTime(); !c.reboot && off.Abs() > clock.Bound {
					t.Errorf("the time of a record is %v off", off)
				}
				n.machine.set(0)
				n.machine.pass(0)
				n.machine.pass(2 * clock.Again)
				if !n.keeps("z") || n.keeps("z") || n.lastTime().Abs() > clock.Bound {
					t.Errorf("corrected: the time of a record is %v off", n.lastTime())
				}
				n.looked(false)
				n.keeps("w") // in a segment of its own, if the one before has a time in the future
				n.machine.pass(11 * time.Hour)
				n.looked(false)
				n.eventually("what is too old goes", func() bool { return s.Data().Start() > 3 })
			})
		}
	}
}

// TestAClockBehindTheLogTakesNothingForADuplicate: a broker without a memory starts with a clock
// that is behind, just within the window of an id that it can't know the age of.
func TestAClockBehindTheLogTakesNothingForADuplicate(t *testing.T) {
	n := timed(t)
	n.keeps("x")
	n.machine.pass(time.Hour)
	n.machine.boots++
	n.machine.forgets = true
	n.machine.set(-time.Hour - time.Minute)
	n.restart("orders")
	if !n.keeps("x") {
		t.Error("what is an hour old was taken for a duplicate")
	}
	if n.keeps("x") {
		t.Error("what is new is not known")
	}
}

// TestALogFromAClockThatWasAhead: the log of an earlier version has the times of a clock that was a
// year ahead.
func TestALogFromAClockThatWasAhead(t *testing.T) {
	n := timed(t)
	n.stop()
	n.machine.forgets = true
	n.machine.jump.Store(int64(year))
	n.serve("orders")
	n.keeps("x")
	if off := n.lastTime(); off < year-time.Minute {
		t.Fatalf("the record's time is %v off", off)
	}
	n.stop()
	n.machine.jump.Store(0)
	n.machine.forgets = false
	n.machine.boots++
	clockFile(t, n)
	n.serve("orders")
	if !n.keeps("x") || n.keeps("x") || n.lastTime().Abs() > clock.Bound {
		t.Errorf("an id of next year was taken for a duplicate, or the time of a record is %v off", n.lastTime())
	}
	n.machine.pass(24 * time.Hour)
	if !n.keeps("x") {
		t.Error("a day later, with a window of 2 minutes, a message was taken for a duplicate")
	}
	n.looked(false)
	n.keeps("y") // in a segment of its own
	n.machine.pass(24 * time.Hour)
	s := n.looked(false)
	n.eventually("what is a day old goes", func() bool { return s.Data().Start() > 3 })
}

// TestIDsAreReadAgainWhenTheTimeSteps: a broker starts to lead with a clock by which the ids of its
// log are a year old. When the time is put right, it knows them.
func TestIDsAreReadAgainWhenTheTimeSteps(t *testing.T) {
	n := timed(t)
	n.keeps("x")
	n.keeps("y")
	n.machine.pass(30 * time.Second)
	n.machine.forgets = true
	n.machine.boots++
	n.machine.jump.Store(int64(year))
	n.restart("orders")
	n.keeps("y") // a year has passed, as far as it knows
	n.keeps("z")
	n.machine.set(0)
	if err := n.machine.clock.Confirm(n.machine.clock.Status().Wall); err != nil {
		t.Error(err)
	}
	w := &n.service.Topic("orders").shards[0].ids
	n.eventually("it knows three ids", func() bool { return len(w.All(math.MinInt64)) == 3 })
	if n.keeps("x") || n.keeps("y") || n.keeps("z") {
		t.Error("a message was kept twice")
	}
	n.machine.pass(100 * time.Second) // two minutes after x, and not after z
	if !n.keeps("x") || n.keeps("z") {
		t.Error("ids are not known as long as they are to be")
	}
}

// clockFile has the next life of a broker know that its clock is right.
func clockFile(t *testing.T, n *site) {
	t.Helper()
	n.machine.start().Save()
}

// timedCluster returns three brokers, each on a machine of its own. The first leads orders, which
// keeps ids for two minutes and records for ten hours.
func timedCluster(t *testing.T) *cluster {
	c := newCluster(t, 3)
	for _, n := range c.sites {
		n.machine = newMachine(t)
		n.topic("orders", func(s *coordination.TopicSpec) {
			s.Replicas, s.Deduplication, s.Retention.Age = 3, 2*time.Minute, 10*time.Hour
		})
	}
	c.begin()
	c.votes(0, 3)
	return c
}

// votes waits until a broker hears the clocks of so many brokers.
func (c *cluster) votes(leader, count int) {
	c.t.Helper()
	n := c.sites[leader]
	n.eventually("it hears the others' clocks", func() bool { return n.machine.clock.Verdict().Known == count })
}

// lead has another broker lead, which all that live follow.
func (c *cluster) lead(next int, inSync ...int) *site {
	c.t.Helper()
	c.elect(next, inSync...)
	c.tell()
	n := c.sites[next]
	n.open("orders")
	c.votes(next, len(inSync))
	return n
}

// pass lets time pass on all machines, after which a leader hears the others again.
func (c *cluster) pass(leader int, d time.Duration) {
	c.t.Helper()
	for _, n := range c.sites {
		n.machine.pass(d)
	}
	c.votes(leader, len(c.sites))
}

// TestOneOfThreeClocksIsWrong: the clock of one of three brokers is wrong by a year, of the leader
// first and then of a follower that is elected. It affects neither records' times, nor ids, nor
// retention.
func TestOneOfThreeClocksIsWrong(t *testing.T) {
	for _, wrong := range []time.Duration{year, -year} {
		t.Run(wrong.String(), func(t *testing.T) {
			c := timedCluster(t)
			a := c.sites[0]
			a.keeps("x")
			a.machine.set(wrong)
			if a.keeps("x") || !a.keeps("y") || a.lastTime().Abs() > clock.Bound {
				t.Errorf("the leader's clock jumped: the time of a record is %v off", a.lastTime())
			}
			b := c.lead(1, 0, 1, 2)
			if b.keeps("x") || b.keeps("y") || !b.keeps("z") || b.lastTime().Abs() > clock.Bound {
				t.Errorf("another one leads: the time of a record is %v off", b.lastTime())
			}
			a = c.lead(0, 0, 1, 2)
			if a.keeps("z") {
				t.Error("the one with the wrong clock leads again, and keeps a message twice")
			}
			c.pass(0, 3*time.Minute)
			if !a.keeps("x") || !a.keeps("z") || a.lastTime().Abs() > clock.Bound {
				t.Errorf("by the wrong clock a message was taken for a duplicate, or the time of a record is %v off", a.lastTime())
			}
			if a.machine.clock.InDoubt() {
				t.Errorf("the time is in doubt: %+v", a.machine.clock.Verdict())
			}
			s := a.looked(false)
			if start := s.Data().Start(); start != 1 {
				t.Errorf("the log starts at %d", start)
			}
			c.pass(0, 11*time.Hour)
			s = a.looked(false)
			a.eventually("what is too old goes", func() bool { return s.Data().Start() == 6 })
		})
	}
}

// TestABrokerWithAWrongClockIsElected: a broker is started on a machine whose clock is a year
// ahead, and is elected. Records have the time of the others.
func TestABrokerWithAWrongClockIsElected(t *testing.T) {
	c := timedCluster(t)
	c.sites[0].keeps("x")
	c.kill(2)
	w := c.sites[2]
	w.machine.boots++
	w.machine.forgets = true
	w.machine.jump.Store(int64(year))
	c.start(2)
	c.settle("it has caught up", func() bool { return len(c.inSync()) == 3 })
	c.votes(2, 2) // a leader waits for others' clocks, but not for ever
	w = c.lead(2, 0, 1, 2)
	if w.keeps("x") || !w.keeps("y") || w.lastTime().Abs() > clock.Bound {
		t.Errorf("a message was kept twice, or the time of a record is %v off", w.lastTime())
	}
	c.pass(2, 11*time.Hour)
	w.keeps("young")
	if s := w.looked(false); s.Data().Start() > 3 {
		t.Errorf("the log starts at %d", s.Data().Start())
	}
}

// TestAllClocksJump: all clocks jump, one after the other. Records' times and ids continue under
// any leader, and nothing is deleted by age until the clocks are right again.
func TestAllClocksJump(t *testing.T) {
	for _, wrong := range []time.Duration{year, -year} {
		t.Run(wrong.String(), func(t *testing.T) {
			c := timedCluster(t)
			a := c.sites[0]
			a.keeps("x")
			for _, n := range c.sites {
				n.machine.set(wrong)
			}
			a.eventually("the leader hears of it", func() bool { return a.machine.clock.Verdict().Sure == 0 })
			a.looked(true)
			if a.keeps("x") || !a.keeps("y") || a.lastTime().Abs() > clock.Bound {
				t.Errorf("the time of a record is %v off", a.lastTime())
			}
			c.kill(0)
			b := c.lead(1, 1, 2)
			if b.keeps("x") || b.keeps("y") || !b.keeps("z") || b.lastTime().Abs() > clock.Bound {
				t.Errorf("another one leads: the time of a record is %v off", b.lastTime())
			}
			c.start(0)
			c.settle("the former leader is back", func() bool { return len(c.inSync()) == 3 })
			c.pass(1, 11*time.Hour)
			if !b.keeps("x") {
				t.Error("what is eleven hours old was taken for a duplicate")
			}
			s := b.looked(true)
			if s.Data().Start() != 1 {
				t.Errorf("the log starts at %d", s.Data().Start())
			}
			for _, n := range c.sites {
				n.machine.set(0)
			}
			c.pass(1, 2*clock.Again)
			b.eventually("the time is not in doubt", func() bool { return !b.machine.clock.InDoubt() })
			c.pass(1, 11*time.Hour)
			b.looked(false)
			b.eventually("what is too old goes", func() bool { return s.Data().Start() > 4 })
		})
	}
}
