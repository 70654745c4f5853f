package quota

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

// cluster is some brokers with one user, in virtual time.
type cluster struct {
	t       *testing.T
	rng     *rand.Rand
	now     time.Duration
	brokers []*broker
	flying  []*flight
	frames  int        // reports that were sent
	parted  [2]*broker // they have no link
	delay   func() time.Duration
}

type broker struct {
	id       string
	ledger   Ledger
	standing Standing
	demand   uint16
	phase    time.Duration
	cut      bool
}

// flight is a report on a link.
type flight struct {
	from, to *broker
	report   []byte
	at       time.Duration
}

const (
	step = 10 * time.Millisecond
	ann  = "ann"
)

func newCluster(t *testing.T, brokers int, seed uint64) *cluster {
	c := &cluster{t: t, rng: rand.New(rand.NewPCG(seed, 1))}
	c.delay = func() time.Duration { return step }
	var ids []string
	for i := range brokers {
		ids = append(ids, fmt.Sprint("b", i))
		c.brokers = append(c.brokers, &broker{id: ids[i], phase: step * time.Duration(c.rng.IntN(int(Interval/step)))})
	}
	for _, b := range c.brokers {
		b.ledger.SetOthers(slices.DeleteFunc(slices.Clone(ids), func(id string) bool { return id == b.id }))
		b.standing.Begin(b.target())
	}
	return c
}

func (b *broker) target() Share { return b.ledger.Target(ann, Demand{b.demand, 0}) }

func (b *broker) share() float64 { return b.standing.Now().Messages }

func (c *cluster) clock() time.Time { return time.Unix(1000, 0).Add(c.now) }

// run lets time pass. demand sets what is demanded at a broker when its interval begins; check is
// called after each step.
func (c *cluster) run(d time.Duration, demand func(b *broker) uint16, check func()) {
	c.t.Helper()
	for end := c.now + d; c.now < end; c.now += step {
		c.flying = slices.DeleteFunc(c.flying, func(f *flight) bool {
			if f.at > c.now {
				return false
			}
			if f.from.cut || f.to.cut || f.from == c.parted[0] && f.to == c.parted[1] || f.from == c.parted[1] && f.to == c.parted[0] {
				return true
			}
			lower, err := f.to.ledger.Hear(f.from.id, f.report, c.clock())
			if err != nil {
				c.t.Fatal(err)
			}
			if len(lower) > 0 {
				f.to.standing.Lower(f.to.target())
			}
			return true
		})
		for _, b := range c.brokers {
			if (c.now+b.phase)%Interval != 0 {
				continue
			}
			b.demand = demand(b)
			report := b.ledger.Report([]Use{{ann, Demand{b.demand, 0}}}, c.clock())
			b.standing.Next(b.target())
			for _, to := range c.brokers {
				if report != nil && to != b {
					c.frames++
					c.flying = append(c.flying, &flight{b, to, report, c.now + c.delay()})
				}
			}
		}
		check()
	}
}

func (c *cluster) sum() (sum float64) {
	for _, b := range c.brokers {
		sum += b.share()
	}
	return sum
}

// wants judges shares in sixtieths: of three brokers, an equal portion is 20, and the floor 1.
func (c *cluster) wants(why string, shares ...float64) {
	c.t.Helper()
	for i, want := range shares {
		if got := c.brokers[i].share() * 60; got < want-0.01 || got > want+0.01 {
			c.t.Errorf("%s: %s has %.3f sixtieths, want %v", why, c.brokers[i].id, got, want)
		}
	}
}

func ignore() {}

// settled is longer than portions take to follow the demand.
const settled = 8 * Interval

// TestAUserHasItsLimitWhereverItPublishes follows one user from broker to broker. Portions never
// add up to more than the limit.
func TestAUserHasItsLimitWhereverItPublishes(t *testing.T) {
	for seed := range uint64(20) {
		c := newCluster(t, 3, seed)
		b := c.brokers
		at := func(all ...*broker) func(*broker) uint16 {
			return func(one *broker) uint16 {
				if slices.Contains(all, one) {
					return Whole
				}
				return one.demand / 2
			}
		}
		judge := func() {
			if sum := c.sum(); sum > 1+1e-9 {
				t.Fatalf("seed %d: at %v the portions add up to %v", seed, c.now, sum)
			}
		}
		c.wants("nothing was published", 20, 20, 20)
		c.run(4*Interval+2*step, at(b[0]), judge)
		c.wants("at one broker, after two seconds", 58, 1, 1)
		c.run(settled, at(b[1]), judge)
		c.wants("it has moved", 1, 58, 1)
		c.run(settled, at(b[1], b[2]), judge)
		c.wants("at two", 1, 29.5, 29.5)
		c.run(settled, at(b...), judge)
		c.wants("at all", 20, 20, 20)
		c.run(4*settled, at(), judge)
		c.wants("at none", 20, 20, 20)
		before := c.frames
		c.run(10*settled, at(), judge)
		if c.frames != before {
			t.Errorf("%d reports were sent at rest", c.frames-before)
		}
	}
}

// TestPortionsAddUpWhateverIsDemanded: demands change at random, and reports are late, by less than
// an interval. Once they don't change, nothing is left over.
func TestPortionsAddUpWhateverIsDemanded(t *testing.T) {
	for seed := range uint64(200) {
		c := newCluster(t, 1+int(seed%7), seed)
		c.delay = func() time.Duration { return step * time.Duration(1+c.rng.IntN(int(Interval/step)/2)) }
		worst := 0.0
		judge := func() { worst = max(worst, c.sum()) }
		c.run(60*time.Second, func(b *broker) uint16 {
			switch c.rng.IntN(6) {
			case 0:
				return Whole
			case 1:
				return uint16(c.rng.IntN(Whole))
			case 2:
				return b.demand / 2
			}
			return b.demand
		}, judge)
		if worst > 1+1e-9 {
			t.Errorf("seed %d: the portions of %d brokers add up to %v", seed, len(c.brokers), worst)
		}
		for _, b := range c.brokers {
			b.demand = Whole / 3
		}
		c.run(settled, func(b *broker) uint16 { return b.demand }, ignore)
		if sum := c.sum(); sum < 1-1e-9 || sum > 1+1e-9 {
			t.Errorf("seed %d: in the end the portions of %d brokers add up to %v", seed, len(c.brokers), sum)
		}
	}
}

// TestABrokerThatHearsNobodyHasAnEqualPortion, and the others divide the rest.
func TestABrokerThatHearsNobodyHasAnEqualPortion(t *testing.T) {
	c := newCluster(t, 3, 1)
	b := c.brokers
	everywhere := func(*broker) uint16 { return Whole }
	first := func(one *broker) uint16 {
		if one == b[0] {
			return Whole
		}
		return 0
	}
	c.run(settled, first, ignore)
	c.wants("all are linked", 58, 1, 1)
	b[0].cut = true
	c.run(settled, first, ignore)
	c.wants("the one that it publishes at is cut off", 20)
	c.run(settled, everywhere, ignore)
	c.wants("it publishes at all", 20, 20, 20)
	hears := func(want ...int) {
		t.Helper()
		for i, one := range b {
			if heard, unheard := one.ledger.Heard(c.clock()); heard != want[i] || unheard != 2-want[i] {
				t.Errorf("%s hears %d others and %d not, want %d", one.id, heard, unheard, want[i])
			}
		}
	}
	hears(0, 1, 1)
	c.run(settled, func(one *broker) uint16 {
		if one == b[2] {
			return Whole
		}
		return 0
	}, ignore)
	c.wants("one of both that are linked has two thirds, without the floor of the other", 20, 1, 39)
	b[0].cut = false
	c.run(settled, first, ignore)
	c.wants("all are linked again", 58, 1, 1)
	hears(2, 2, 2)
}

// TestALinkThatBreaksIsWorthABurst: a broker is cut off and linked again at any time, and the
// user publishes anywhere. Both sides do not notice a cut at once, and meanwhile the portions may
// exceed the limit.
func TestALinkThatBreaksIsWorthABurst(t *testing.T) {
	for seed := range uint64(200) {
		c := newCluster(t, 2+int(seed%4), seed)
		one := c.brokers[0]
		for range 30 {
			one.cut = !one.cut
			at := c.brokers[c.rng.IntN(len(c.brokers))]
			excess := 0.0
			c.run(step*time.Duration(c.rng.IntN(int(settled/step))), func(b *broker) uint16 {
				if b == at || b == one && seed%2 == 0 {
					return Whole
				}
				return b.demand / 2
			}, func() { excess += max(c.sum()-1, 0) * step.Seconds() })
			if excess > 0.75 {
				t.Fatalf("seed %d: until %v the portions of %d brokers gave %.2f s of the limit too much", seed, c.now, len(c.brokers), excess)
			}
		}
	}
}

// TestTwoBrokersWithoutALinkExceedALimitByAThird where a third one has links to both.
func TestTwoBrokersWithoutALinkExceedALimitByAThird(t *testing.T) {
	c := newCluster(t, 3, 1)
	c.parted = [2]*broker{c.brokers[0], c.brokers[1]}
	at := func(b *broker) uint16 {
		if b == c.brokers[2] {
			return 0
		}
		return Whole
	}
	c.run(settled, at, ignore)
	c.wants("at both", 39, 39, 1)
	c.run(settled, func(*broker) uint16 { return Whole }, ignore)
	c.wants("at all", 20, 20, 20)
}

// TestAnotherNumberOfBrokersIsAnotherPortion: a broker that is not registered counts while it is
// heard, and a single broker has the whole limit.
func TestAnotherNumberOfBrokersIsAnotherPortion(t *testing.T) {
	now := time.Unix(1000, 0)
	var l Ledger
	equal := func(why string, own uint16, want float64) {
		t.Helper()
		if got := l.Target(ann, Demand{own, own}); got != (Share{want, want}) {
			t.Errorf("%s: %v, want %v", why, got, want)
		}
	}
	report := func(d uint16) []byte {
		report, _ := encode([]Use{{ann, Demand{d, d}}})
		return report
	}
	equal("one broker", 0, 1)
	if got := l.Report([]Use{{ann, Demand{Whole, Whole}}}, now); got != nil {
		t.Error("a single broker reports")
	}
	l.SetOthers([]string{"x", "y"})
	equal("three", 0, 1./3)
	if lower, err := l.Hear("x", report(Whole), now); !slices.Equal(lower, []string{ann}) || err != nil {
		t.Errorf("a report lowers %v, %v", lower, err)
	}
	if lower, err := l.Hear("x", report(Whole), now); len(lower) > 0 || err != nil {
		t.Errorf("the same report lowers %v, %v", lower, err)
	}
	equal("one of three demands all, and one is not heard", 0, 1./60)
	l.SetOthers([]string{"y"})
	equal("the one that demands is no longer registered", 0, 1./60)
	if _, err := l.Hear("x", report(0), now); err != nil {
		t.Error(err)
	}
	equal("it demands nothing", 0, 1./3)
	now = now.Add(heardFor)
	l.Report(nil, now)
	equal("two, and the other one is not heard", 0, .5)
	if _, err := l.Hear("x", report(Whole), now); err != nil {
		t.Error(err)
	}
	equal("the unregistered broker demands again", 0, 1./60)
	if _, err := l.Hear("x", []byte{2}, now); err == nil {
		t.Error("a broken report was taken")
	}
	equal("its report was broken", 0, .5)
	if _, err := l.Hear("y", report(Whole), now); err != nil {
		t.Error(err)
	}
	equal("it is heard", 0, 1./40)
	if _, err := l.Hear("y", report(Whole)[:9], now); err == nil {
		t.Error("half of a report was taken")
	}
	equal("its report was broken", 0, .5)
	if len(l.users) > 0 {
		t.Errorf("%d users are left", len(l.users))
	}
	l.SetOthers(nil)
	equal("one", Whole, 1)
	for i := range 2 * MaxGuests {
		if _, err := l.Hear(fmt.Sprint("guest", i), report(1), now); err != nil {
			t.Error(err)
		}
	}
	if n := l.Brokers(); n != 1+MaxGuests {
		t.Errorf("%d brokers divide limits, want %d guests beside this one", n, MaxGuests)
	}
}

// TestABrokerThatIsNotRegisteredKeepsItsPortion while it has links: it leaves and its clients have
// not gone yet, or it can't reach etcd.
func TestABrokerThatIsNotRegisteredKeepsItsPortion(t *testing.T) {
	c := newCluster(t, 3, 1)
	b := c.brokers
	everywhere := func(*broker) uint16 { return Whole }
	c.run(settled, everywhere, ignore)
	b[1].ledger.SetOthers([]string{"b2"})
	b[2].ledger.SetOthers([]string{"b1"})
	c.run(settled, everywhere, func() {
		if sum := c.sum(); sum > 1+1e-9 {
			t.Fatalf("at %v the portions add up to %v", c.now, sum)
		}
	})
	c.wants("one is not registered", 20, 20, 20)
	b[0].cut = true
	c.run(settled, everywhere, ignore)
	c.wants("it has gone", 20, 30, 30)
}

// TestAStartWhereAUserHasTheFloorTakesTwoIntervals, and whatever the links take.
func TestAStartWhereAUserHasTheFloorTakesTwoIntervals(t *testing.T) {
	for seed := range uint64(20) {
		c := newCluster(t, 3, seed)
		at := func(n int) func(*broker) uint16 {
			return func(b *broker) uint16 {
				if slices.Contains(c.brokers[:n], b) {
					return Whole
				}
				return 0
			}
		}
		c.run(settled, at(1), ignore)
		c.wants("at one", 58, 1, 1)
		c.run(2*Interval, at(2), ignore)
		c.wants("at another one, too", 29.5, 29.5, 1)
	}
}

// TestUsersThatAReportLeavesOutHaveEqualPortions at both ends.
func TestUsersThatAReportLeavesOutHaveEqualPortions(t *testing.T) {
	now := time.Unix(1000, 0)
	var a, b Ledger
	a.SetOthers([]string{"b"})
	b.SetOthers([]string{"a"})
	uses := []Use{{ann, Demand{Whole / 2, 0}}}
	for i := range MaxUsers {
		uses = append(uses, Use{fmt.Sprint(i), Demand{Whole, 0}})
	}
	if _, err := b.Hear("a", a.Report(uses, now), now); err != nil {
		t.Fatal(err)
	}
	if _, err := a.Hear("b", b.Report(nil, now), now); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		user   string
		at, of float64
		demand uint16
	}{{ann, .5, .5, Whole / 2}, {"0", 1 - 1./40, 1. / 40, Whole}} {
		at, of := a.Target(test.user, Demand{test.demand, 0}).Messages, b.Target(test.user, Demand{}).Messages
		if at != test.at || of != test.of {
			t.Errorf("%s has %v and %v, want %v and %v", test.user, at, of, test.at, test.of)
		}
	}
}
