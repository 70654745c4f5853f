package world

import (
	"fmt"
	"sync"
	"time"

	"github.com/carillon-mq/carillon/broker/log"
	"github.com/carillon-mq/carillon/broker/subscription"
	"github.com/carillon-mq/carillon/broker/topic"
)

const (
	// ackWait is the time after which a delivery without an ack is repeated.
	ackWait = 2 * time.Second
	// pullTime is how long a pull waits for messages.
	pullTime = time.Second
)

// delivery is one message that was delivered to a subscriber.
type delivery struct {
	shard        shardID
	subscription string
	// epoch is the epoch of the leader that delivered it, and sent the stamp of the delivery.
	epoch, sent uint64
	record      record
	sequence    uint64
	count       uint64
}

// outlet passes a Subscription's deliveries from one process to subscribers. It is a
// subscription.DeliverySink.
type outlet struct {
	life         *life
	of           *topic.Shard
	subscription string
	queue        []func()
}

// pull is a request that a subscriber waits for.
type pull struct {
	mu    sync.Mutex
	got   []delivery
	ended bool
	more  chan struct{} // a token: a delivery or the end arrived
}

func (l *life) outlet(of *topic.Shard, name string) subscription.DeliverySink {
	return &outlet{life: l, of: of, subscription: name}
}

// later calls do for a pull after the latency of the network.
func (o *outlet) later(to []byte, label string, do func(p *pull)) {
	h := o.life.hub
	h.mu.Lock()
	p := h.pulls[string(to)]
	h.mu.Unlock()
	if p == nil {
		return
	}
	w := o.life.m.w
	o.queue = append(o.queue, func() {
		w.after(w.delay(wireMin, wireMax), label, func() {
			p.mu.Lock()
			do(p)
			p.mu.Unlock()
			select {
			case p.more <- struct{}{}:
			default:
			}
		})
	})
}

func (o *outlet) Deliver(to []byte, d *subscription.Delivery, r *log.Record) {
	if o.life.dead.Load() {
		return
	}
	of := o.life.m.w.byID(o.of.Topic().ID())
	value, total := contentOf(r)
	one := delivery{shard: of.shard(o.of.Number()), subscription: o.subscription, sent: o.life.m.w.stamp(), sequence: d.Sequence, count: d.Delivered,
		record: record{offset: r.Offset, time: r.Time, subject: string(r.Subject), value: value, total: total}}
	if s := o.of.Led(); s != nil {
		one.epoch = s.Epoch()
	}
	o.later(to, fmt.Sprintf("%s delivers %d of %s", o.life, r.Offset, one.shard), func(p *pull) { p.got = append(p.got, one) })
}

func (o *outlet) End(to []byte, why subscription.End, _, _ int) {
	o.later(to, fmt.Sprintf("%s ends a pull: %s", o.life, why), func(p *pull) { p.ended = true })
}

func (o *outlet) Heartbeat([]byte, uint64, uint64, uint64) {}
func (o *outlet) FlowControl([]byte, uint64)               {}
func (o *outlet) Interested([]byte) bool                   { return !o.life.dead.Load() }

// Watch is never called: no Subscription of a world delivers to a subject.
func (o *outlet) Watch(string, []byte, string, func()) subscription.Interest {
	panic("nobody pushes here")
}

func (o *outlet) Flush() {
	queue := o.queue
	o.queue = nil
	if o.life.dead.Load() {
		return
	}
	for _, send := range queue {
		send()
	}
}

// consume pulls some messages of one shard, and acknowledges most of them.
func (c *client) consume() {
	w := c.w
	shard := c.rng.IntN(c.topic.shards())
	l, s := c.leader(shard)
	if s == nil {
		return
	}
	sub := l.subscriptions.Find(s.Shard().Key(), c.subscription)
	if sub == nil {
		return
	}
	c.count++
	inbox := fmt.Sprintf("_P.%s.%d", c.name, c.count)
	batch := 1 + c.rng.IntN(100)
	p := &pull{more: make(chan struct{}, 1)}
	l.hub.mu.Lock()
	l.hub.pulls[inbox] = p
	l.hub.mu.Unlock()
	defer func() {
		l.hub.mu.Lock()
		defer l.hub.mu.Unlock()
		delete(l.hub.pulls, inbox)
	}()
	w.io(w.delay(wireMin, wireMax), fmt.Sprintf("%s pulls %d from %s", c.name, batch, l))
	sub.Pull(subscription.Pull{To: []byte(inbox), Batch: batch, Expires: pullTime, NoWait: c.rng.IntN(2) == 0})
	late := time.NewTimer(2 * pullTime)
	defer late.Stop()
	for got := 0; got < batch; {
		p.mu.Lock()
		fresh, ended := p.got, p.ended
		p.got = nil
		p.mu.Unlock()
		for _, d := range fresh {
			w.judge.delivered(d)
			c.acknowledge(d)
			c.progressed()
		}
		if got += len(fresh); ended || got >= batch {
			return
		}
		select {
		case <-p.more:
		case <-l.gone:
			return
		case <-late.C:
			return
		}
	}
}

// acknowledge sends the ack of a delivery to the present leader of the shard. In most cases the
// subscriber waits for the answer.
func (c *client) acknowledge(d delivery) {
	if c.rng.IntN(20) == 0 {
		return // it is delivered again
	}
	w := c.w
	l, s := c.leader(d.shard.shard)
	if s == nil {
		return
	}
	sub := l.subscriptions.Find(s.Shard().Key(), c.subscription)
	if sub == nil {
		return
	}
	call := w.stamp()
	label := fmt.Sprintf("%s acks %d of %s", c.name, d.record.offset, d.shard)
	how := c.rng.IntN(10)
	if how > 0 {
		w.judge.acking(d)
	}
	switch how {
	case 0:
		w.after(w.delay(wireMin, wireMax), label+" negatively", func() {
			go sub.Ack(d.record.offset, d.sequence, d.count, subscription.Retry, 100*time.Millisecond, nil)
		})
	case 1:
		w.after(w.delay(wireMin, wireMax), label, func() { go sub.Ack(d.record.offset, d.sequence, d.count, subscription.Done, 0, nil) })
	default:
		w.after(w.delay(wireMin, wireMax), label+" and waits", func() {
			if l.dead.Load() {
				return
			}
			go sub.Ack(d.record.offset, d.sequence, d.count, subscription.Done, 0, func(err error) {
				epoch := s.Epoch()
				if err != nil || l.dead.Load() {
					return
				}
				w.after(w.delay(wireMin, wireMax), label+": it is kept", func() { w.judge.acked(d, call, epoch) })
			})
		})
	}
}
