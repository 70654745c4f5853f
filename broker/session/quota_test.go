package session

import (
	"fmt"
	"testing"
	"time"

	"github.com/carillon-mq/carillon/broker/identity"
	"github.com/carillon-mq/carillon/broker/quota"
)

// dividing are hubs of three brokers at which one user publishes whatever it may, in virtual time.
type dividing struct {
	t      *testing.T
	limits identity.Limits
	size   int // of a message
	now    time.Time
	hubs   []*Hub
	cut    map[*Hub]bool
}

func newDividing(t *testing.T, limits identity.Limits, size int) *dividing {
	d := &dividing{t: t, limits: limits, size: size, now: time.Unix(1000, 0), cut: make(map[*Hub]bool)}
	for i := range 3 {
		h := &Hub{users: make(map[string]*user)}
		h.SetBrokers([]string{fmt.Sprint("b", (i+1)%3), fmt.Sprint("b", (i+2)%3)})
		h.users["ann"] = h.newUser("ann")
		d.hubs = append(d.hubs, h)
	}
	return d
}

// publish has the user publish at these brokers for some time, and returns how much of its limit a
// second that was, in seconds.
func (d *dividing) publish(seconds float64, at ...int) float64 {
	d.t.Helper()
	const step = 5 * time.Millisecond
	sent := 0
	for end := d.now.Add(time.Duration(seconds * float64(time.Second))); d.now.Before(end); d.now = d.now.Add(step) {
		for i, h := range d.hubs {
			// Their intervals begin at different times.
			if d.now.Add(time.Duration(i)*35*step).UnixNano()%int64(quota.Interval) != 0 {
				continue
			}
			report := h.divide(d.now)
			for _, other := range d.hubs {
				if report == nil || other == h || d.cut[h] || d.cut[other] {
					continue
				}
				if err := other.hear(fmt.Sprint("b", i), report, d.now); err != nil {
					d.t.Fatal(err)
				}
			}
		}
		for _, i := range at {
			for d.hubs[i].users["ann"].rate.take(&d.limits, d.size, d.now) == 0 {
				sent++
			}
		}
	}
	if d.limits.Messages > 0 {
		return float64(sent) / float64(d.limits.Messages)
	}
	return float64(sent*d.size) / float64(d.limits.Bytes)
}

func (d *dividing) wants(why string, got, least, most float64) {
	d.t.Helper()
	if got < least || got > most {
		d.t.Errorf("%s: it published for %.2f seconds of its limit, want %.2f to %.2f", why, got, least, most)
	}
}

// TestALimitASecondIsTheClusters: at one broker a user has nearly all of it, at several the same in
// total, and at one that is cut off an equal part. A user that moves has a burst more at most.
func TestALimitASecondIsTheClusters(t *testing.T) {
	for _, limits := range []struct {
		identity.Limits
		size int
	}{{identity.Limits{Messages: 600}, 100}, {identity.Limits{Bytes: 60_000}, 100}} {
		d := newDividing(t, limits.Limits, limits.size)
		const burst = 1.05 // and a message at each broker
		d.wants("at three brokers", d.publish(10, 0, 1, 2), 10, 10+burst)
		d.wants("still", d.publish(60, 0, 1, 2), 59, 60.1)
		d.publish(3, 0) // portions follow
		d.wants("at one", d.publish(60, 0), 57, 58.1)
		d.wants("it moves", d.publish(60, 1), 46, 60+burst)
		moved := 0.0
		for i := range 60 {
			moved += d.publish(1.7, i%3)
		}
		d.wants("it moves all the time", moved, 20, 60*1.7+burst)
		d.publish(3, 2)
		d.cut[d.hubs[2]] = true
		d.publish(3, 2)
		d.wants("its broker is cut off", d.publish(60, 2), 19.9, 20.1)
		d.wants("and it publishes at all", d.publish(60, 0, 1, 2), 59, 60+burst)
		d.cut[d.hubs[2]] = false
		d.publish(3, 2)
		d.wants("no broker is cut off any more", d.publish(60, 2), 57, 58.1)
	}
}

// TestWhatLeavesAUserLessAppliesAtOnce: other brokers, and what is demanded there. Room that the
// user has is lost, and one that connects later has no more.
func TestWhatLeavesAUserLessAppliesAtOnce(t *testing.T) {
	limits, now := identity.Limits{Messages: 1200}, time.Unix(1000, 0)
	h, other := &Hub{users: make(map[string]*user)}, &Hub{users: make(map[string]*user)}
	room := func(why string, want int) {
		t.Helper()
		is := &h.users["ann"].rate
		left := rate{share: is.share, at: now, messages: is.messages} // so that is keeps its room
		got := 0
		for left.take(&limits, 1, now) == 0 {
			got++
		}
		if got != want {
			t.Errorf("%s: there is room for %d messages, want %d", why, got, want)
		}
	}
	ann := h.newUser("ann")
	h.users["ann"] = ann
	ann.rate.take(&limits, 1, now)
	room("one broker", 1199)
	h.SetBrokers([]string{"b1", "b2"})
	room("three", 400)
	other.SetBrokers([]string{"b0", "b2"})
	there := other.newUser("ann")
	other.users["ann"] = there
	for there.rate.take(&limits, 1, now) == 0 {
	}
	if err := h.hear("b1", other.divide(now), now); err != nil {
		t.Fatal(err)
	}
	room("another one demands all", 20)
	h.users["ann"] = h.newUser("ann")
	h.users["ann"].rate.messages = 1200
	room("it connects later", 20)
}

// TestAnEarlyTickRaisesNothing: it comes soon after a late one, and the others have not heard yet.
func TestAnEarlyTickRaisesNothing(t *testing.T) {
	limits, now := identity.Limits{Messages: 600}, time.Unix(1000, 0)
	h := &Hub{users: make(map[string]*user)}
	h.SetBrokers([]string{"b1"})
	ann := h.newUser("ann")
	h.users["ann"] = ann
	if err := h.hear("b1", []byte{0}, now); err != nil {
		t.Fatal(err)
	}
	publish := func(now time.Time) {
		for ann.rate.take(&limits, 1, now) == 0 {
		}
	}
	share := func(why string, want float64) {
		t.Helper()
		if got := ann.standing.Now().Messages; got != want {
			t.Errorf("%s: its portion is %v, want %v", why, got, want)
		}
	}
	publish(now)
	h.divide(now)
	share("it is to be reported that it demands all", .5)
	early := now.Add(quota.Interval/2 - 1)
	publish(early)
	if report := h.divide(early); report != nil {
		t.Error("an early tick reports")
	}
	share("an early tick", .5)
	now = now.Add(quota.Interval / 2)
	publish(now)
	h.divide(now)
	share("later", 1-1./40)
}

// TestASmallLimitHasRoomForAMessage: below one message a second at each broker.
func TestASmallLimitHasRoomForAMessage(t *testing.T) {
	d := newDividing(t, identity.Limits{Messages: 1}, 1)
	d.wants("at one broker", d.publish(120, 0), 110, 117)
	d.wants("at three", d.publish(120, 0, 1, 2), 110, 123)
}

// TestWhatIsUsedIsDemanded: in parts of each limit, and half of it in the interval after.
func TestWhatIsUsedIsDemanded(t *testing.T) {
	var r rate
	now := time.Unix(1000, 0)
	limits := identity.Limits{Messages: 100, Bytes: 1000}
	var got quota.Demand
	for i, step := range []struct {
		messages, size int
		want           quota.Demand
	}{
		{0, 0, quota.Demand{}},
		{10, 10, quota.Demand{Messages: quota.Whole / 5, Bytes: quota.Whole / 5}},
		{0, 0, quota.Demand{Messages: quota.Whole / 10, Bytes: quota.Whole / 10}},
		{10, 40, quota.Demand{Messages: quota.Whole / 5, Bytes: 8 * (quota.Whole / 10)}},
		{200, 0, quota.Demand{Messages: quota.Whole, Bytes: 4 * (quota.Whole / 10)}},
		{1, 4000, quota.Demand{Messages: quota.Whole / 2, Bytes: quota.Whole}},
	} {
		now = now.Add(quota.Interval)
		for range step.messages {
			r.take(&limits, step.size, now)
		}
		got = r.demand(got, now)
		off := func(a, b uint16) bool { return max(a, b)-min(a, b) > 8 }
		if off(got.Messages, step.want.Messages) || off(got.Bytes, step.want.Bytes) {
			t.Errorf("interval %d: %v, want %v", i, got, step.want)
		}
	}
}
