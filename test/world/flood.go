package world

import (
	"fmt"
	"strings"
	"time"

	"github.com/carillon-mq/carillon/broker/ahead"
	"github.com/carillon-mq/carillon/broker/forward"
	"github.com/carillon-mq/carillon/broker/protocol"
	"github.com/carillon-mq/carillon/broker/topic"
)

// aheadBound bounds the records that a leader accepts before its followers confirm them: so few
// that a flooding client exceeds the bound within a second.
var aheadBound = ahead.Bound{Bytes: 1 << 20, Records: 64, Time: 6 * time.Second}

const (
	// floodBurst is how many messages a flooding client publishes at once, of floodBytes each.
	floodBurst = 10
	floodBytes = 1000
	// unsafeMost is the number of unsafe records at which a leader must accept no more. A leader
	// accepts what a sender brings at once as a whole, so it may exceed ahead.Bound by that.
	unsafeMost = 2 * 64
)

// brim is a leader that has more than unsafeMost unsafe records.
type brim struct {
	leader    *topic.ShardLeader
	high, end uint64
}

// flood publishes messages that want no answer, as fast as its broker reads them, and judges what
// that broker accepts as a leader.
func (c *client) flood() {
	w, l := c.w, c.life
	var messages []protocol.Message
	for range floodBurst {
		c.count++
		op := &operation{client: c, subject: fmt.Sprintf("%s.%s.%d", c.topic.name, c.name, c.rng.IntN(ownSubjects)), value: fmt.Sprintf("%s#%d", c.name, c.count), expects: c.kind, life: l}
		op.shard = c.topic.shard(c.topic.shardOf(op.subject))
		w.judge.called(op)
		messages = append(messages, message(op.subject, "", op.value+strings.Repeat(".", floodBytes)))
	}
	w.io(w.delay(wireMin, wireMax), fmt.Sprintf("%s publishes %d to %s", c.name, floodBurst, l))
	if l.dead.Load() || !l.ready.Load() || !l.hub.publish(c, messages) {
		c.life = nil
		return
	}
	c.progressed()
	if t := l.serves(c.topic); t != nil {
		for n := range c.topic.shards() {
			if s := t.ShardAt(n); s != nil {
				c.takesNoMore(l, n, s)
			}
		}
	}
}

// takesNoMore judges that a leader with more than unsafeMost unsafe records accepts nothing until
// its watermark moves.
func (c *client) takesNoMore(l *life, n int, s *topic.ShardLeader) {
	_, high := s.Offsets()
	_, end, _ := s.Data().Offsets()
	was := c.brims[n]
	if was.leader == s && was.high == high && was.end < end {
		c.w.fail("%s: %s had %d records beyond %d that are not safe, took %d more, and is to push back", c.topic.shard(n), l, was.end-high, high, end-was.end)
	}
	delete(c.brims, n)
	if end > high+unsafeMost {
		c.brims[n] = brim{s, high, end}
	}
}

// forgetting is the time within which a leader forgets silent senders. It looks every 32 s, and
// forgets a sender at the second look after OriginTime.
const forgetting = forward.OriginTime + 100*time.Second

// silence waits, in a healed world whose clients have stopped, until leaders have forgotten all
// senders.
func (w *world) silence() {
	w.run(w.now()+forgetting, nil)
	why := w.await(func() string {
		for _, m := range w.machines {
			if l := m.life; l != nil && !l.dead.Load() && l.service != nil {
				if n := l.service.Stats().Sources; n > 0 {
					return fmt.Sprintf("%s remembers %d senders that were silent for %v", l, n, forgetting)
				}
			}
		}
		return ""
	})
	if why != "" && w.broken == nil {
		w.fail("%s", why)
	}
}
