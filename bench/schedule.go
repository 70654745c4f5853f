package bench

import (
	"cmp"
	"math/rand/v2"
	"slices"
	"time"
)

// A slot is one message of a schedule: who sends it and when it is due, counted from the
// start of the schedule.
type slot struct {
	publisher int
	sequence  int
	due       time.Duration
}

// A schedule fixes when every message is due before the first is sent. Slots are in the
// order of their due times; the first warm() of them are warm-up, and so are the first
// warmSequences messages of each publisher.
type schedule interface {
	publishers() int
	perPublisher() int  // messages of each publisher, warm-up included
	warmSequences() int // warm-up messages of each publisher
	len() int
	slot(i int) slot
}

func warmSlots(s schedule) int { return s.warmSequences() * s.publishers() }

// ticking has every publisher send at one rate, each at a phase of its own, so that they do
// not all fire at once. The phases come from a seed: two servers meet the same schedule.
type ticking struct {
	period      time.Duration
	phase       []time.Duration
	order       []int // publishers by phase
	warm, ticks int   // ticks counts warm-up too
}

func newTicking(publishers int, rate float64, warmup, duration time.Duration, seed uint64) *ticking {
	t := &ticking{
		period: time.Duration(float64(time.Second) / rate),
		phase:  make([]time.Duration, publishers),
		order:  make([]int, publishers),
	}
	t.warm = ceilDiv(warmup, t.period)
	t.ticks = t.warm + max(1, ceilDiv(duration, t.period))
	random := rand.New(rand.NewPCG(seed, uint64(publishers)))
	for i := range t.phase {
		t.phase[i] = time.Duration(random.Int64N(int64(t.period)))
		t.order[i] = i
	}
	slices.SortStableFunc(t.order, func(a, b int) int { return cmp.Compare(t.phase[a], t.phase[b]) })
	return t
}

func (t *ticking) publishers() int    { return len(t.phase) }
func (t *ticking) perPublisher() int  { return t.ticks }
func (t *ticking) warmSequences() int { return t.warm }
func (t *ticking) len() int           { return t.ticks * len(t.phase) }

func (t *ticking) slot(i int) slot {
	tick, publisher := i/len(t.order), t.order[i%len(t.order)]
	return slot{publisher: publisher, sequence: tick, due: time.Duration(tick)*t.period + t.phase[publisher]}
}

// rounds has the publishers take turns: in each round every one of them sends a burst of
// messages, one each pace, before the next begins.
type rounds struct {
	pace         time.Duration
	topics, each int
	warm, count  int // rounds; count counts warm-up too
}

func (r *rounds) publishers() int    { return r.topics }
func (r *rounds) perPublisher() int  { return r.count * r.each }
func (r *rounds) warmSequences() int { return r.warm * r.each }
func (r *rounds) len() int           { return r.count * r.topics * r.each }

func (r *rounds) slot(i int) slot {
	round, within := i/(r.topics*r.each), i%(r.topics*r.each)
	return slot{
		publisher: within / r.each,
		sequence:  round*r.each + within%r.each,
		due:       time.Duration(i) * r.pace,
	}
}

func ceilDiv(a, b time.Duration) int { return int((a + b - 1) / b) }
