package clock

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"
)

const year = 365 * 24 * time.Hour

// machineOf is a machine of a world: its clocks and its broker's judge.
type machineOf struct {
	name  string
	wrong time.Duration // wall clock minus true time
	boot  int
	judge *Judge // nil: its broker is not running
	saved *Saved
	jumps int
}

// world is a set of machines with one true time. Their Mono is the time since the world began, plus
// their own start.
type world struct {
	t        *testing.T
	now      time.Duration
	machines []*machineOf
	cut      map[string]bool // isolated machines
	round    func() time.Duration
}

var origin = time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC).UnixNano()

func newWorld(t *testing.T, brokers int) *world {
	w := &world{t: t, now: time.Hour, cut: map[string]bool{}, round: func() time.Duration { return 2 * time.Millisecond }}
	for i := range brokers {
		w.machines = append(w.machines, &machineOf{name: string(rune('a' + i)), boot: 1})
	}
	return w
}

func (w *world) reading(m *machineOf) Reading {
	return Reading{Wall: origin + int64(w.now+m.wrong), Mono: int64(w.now)}
}

// start starts brokers.
func (w *world) start(which ...int) {
	for _, i := range which {
		m := w.machines[i]
		m.judge = NewJudge(w.reading(m), fmt.Sprint(m.boot), m.saved)
	}
}

// stop stops brokers. They have saved their votes.
func (w *world) stop(which ...int) {
	for _, i := range which {
		m := w.machines[i]
		s := m.judge.Save(fmt.Sprint(m.boot))
		m.saved, m.judge = &s, nil
	}
}

// reboot reboots the machine of a stopped broker.
func (w *world) reboot(i int) { w.machines[i].boot++ }

// pass lets time pass, in which brokers read their clocks and exchange votes.
func (w *world) pass(d time.Duration) {
	step := 500 * time.Millisecond
	if d > time.Hour {
		step = 5 * time.Second
	}
	for end := w.now + d; w.now < end; {
		w.now += step
		for _, m := range w.machines {
			if m.judge != nil {
				if m.judge.Observe(w.reading(m)) != 0 {
					m.jumps++
				}
			}
		}
		w.talk()
	}
}

func (w *world) talk() {
	for _, from := range w.machines {
		for _, to := range w.machines {
			if from == to || from.judge == nil || to.judge == nil || w.cut[from.name] || w.cut[to.name] {
				continue
			}
			round := w.round()
			v := from.judge.Vote(int64(w.now))
			v.Time -= int64(time.Duration(rand.Int64N(int64(round) + 1))) // it was sent before
			to.judge.Hear(from.name, v, int64(w.now), round)
		}
	}
}

// off returns a broker's Time minus the true time.
func (w *world) off(i int) time.Duration {
	return time.Duration(w.machines[i].judge.Verdict().Off - origin)
}

// expect checks the Time, within Bound, and the doubt of brokers.
func (w *world) expect(what string, off time.Duration, doubt Reason, which ...int) {
	w.t.Helper()
	for _, i := range which {
		v := w.machines[i].judge.Verdict()
		if got := w.off(i); (got - off).Abs() > Bound {
			w.t.Errorf("%s: broker %s goes by a time that is %v off, want %v", what, w.machines[i].name, got, off)
		}
		if v.Doubt != doubt {
			w.t.Errorf("%s: broker %s doubts %q (%s), want %q", what, w.machines[i].name, v.Doubt, v.Why, doubt)
		}
	}
}

func (w *world) elapsed(what string, want bool, which ...int) {
	w.t.Helper()
	for _, i := range which {
		if got := w.machines[i].judge.Verdict().Elapsed; got != want {
			w.t.Errorf("%s: broker %s compares records with its time: %t, want %t", what, w.machines[i].name, got, want)
		}
	}
}

func TestALoneClockThatJumpsIsHeldUntilItIsBack(t *testing.T) {
	for _, jump := range []time.Duration{year, -year, time.Hour, -3 * time.Second} {
		w := newWorld(t, 1)
		w.start(0)
		w.pass(time.Minute)
		w.expect("at first", 0, None, 0)
		w.machines[0].wrong = jump
		w.pass(time.Second)
		w.expect("after the jump", 0, Jumped, 0)
		w.elapsed("after the jump", true, 0)
		w.pass(time.Hour)
		w.expect("an hour later", 0, Jumped, 0)
		w.machines[0].wrong = 0
		w.pass(Again / 2)
		w.expect("just back", 0, Jumped, 0)
		w.pass(Again)
		w.expect("back for a while", 0, None, 0)
	}
}

func TestALoneClockThatJumpedIsBelievedAfterADay(t *testing.T) {
	w := newWorld(t, 1)
	w.start(0)
	w.pass(time.Minute)
	w.machines[0].wrong = year
	w.pass(Settle - time.Minute)
	w.expect("before a day has passed", 0, Jumped, 0)
	w.pass(2 * time.Minute)
	w.expect("it is believed, and what it steps over is in doubt", year, Stepped, 0)
	w.pass(Settle + time.Minute)
	w.expect("later", year, None, 0)
}

func TestAPersonConfirmsAClockThatJumped(t *testing.T) {
	for _, jump := range []time.Duration{30 * 24 * time.Hour, -30 * 24 * time.Hour} {
		w := newWorld(t, 3)
		w.start(0, 1, 2)
		w.pass(2 * time.Minute)
		for _, m := range w.machines {
			m.wrong = jump
		}
		w.pass(time.Minute)
		w.expect("all jumped", 0, Jumped, 0, 1, 2)
		for _, m := range w.machines {
			m.judge.Confirm()
			w.pass(time.Second)
		}
		w.pass(time.Second)
		w.expect("all are confirmed", jump, None, 0, 1, 2)
		w.pass(time.Hour)
		w.expect("later", jump, None, 0, 1, 2)
	}
}

func TestOneOfThreeClocksJumps(t *testing.T) {
	for _, jump := range []time.Duration{year, -year} {
		w := newWorld(t, 3)
		w.start(0, 1, 2)
		w.pass(2 * time.Minute)
		w.machines[0].wrong = jump
		w.pass(time.Minute)
		w.expect("one jumped", 0, None, 0, 1, 2)
		w.stop(1) // then only one right clock is left
		w.pass(time.Minute)
		w.expect("of two one has jumped", 0, Jumped, 0, 2)
		w.stop(2)
		w.pass(time.Minute)
		w.expect("it is alone", 0, Jumped, 0)
		w.elapsed("it is alone", true, 0)
		w.start(1, 2)
		w.pass(time.Minute)
		w.expect("all are back", 0, None, 0, 1, 2)
		w.machines[0].wrong = 0
		w.pass(time.Second)
		if s := w.machines[0].judge.own.state; s != Sure {
			t.Errorf("a clock that agrees with all others is %v", s)
		}
	}
}

func TestAllClocksJump(t *testing.T) {
	for _, jump := range []time.Duration{year, -year} {
		w := newWorld(t, 3)
		w.start(0, 1, 2)
		w.pass(2 * time.Minute)
		for _, m := range w.machines {
			m.wrong = jump
			w.pass(time.Second) // one after the other
		}
		w.pass(time.Minute)
		w.expect("all jumped", 0, Jumped, 0, 1, 2)
		w.elapsed("all jumped", true, 0, 1, 2)
		w.stop(1)
		w.pass(time.Minute)
		w.start(1) // a new process on the same machine
		w.pass(time.Minute)
		w.expect("one was started anew", 0, Jumped, 0, 1, 2)
		w.stop(2)
		w.machines[2].saved = nil // with a new volume, too
		w.start(2)
		w.pass(time.Minute)
		w.expect("one that remembers nothing goes by the others", 0, Jumped, 0, 1, 2)
		w.elapsed("one that remembers nothing goes by the others", true, 0, 1, 2)
		for i := range 3 {
			w.stop(i)
		}
		w.pass(time.Minute)
		w.start(0, 1, 2)
		w.pass(time.Minute)
		w.expect("all were started anew", 0, Jumped, 0, 1, 2)
	}
}

func TestABrokerStartsWithAWrongClockAmongOthers(t *testing.T) {
	for _, wrong := range []time.Duration{year, -year} {
		w := newWorld(t, 3)
		w.start(0, 1)
		w.pass(2 * time.Minute)
		w.machines[2].wrong = wrong
		w.start(2)
		w.pass(time.Second)
		w.pass(time.Second)
		w.expect("it goes by the others", 0, None, 0, 1, 2)
		if jumps := w.machines[2].jumps; jumps != 0 {
			t.Errorf("%d jumps were counted; its clock was wrong from the beginning", jumps)
		}
		w.stop(0, 1)
		w.pass(time.Minute)
		w.expect("it goes on by what they said", 0, Jumped, 2)
	}
}

func TestOfTwoBrokersThatDisagreeBothFollowTheRunningOne(t *testing.T) {
	for _, wrong := range []time.Duration{year, -year} {
		w := newWorld(t, 2)
		w.start(0)
		w.pass(time.Hour)
		w.machines[1].wrong = wrong
		w.start(1)
		w.pass(2 * time.Second)
		for i := range 2 {
			if v := w.machines[i].judge.Verdict(); w.off(i).Abs() > Bound || v.Doubt == None {
				t.Errorf("broker %d is %v off, doubt %q", i, w.off(i), v.Doubt)
			}
		}
	}
}

func TestAStartAfterAReboot(t *testing.T) {
	w := newWorld(t, 1)
	w.start(0)
	w.pass(time.Hour)
	w.stop(0)
	w.reboot(0)
	w.pass(time.Hour)
	w.start(0)
	w.expect("an hour later", 0, None, 0)

	w.stop(0)
	w.reboot(0)
	w.machines[0].wrong = year
	w.start(0)
	w.pass(time.Minute)
	w.expect("a year later, it says", year, Implausible, 0)
	w.elapsed("a year later, it says; records are no older than that", true, 0)
	w.machines[0].wrong = 0 // time synchronization has corrected it
	w.pass(Again + time.Second)
	w.expect("corrected", 0, None, 0)

	w.stop(0)
	w.reboot(0)
	w.machines[0].wrong = -year
	w.start(0)
	w.pass(time.Minute)
	w.expect("a year before, it says", -year, Implausible, 0)
	w.elapsed("a year before, it says", false, 0)
}

// TestAnImplausibleClockIsNotBelievedAfterAnotherStart: a broker that starts again, also on a
// machine that does, has nothing but its own doubtful vote to compare with.
func TestAnImplausibleClockIsNotBelievedAfterAnotherStart(t *testing.T) {
	for _, wrong := range []time.Duration{year, -year} {
		w := newWorld(t, 1)
		w.start(0)
		w.pass(time.Hour)
		w.stop(0)
		w.reboot(0)
		w.machines[0].wrong = wrong
		w.start(0)
		w.pass(time.Hour)
		w.expect("after a reboot", wrong, Implausible, 0)
		w.stop(0)
		w.start(0)
		w.pass(2 * Again)
		w.expect("after another start", wrong, Implausible, 0)
		w.stop(0)
		w.start(0)
		w.pass(Settle - time.Hour)
		w.expect("a day after the reboot", wrong, None, 0)

		w = newWorld(t, 1)
		w.start(0)
		w.pass(time.Hour)
		for range 3 {
			w.stop(0)
			w.reboot(0)
			w.machines[0].wrong = wrong
			w.start(0)
			w.pass(2 * Again)
			w.expect("after each reboot", wrong, Implausible, 0)
		}
		w.stop(0)
		w.machines[0].wrong = 0
		w.start(0)
		w.expect("corrected while the broker was away", 0, None, 0)
	}
}

// TestImplausibleClocksDoNotOutvoteARunningOne: most brokers start with clocks that are wrong by
// about as much. The one that runs on knows the time, and they go by it. Nobody believes such a
// clock later, whichever broker starts with it.
func TestImplausibleClocksDoNotOutvoteARunningOne(t *testing.T) {
	for _, wrong := range []time.Duration{year, -year} {
		w := newWorld(t, 3)
		w.start(0, 1, 2)
		w.pass(2 * time.Minute)
		for _, i := range []int{0, 1} {
			w.stop(i)
			w.reboot(i)
			w.machines[i].wrong = wrong + time.Duration(i)*time.Second
			w.start(i)
			w.pass(time.Second)
		}
		w.pass(time.Minute)
		w.expect("two were started", 0, Jumped, 0, 1, 2)
		w.stop(2)
		w.reboot(2)
		w.machines[2].wrong = wrong + 500*time.Millisecond
		w.start(2)
		w.pass(2 * Again)
		w.expect("all were started, one by one", 0, Jumped, 0, 1, 2)
		for i, m := range w.machines {
			w.stop(i)
			w.reboot(i)
			m.wrong = wrong
		}
		w.start(0, 1, 2)
		w.pass(Settle - time.Hour)
		w.expect("all were started together", wrong, Implausible, 0, 1, 2)
		for _, m := range w.machines {
			m.wrong = 0
		}
		w.pass(Again + 2*time.Second)
		corrected := None
		if wrong < 0 {
			corrected = Stepped
		}
		w.expect("corrected", 0, corrected, 0, 1, 2)
	}
}

// TestClocksThatAreWrongByAboutAsMuch: all brokers start with clocks that are wrong by about as
// much. Clocks are corrected, wrong again or wrong by a little more, and brokers start again, in
// any order. For a day none of them believes such a clock.
func TestClocksThatAreWrongByAboutAsMuch(t *testing.T) {
	for seed := range uint64(40) {
		rng := rand.New(rand.NewPCG(seed, 2))
		w := newWorld(t, 1+rng.IntN(5))
		wrong := []time.Duration{year, -year, Gap + 2*time.Hour}[rng.IntN(3)]
		off := func() time.Duration { return wrong + time.Duration(rng.Int64N(int64(3*Bound))) }
		for i := range w.machines {
			w.start(i)
		}
		w.pass(2 * time.Minute)
		for i, m := range w.machines {
			w.stop(i)
			w.reboot(i)
			m.wrong = off()
		}
		for i := range w.machines {
			w.start(i)
		}
		for step := range 100 {
			i := rng.IntN(len(w.machines))
			m := w.machines[i]
			to := off()
			if rng.IntN(4) == 0 {
				to = 0
			}
			what := fmt.Sprintf("the clock of %s is wrong by %v", m.name, to)
			if rng.IntN(4) == 0 {
				w.stop(i)
				w.reboot(i)
				m.wrong = to
				w.start(i)
				what += ", and it starts"
			}
			m.wrong = to
			w.pass(time.Duration(1+rng.IntN(200)) * time.Second)
			for i, m := range w.machines {
				if v := m.judge.Verdict(); v.Doubt == None && w.off(i).Abs() > 3*Bound {
					t.Fatalf("seed %d, step %d, %s: %s doesn't doubt a time that is %v off; verdict %+v", seed, step, what, m.name, w.off(i), v)
				}
			}
		}
	}
}

// TestAClusterReturnsAfterAMonth: a cluster is away for a month. The last records do not show for
// how long, so nothing is deleted for a while. If only one broker was away, the others know.
func TestAClusterReturnsAfterAMonth(t *testing.T) {
	w := newWorld(t, 3)
	w.start(0, 1, 2)
	w.pass(time.Minute)
	w.stop(2)
	w.reboot(2)
	w.now += 30 * 24 * time.Hour // in one step, without readings in between
	w.pass(time.Second)
	w.start(2)
	w.pass(2 * time.Second)
	w.expect("one was away", 0, None, 0, 1, 2)
	w.stop(1, 2)
	w.reboot(2)
	w.now += 30 * 24 * time.Hour
	w.pass(time.Second)
	w.start(2)
	w.pass(2 * time.Second)
	w.expect("one of two was away", 0, None, 0, 2)
	w.start(1)
	w.pass(time.Second)
	for i := range 3 {
		w.stop(i)
		w.reboot(i)
	}
	w.now += 30 * 24 * time.Hour
	w.start(0, 1, 2)
	w.pass(time.Minute)
	w.expect("all were away", 0, Implausible, 0, 1, 2)
	w.pass(Settle + time.Minute)
	w.expect("a day later", 0, None, 0, 1, 2)
}

// TestTheLastRecordIsFurtherInTheFutureThanTheClock: a broker without a saved vote has its log
// only.
func TestTheLastRecordIsFurtherInTheFutureThanTheClock(t *testing.T) {
	w := newWorld(t, 1)
	w.machines[0].wrong = -time.Hour
	w.start(0)
	w.machines[0].judge.Wrote(origin + int64(w.now-time.Minute))
	w.expect("its clock is behind its log", -time.Hour, Implausible, 0)
	w.elapsed("its clock is behind its log", false, 0)
	w.machines[0].wrong = 0
	w.pass(Again + time.Second)
	w.expect("corrected", 0, None, 0)

	w = newWorld(t, 3)
	w.start(0, 1, 2)
	w.pass(2 * time.Second)
	for _, m := range w.machines {
		m.judge.Wrote(origin + int64(w.now+year))
	}
	w.expect("others say that it is the record that is wrong", 0, None, 0, 1, 2)
}

// TestClocksThatAreSecondsOff: machines start with clocks that are off by seconds, before they are
// synchronized. Message ids must stay valid.
func TestClocksThatAreSecondsOff(t *testing.T) {
	w := newWorld(t, 3)
	w.start(0, 1, 2)
	w.pass(time.Minute)
	for i, wrong := range []time.Duration{-5 * time.Second, 0, 5 * time.Second} {
		w.stop(i)
		w.reboot(i)
		w.machines[i].wrong = wrong
	}
	w.pass(time.Second)
	w.start(0)
	if off := w.off(0); off < -2*time.Second || off > 0 {
		t.Errorf("a clock that is a little behind begins %v off, before what was written last", off)
	}
	w.elapsed("one was started", true, 0)
	w.start(1, 2)
	w.pass(time.Second)
	w.elapsed("all were started", true, 0, 1, 2)
	w.pass(time.Minute)
	w.elapsed("a minute later", true, 0, 1, 2)
}

// TestStepsBelowTheBoundDoNotMoveTime: a clock that moves in steps below Bound does not move Time.
func TestStepsBelowTheBoundDoNotMoveTime(t *testing.T) {
	w := newWorld(t, 1)
	w.start(0)
	w.pass(time.Minute)
	for range 100 {
		w.machines[0].wrong += Bound - time.Millisecond
		w.pass(500 * time.Millisecond)
	}
	if off := w.off(0); off.Abs() > 2*Bound {
		t.Errorf("the time went %v along", off)
	}
	w.expect("it creeps", 0, Jumped, 0)

	w = newWorld(t, 1)
	w.start(0)
	for range 60 { // as clocks are slewed
		w.machines[0].wrong += time.Millisecond
		w.pass(time.Second)
	}
	w.expect("it is slewed", 60*time.Millisecond, None, 0)
	if off := w.off(0); off != 60*time.Millisecond {
		t.Errorf("the time is %v off; it is to follow what is slewed", off)
	}
}

// TestSlowRoundTripsAreNotMeasured: votes with long round trips are ignored.
func TestSlowRoundTripsAreNotMeasured(t *testing.T) {
	w := newWorld(t, 2)
	w.round = func() time.Duration { return 3 * time.Second }
	w.start(0, 1)
	w.pass(10 * time.Second)
	if known := w.machines[0].judge.Verdict().Known; known != 1 {
		t.Errorf("%d votes are known", known)
	}
	w.round = func() time.Duration { return time.Second }
	w.pass(10 * time.Second)
	w.expect("answers are quicker", 0, None, 0, 1)
	if known := w.machines[0].judge.Verdict().Known; known != 2 {
		t.Errorf("%d votes are known", known)
	}
}

// TestProperties checks two rules beside restarts and partitions:
//
//  1. While a majority of the clocks is right and was never wrong, Time is the true time, whatever
//     the other clocks do.
//  2. With all clocks jumping, Time without a doubt is never away from the true time.
func TestProperties(t *testing.T) {
	for seed := range uint64(60) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			rng := rand.New(rand.NewPCG(seed, 1))
			n := 1 + rng.IntN(5)
			minority := seed%2 == 0
			w := newWorld(t, n)
			w.round = func() time.Duration { return time.Duration(rng.IntN(20)) * time.Millisecond }
			for i := range n {
				w.start(i)
			}
			w.pass(2 * time.Minute)
			bad := n
			if minority {
				bad = (n - 1) / 2
			}
			before := make([]int64, n)
			read := make([]time.Duration, n)
			for step := range 200 {
				what := ""
				if bad > 0 {
					m := w.machines[rng.IntN(bad)]
					switch rng.IntN(8) {
					case 0:
						m.wrong = time.Duration(rng.Int64N(int64(2*year)) - int64(year))
						what = fmt.Sprintf("%s jumps to %v", m.name, m.wrong)
					case 1:
						m.wrong = 0
						what = m.name + " is right"
					case 2:
						w.cut[m.name] = !w.cut[m.name]
						what = fmt.Sprintf("%s is cut: %t", m.name, w.cut[m.name])
					case 3:
						i := int(m.name[0] - 'a')
						w.stop(i)
						w.start(i)
						before[i] = 0
						what = m.name + " starts anew"
					}
				}
				w.pass(time.Duration(1+rng.IntN(30)) * time.Second)
				for i, m := range w.machines {
					v := m.judge.Verdict()
					right := i >= bad || !w.cut[m.name]
					if minority && right && w.off(i).Abs() > 2*Bound {
						t.Fatalf("step %d, %s: %s goes by a time that is %v off; verdict %+v", step, what, m.name, w.off(i), v)
					}
					if v.Doubt == None && w.off(i).Abs() > 2*Bound {
						t.Fatalf("step %d, %s: %s doesn't doubt a time that is %v off; verdict %+v", step, what, m.name, w.off(i), v)
					}
					if ran := v.Off + int64(w.now) - before[i]; before[i] != 0 {
						if d := time.Duration(ran) - (w.now - read[i]); d.Abs() > (w.now-read[i])/slew+2*Bound {
							t.Fatalf("step %d, %s: the time of %s went %v further than Mono within %v", step, what, m.name, d, w.now-read[i])
						}
					}
					before[i], read[i] = v.Off+int64(w.now), w.now
				}
			}
		})
	}
}
