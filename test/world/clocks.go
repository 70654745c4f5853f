package world

import (
	"time"

	"github.com/carillon-mq/carillon/broker/clock"
)

// Faults that leave all clocks wrong at once. Each strikes once in a world, and only where it is
// named.
const (
	clocksAhead = "power fails while clocks are a year ahead"
	clocksBack  = "power fails, and clocks return to when message ids were used"
)

// failBesideClocks has all machines lose power while all of their clocks are a year ahead, once. So
// brokers start with clocks of which nobody is sure, and which nobody contradicts.
func (w *world) failBesideClocks() {
	if w.misled {
		w.note("clocks were wrong before")
		return
	}
	w.misled = true
	for _, m := range w.machines {
		m.offset.Store(int64(365 * 24 * time.Hour))
	}
	w.after(w.between(6*time.Second, 12*time.Second), "all have the right time", func() {
		for _, m := range w.machines {
			m.offset.Store(0)
		}
	})
	w.crash(w.machines, true)
}

// failToOldClocks has all machines lose power, and start with clocks that are as they were when a
// message id was used last. By these clocks that id is within its deduplication window; in truth it
// is older than clock.Slack, and a client uses it for another message. Brokers know their clocks to
// be wrong, since they saved a later time.
func (w *world) failToOldClocks() {
	used, ok := w.judge.lastReused()
	if w.misled || !ok {
		w.note("clocks stay right")
		return
	}
	w.misled = true
	w.note("clients do nothing")
	w.still.Store(true)
	w.after(used+reuseAfter+clock.Slack/8-w.now(), "power fails, and clocks return", func() {
		if !w.still.Load() {
			return // all trouble has ended meanwhile
		}
		const boots = 200 * time.Millisecond
		for _, m := range w.machines {
			if m.life != nil && m.life.clock != nil && !m.life.dead.Load() {
				m.life.clock.Save()
			}
			m.unplug()
			m.offset.Store(int64(used - 3*shortWindow/4 - w.now() - boots))
			w.again(m, w.between(boots/2, boots))
		}
		w.after(boots, "clients go on", func() { w.still.Store(false) })
		w.after(w.between(6*time.Second, 12*time.Second), "all have the right time", func() {
			for _, m := range w.machines {
				m.offset.Store(0)
			}
		})
	})
}

// lastReused returns when a message with an id that is to be used again was last kept.
func (j *judge) lastReused() (at time.Duration, ok bool) {
	j.mu.Lock()
	defer j.mu.Unlock()
	for _, h := range j.histories {
		for _, op := range h.ops {
			if op.expects == reusing && op.outcome == kept && op.at > at {
				at, ok = op.at, true
			}
		}
	}
	return at, ok
}
