package topic

import (
	"fmt"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/carillon-mq/carillon/broker/coordination"
	"github.com/carillon-mq/carillon/broker/log"
	"github.com/carillon-mq/carillon/broker/scheduling"
	"github.com/carillon-mq/carillon/internal/testutil"
)

// schedules serves orders on a machine of its own, with scheduled messages.
func schedules(t *testing.T, change func(*coordination.TopicSpec)) *site {
	n := newSite(t)
	n.machine = newMachine(t)
	n.mayBeScheduled("orders", change)
	n.mayBeScheduled("ticks", nil)
	n.serve("orders", "ticks")
	return n
}

func (n *site) mayBeScheduled(name string, change func(*coordination.TopicSpec)) {
	n.topic(name, func(s *coordination.TopicSpec) {
		if s.Stream.AllowSchedules, s.Stream.AllowRollup = true, true; change != nil {
			change(s)
		}
	})
}

// within is a time on the machine's clock.
func (n *site) within(d time.Duration) string {
	return "Schedule: @at " + n.machine.wall().Add(d).UTC().Format(time.RFC3339)
}

// holds waits until readers see what is wanted: "offset subject payload".
func (n *site) holds(when string, want ...string) {
	n.t.Helper()
	testutil.Eventually(n.t, when, func() error {
		s := n.leaderOf("orders")
		var got []string
		start, end := s.Offsets()
		_, err := s.Scan(start, end, math.MaxInt64, func(r *log.Record) bool {
			got = append(got, fmt.Sprintf("%d %s %s", r.Offset, r.Subject, r.Data[r.Header:]))
			return true
		})
		if err == nil && !slices.Equal(got, want) {
			err = fmt.Errorf("readers see %q, want %q", got, want)
		}
		return err
	})
}

// stays fails the test if something changes while the shards are looked at: schedules of another
// Topic are published, twice, so there is a complete look between.
func (n *site) stays(when string, want ...string) {
	n.t.Helper()
	n.holds(when, want...)
	n.machine.pass(3 * time.Second) // retries are due
	for range 2 {
		_, before := n.leaderOf("ticks").Offsets()
		n.ask("ticks.a", "", "Schedule: @at 2001-01-01T00:00:00Z", "Target: ticks.b")
		n.eventually("another schedule is published", func() bool { _, end := n.leaderOf("ticks").Offsets(); return end > before+1 })
	}
	n.holds(when, want...)
}

// TestAScheduledMessageIsPublishedOnce: in the life in which it was published or another one, from
// whichever log the time is known, and after a crash behind it not again. Its message takes the
// place of the schedule in one batch.
func TestAScheduledMessageIsPublishedOnce(t *testing.T) {
	t.Parallel()
	n := schedules(t, nil)
	n.ask("orders.a", "1", n.within(time.Hour), "Target: orders.x")
	n.ask("orders.b", "2", n.within(2*time.Hour), "Target: orders.y")
	n.ask("orders.c", "3", n.within(3*time.Hour), "Target: orders.z")
	n.machine.pass(59 * time.Minute)
	n.stays("too early", "1 orders.a 1", "2 orders.b 2", "3 orders.c 3")
	n.machine.pass(2 * time.Minute)
	n.holds("after an hour", "2 orders.b 2", "3 orders.c 3", "4 orders.x 1")
	n.crash()
	n.serve("orders", "ticks")
	n.stays("after a crash", "2 orders.b 2", "3 orders.c 3", "4 orders.x 1")
	n.machine.pass(time.Hour)
	n.holds("after two hours, in the next life", "3 orders.c 3", "4 orders.x 1", "5 orders.y 2")

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
	if _, err := s.State().Trim(mark); err != nil {
		t.Fatal(err)
	}
	n.restart("orders", "ticks")
	n.machine.pass(10 * time.Hour) // it is late
	n.stays("after three hours, from a snapshot", "4 orders.x 1", "5 orders.y 2", "6 orders.z 3")
}

// TestAScheduleGoesOn: each time once, in whichever life; times that have passed count once. It
// ends with its record.
func TestAScheduleGoesOn(t *testing.T) {
	t.Parallel()
	n := schedules(t, nil)
	n.ask("orders.a", "1", "Schedule: @every 1h", "Target: orders.x")
	n.machine.pass(61 * time.Minute)
	n.holds("once", "1 orders.a 1", "2 orders.x 1")
	n.stays("no more", "1 orders.a 1", "2 orders.x 1")
	n.crash()
	n.serve("orders", "ticks")
	n.stays("after a crash", "1 orders.a 1", "2 orders.x 1")
	n.machine.pass(time.Hour)
	n.holds("twice", "1 orders.a 1", "2 orders.x 1", "3 orders.x 1")
	n.restart("orders", "ticks")
	n.machine.pass(10 * time.Hour)
	n.holds("times that have passed", "1 orders.a 1", "2 orders.x 1", "3 orders.x 1", "4 orders.x 1")
	n.stays("count once", "1 orders.a 1", "2 orders.x 1", "3 orders.x 1", "4 orders.x 1")
	s := n.leaderOf("orders")
	done := make(chan error, 1)
	if err := s.Remove(s.Spans([]uint64{1}), func(err error) { done <- err }); err != nil || <-done != nil {
		t.Fatal(err)
	}
	n.machine.pass(10 * time.Hour)
	n.stays("its record is removed", "2 orders.x 1", "3 orders.x 1", "4 orders.x 1")
}

// TestWhatEndsASchedule: a newer one, any newer message on its subject, and its own TTL.
func TestWhatEndsASchedule(t *testing.T) {
	t.Parallel()
	n := schedules(t, func(s *coordination.TopicSpec) { s.Stream.AllowMessageTTL = true })
	n.ask("orders.a", "1", n.within(time.Hour), "Target: orders.x")
	n.ask("orders.a", "2", n.within(2*time.Hour), "Target: orders.x")
	n.ask("orders.b", "3", n.within(time.Hour), "Target: orders.y")
	n.ask("orders.b", "4")
	n.ask("orders.c", "5", "Schedule: @every 1h", "Target: orders.z", "TTL: 90m")
	n.machine.pass(61 * time.Minute)
	n.holds("after an hour", "2 orders.a 2", "3 orders.b 3", "4 orders.b 4", "5 orders.c 5", "6 orders.z 5")
	n.machine.pass(61 * time.Minute)
	n.stays("after two hours", "3 orders.b 3", "4 orders.b 4", "6 orders.z 5", "7 orders.x 2")
}

// TestAMessageEndsTheScheduleOfAnotherSubject: in one batch with itself, also if both come
// together, and once. It ends nothing else.
func TestAMessageEndsTheScheduleOfAnotherSubject(t *testing.T) {
	t.Parallel()
	n := schedules(t, func(s *coordination.TopicSpec) { s.Stream.AllowMessageTTL = true })
	ends := func(of string) []string { return []string{"Scheduler: " + of, "Next: purge"} }
	const refused = "no: topic orders: only the stream itself says which schedule a message is of, and a message ends the schedule of another subject only"
	n.ask("orders.a", "1", "Schedule: @every 1h", "Target: orders.x")
	n.ask("orders.b", "2", n.within(time.Hour), "Target: orders.y")
	n.ask("orders.c", "3", "TTL: 5h")
	n.expect(n.ask("orders.end", "4", ends("orders.c")...), refused)
	n.expect(n.ask("orders.a", "4", ends("orders.a")...), refused)
	n.expect(n.ask("orders.end", "4", ends("orders.*")...), refused)
	n.expect(n.ask("orders.end", "4", "Scheduler: orders.a"), refused)
	n.expect(n.ask("orders.end", "4", ends("orders.none")...), "orders@4")
	n.expect(n.ask("orders.end", "5", ends("orders.a")...), "orders@5")
	n.holds("one has ended", "2 orders.b 2", "3 orders.c 3", "4 orders.end 4", "5 orders.end 5")
	n.expect(n.ask("orders.end", "6", ends("orders.a")...), "orders@6")
	n.hub.publish(message("orders.d", "schedule", "7", "Schedule: @every 30m", "Target: orders.z"), message("orders.end", "end", "8", ends("orders.d")...))
	n.expect(n.hub.answer(t, "end"), "orders@8")
	n.holds("both at once", "2 orders.b 2", "3 orders.c 3", "4 orders.end 4", "5 orders.end 5", "6 orders.end 6", "8 orders.end 8")
	n.crash()
	n.serve("orders", "ticks")
	n.machine.pass(61 * time.Minute)
	n.stays("after a crash", "3 orders.c 3", "4 orders.end 4", "5 orders.end 5", "6 orders.end 6", "8 orders.end 8", "9 orders.y 2")
}

// TestAMessageThatEndedAScheduleIsADuplicate: also when the subject has another message by then.
func TestAMessageThatEndedAScheduleIsADuplicate(t *testing.T) {
	n := schedules(t, func(s *coordination.TopicSpec) { s.Deduplication = 1 << 40 })
	n.ask("orders.a", "1", n.within(time.Hour), "Target: orders.x")
	ends := []string{"Scheduler: orders.a", "Next: purge", "Id: end"}
	n.expect(n.ask("orders.end", "2", ends...), "orders@2")
	n.expect(n.ask("orders.a", "3"), "orders@3")
	n.expect(n.ask("orders.end", "2", ends...), "orders@2 again")
	n.holds("afterwards", "2 orders.end 2", "3 orders.a 3")
}

// TestNothingIsPublishedWhileTheTimeIsInDoubt: the clock jumps ahead, and is corrected.
func TestNothingIsPublishedWhileTheTimeIsInDoubt(t *testing.T) {
	n := schedules(t, nil)
	n.ask("orders.a", "1", n.within(time.Hour), "Target: orders.x")
	n.machine.set(year)
	n.eventually("it is said", func() bool { return n.said("No message expires") })
	n.holds("in doubt", "1 orders.a 1")
	n.machine.set(0)
	n.machine.pass(time.Hour)
	n.holds("the clock is right again", "2 orders.x 1")
}

// TestTheSourceOfASchedule: the last message of that subject, or the schedule's own if there is
// none.
func TestTheSourceOfASchedule(t *testing.T) {
	n := schedules(t, nil)
	n.ask("orders.s", "old")
	n.ask("orders.a", "own", "Schedule: @every 1h", "Target: orders.x", "Source: orders.s")
	n.ask("orders.b", "own", n.within(time.Hour), "Target: orders.y", "Source: orders.none")
	n.ask("orders.s", "new")
	n.machine.pass(61 * time.Minute)
	n.holds("after an hour", "1 orders.s old", "2 orders.a own", "4 orders.s new", "5 orders.x new", "6 orders.y own")
}

// TestAClientCantSayThatAScheduleIsDue: neither with a word of its own, nor again.
func TestAClientCantSayThatAScheduleIsDue(t *testing.T) {
	n := schedules(t, nil)
	n.ask("orders.a", "1", n.within(time.Hour), "Target: orders.x")
	for _, says := range []string{"word 1 5 0 0", "1 5 0 0", "x"} {
		n.expect(n.ask("orders.x", "forged", scheduling.Header+": "+says, "Nats-Expected-Last-Subject-Sequence: 1", "Nats-Expected-Last-Subject-Sequence-Subject: orders.a"),
			"no: topic orders: only the stream itself says which schedule a message is of, and a message ends the schedule of another subject only")
	}
	// A retry of the stream itself that comes late, and one for another time.
	due := n.leaderOf("orders").removing.DueAt(1)
	n.machine.pass(61 * time.Minute)
	n.holds("after an hour", "2 orders.x 1")
	late := scheduling.Result(scheduling.Firing{Offset: 1, Due: due}, &scheduling.Request{Target: []byte("orders.x")}, []byte("orders.a"), nil, []byte("late"))
	late.Reply = []byte("late")
	n.hub.publish(late)
	n.expect(n.hub.answer(t, "late"), "no: topic orders: only the stream itself says which schedule a message is of, and a message ends the schedule of another subject only")
	n.holds("afterwards", "2 orders.x 1")
}

// TestAMessageUnderWayIsNotPublishedAgain: it is not committed for a while, and what the leader
// knows of last messages is forgotten meanwhile.
func TestAMessageUnderWayIsNotPublishedAgain(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 3)
	for _, n := range c.sites {
		n.mayBeScheduled("orders", nil)
		n.machine = newMachine(t)
	}
	a := c.sites[0]
	c.begin()
	at := a.machine.wall().Add(time.Hour).UTC().Truncate(time.Second)
	a.expect(a.ask("orders.a", "1", "Schedule: @at "+at.Format(time.RFC3339), "Target: orders.x"), "orders@1")
	c.mu.Lock()
	c.cut[a.self] = true
	for conn := range c.conns {
		conn.Close()
	}
	c.mu.Unlock()
	for _, n := range c.sites {
		n.machine.pass(61 * time.Minute)
	}
	s := a.service.Topic("orders").shards[0].leading.Load()
	a.eventually("its message is appended", func() bool { _, end, _ := s.data.Offsets(); return end == 3 })
	s.mu.Lock()
	s.subjects.Reset(s.end)
	s.mu.Unlock()
	again := scheduling.Result(scheduling.Firing{Offset: 1, Due: at.UnixNano()}, &scheduling.Request{Target: []byte("orders.x")}, []byte("orders.a"), nil, []byte("1"))
	again.Reply = []byte("again")
	a.hub.publish(again)
	a.expect(a.hub.answer(t, "again"), "no: topic orders: only the stream itself says which schedule a message is of, and a message ends the schedule of another subject only")
	if _, end, _ := s.data.Offsets(); end != 3 {
		t.Errorf("the log ends at %d", end)
	}
}

// TestTheNextLeaderPublishesWhatIsScheduled: what one leader has published, the next one does not.
func TestTheNextLeaderPublishesWhatIsScheduled(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 3)
	for _, n := range c.sites {
		n.mayBeScheduled("orders", nil)
		n.machine = newMachine(t)
	}
	a, b := c.sites[0], c.sites[1]
	c.begin()
	a.expect(a.ask("orders.a", "1", "Schedule: @every 1h", "Target: orders.x"), "orders@1")
	a.expect(a.ask("orders.b", "2", a.within(90*time.Minute), "Target: orders.y"), "orders@2")
	pass := func(d time.Duration) {
		for _, n := range c.sites {
			n.machine.pass(d)
		}
	}
	pass(61 * time.Minute)
	a.holds("after an hour", "1 orders.a 1", "2 orders.b 2", "3 orders.x 1")
	a.eventually("all hold it", func() bool { return equal(c.copies()) })
	c.kill(0)
	c.elect(1, 1, 2)
	c.tell()
	b.open("orders")
	b.holds("the next leader", "1 orders.a 1", "2 orders.b 2", "3 orders.x 1")
	pass(30 * time.Minute)
	b.holds("once", "1 orders.a 1", "3 orders.x 1", "4 orders.y 2")
	pass(30 * time.Minute)
	b.holds("twice", "1 orders.a 1", "3 orders.x 1", "4 orders.y 2", "5 orders.x 1")
}
