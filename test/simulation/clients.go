package simulation

import (
	"time"

	"github.com/carillon-mq/carillon/broker/replica"
)

// answerTime is how long a client waits for an answer, and wire how long a message of its takes.
const (
	answerTime = 2 * time.Second
	wire       = 300 * time.Microsecond
)

// publisher publishes values that are its own, each once, whatever becomes of it. After an answer that failed or didn't come it
// begins a new session, with whoever leads then: across sessions it promises itself no order.
type publisher struct {
	w           *world
	n           int
	shard       shardID
	part        replica.Part
	conditional bool
	to          *broker
	session     int
	count       int
	under       int // way, without an answer
	every       time.Duration
	last        uint64 // the last offset, as far as a conditional one knows
	stopped     bool
	acks        int
	answers     int // and refusals
}

func (p *publisher) run() {
	p.w.after(p.w.between(p.every/2, p.every*3/2), func() {
		if p.stopped {
			return
		}
		p.step()
		p.run()
	})
}

// leader is whom some broker takes for the leader; nil: nobody knows one.
func (w *world) leader(id shardID) *broker {
	b := w.brokers[w.rng.IntN(len(w.brokers))]
	if !b.up || b.view == nil || b.view.shards[id] == nil || b.view.shards[id].Leader == "" {
		return nil
	}
	return w.broker(b.view.shards[id].Leader)
}

func (p *publisher) step() {
	if p.to == nil {
		if p.to = p.w.leader(p.shard); p.to == nil {
			return
		}
		p.session++
	}
	if p.under >= 4 || p.conditional && p.under > 0 {
		return
	}
	p.publish(1 + p.w.rng.IntN(3))
}

func (p *publisher) publish(records int) {
	values := make([]value, records)
	for i := range values {
		p.count++
		values[i] = value{p.n, p.session, p.count}
	}
	var expected *uint64
	if p.conditional {
		last := p.last
		expected = &last
	}
	w, b, session := p.w, p.to, p.session
	book := w.judge.of(p.shard, p.part)
	asked := book.acked
	p.under++
	told := false
	tell := func(first, last uint64, sure bool) {
		if told {
			return
		}
		told = true
		p.under--
		switch {
		case !sure:
			if p.session == session {
				p.to = nil
			}
		case first == 0:
			book.refused(asked, *expected, last)
			p.last = last
			p.answers++
		default:
			book.promised(asked, first, values)
			p.last = last
			p.acks++
			p.answers++
		}
	}
	w.after(answerTime, func() { tell(0, 0, false) })
	life := b.life
	w.after(wire, func() {
		if !b.up && !b.dark {
			w.after(wire, func() { tell(0, 0, false) })
			return
		}
		b.do(life, func() {
			b.publish(p.shard, p.part, values, expected, func(first, last uint64, sure bool) {
				w.after(wire, func() { tell(first, last, sure) })
			})
		})
	})
}

// reader reads a shard from front to end, from whoever is said to lead it.
type reader struct {
	w     *world
	shard shardID
	part  replica.Part
	next  uint64
}

func (r *reader) run() {
	r.w.after(r.w.between(20*time.Millisecond, 150*time.Millisecond), func() {
		if b := r.w.leader(r.shard); b != nil {
			life := b.life
			b.do(life, func() {
				if b.paused {
					return
				}
				if first, values, ok := b.fetch(r.shard, r.part, r.next); ok {
					r.w.judge.of(r.shard, r.part).read(first, values)
					r.next = max(r.next, first+uint64(len(values)))
				}
			})
		}
		r.run()
	})
}
