package sender

import (
	"bytes"
	"math/rand/v2"
	"sync"

	"github.com/carillon-mq/carillon/broker/protocol"
	"github.com/carillon-mq/carillon/broker/publish"
	"github.com/carillon-mq/carillon/broker/subject"
	"github.com/carillon-mq/carillon/broker/work"
)

// lanes are further senders of a shard. A message with a question about a pattern of subjects may
// wait at the leader for as long as its client's pattern takes, and a leader judges the messages of
// a source in order. So such a message goes by a lane: a Sender that leaders know as a source of
// its own, with numbers, an outbox and rounds of its own.
//
//  1. While messages of a connection in a lane are unanswered, what it publishes next goes by that
//     lane.
//  2. A connection's first message in a lane is held there until the leader has answered all that
//     the main sender had then, as far as it is not answered. So rules 1 and 2 keep the order of a
//     connection's messages.
//  3. The messages of a fast batch go by the sender where it was opened. They may overtake a
//     message of their connection that waits in a lane.
//  4. A lane has few messages on their way at a time, since all of them go again after each wait.
//  5. A lane keeps about as few. Beyond, the connections that publish there wait, and no others:
//     what waits in lanes does not take the room of other messages.
//
// Rejected: a leader that goes on behind a message that waits. It has to know which connections
// messages come from, and its followers to remember numbers with gaps.
type lanes struct {
	of *Sender

	mu      sync.Mutex
	all     []*Sender // at most mostLanes; none is removed
	clients map[uint64]place
	sweep   int // how many clients there are when those without unanswered messages are forgotten
}

// place is where a connection's messages go.
type place struct {
	lane *Sender
	last uint64 // the number of its last message there, or a later one
}

// hold is a number of a lane, from which on nothing is sent before the main sender has settled all
// numbers below until.
type hold struct{ from, until uint64 }

// PublishOf is Publish for messages of a connection of this broker, by its number. Messages that
// may wait long at the leader, and those behind them of the same connection, do not hold up those
// of others. It adds to behind what the connection has to wait for: this sender, or a lane.
func (f *Sender) PublishOf(v View, client uint64, messages []protocol.Message, memory protocol.Memory, behind *work.Behind) {
	l := f.lanes.Load()
	if l == nil {
		if !f.fw.someAsk(messages) {
			if f.Publish(v, messages, memory) {
				behind.Add(f)
			}
			return
		}
		l = f.openLanes()
	}
	at := l.place(client)
	for len(messages) > 0 {
		to := l.route(client, at, &messages[0])
		if to != f && at == nil {
			at = to
		}
		n := 1
		for n < len(messages) && l.route(client, at, &messages[n]) == to {
			n++
		}
		late := false
		if to == f {
			late = f.Publish(v, messages[:n], memory)
		} else {
			late = l.publish(v, client, to, messages[:n], memory)
		}
		if late {
			behind.Add(to)
		}
		messages = messages[n:]
	}
}

// openLanes returns the lanes. The first call makes them.
func (f *Sender) openLanes() *lanes {
	f.lanes.CompareAndSwap(nil, &lanes{of: f, clients: map[uint64]place{}, sweep: minSweep})
	return f.lanes.Load()
}

// place returns the lane with unanswered messages of a connection, or nil.
func (l *lanes) place(client uint64) *Sender {
	l.mu.Lock()
	defer l.mu.Unlock()
	at, ok := l.clients[client]
	if ok && at.answered() {
		delete(l.clients, client)
		return nil
	}
	return at.lane
}

func (p *place) answered() bool { return p.lane.settled.Load() > p.last }

// route returns which sender a message of a connection goes by. at is its place.
func (l *lanes) route(client uint64, at *Sender, m *protocol.Message) *Sender {
	if part, ok := l.of.fastPart(m); ok {
		if to := l.withBatch(part.Batch); to != nil {
			return to
		}
	}
	switch {
	case at != nil:
		return at
	case l.of.fw.asks(m):
		return l.pick(client)
	}
	return l.of
}

// withBatch returns the sender with an open fast batch, or nil.
func (l *lanes) withBatch(id []byte) *Sender {
	if l.of.hasBatch(id) {
		return l.of
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, lane := range l.all {
		if lane.hasBatch(id) {
			return lane
		}
	}
	return nil
}

func (f *Sender) hasBatch(id []byte) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.fast.Has(id)
}

// pick returns a lane for a connection: an idle one, a new one, or one that it shares with others.
func (l *lanes) pick(client uint64) *Sender {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, lane := range l.all {
		if lane.idle() {
			return lane
		}
	}
	if len(l.all) == mostLanes {
		return l.all[client%mostLanes]
	}
	f := l.of
	lane := f.fw.newSender(f.id, f.shard, rand.Uint64()|1, f)
	l.all = append(l.all, lane)
	return lane
}

func (f *Sender) idle() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.box.Empty()
}

// publish brings messages of a connection to a lane.
func (l *lanes) publish(v View, client uint64, lane *Sender, messages []protocol.Message, memory protocol.Memory) (behind bool) {
	at := l.place(client)
	if at != lane {
		lane.hold(l.of.Next())
	}
	behind = lane.Publish(v, messages, memory)
	if at != nil && at != lane {
		return behind // of a fast batch that another connection began
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.clients[client] = place{lane, lane.Next() - 1}
	if len(l.clients) >= l.sweep {
		for client, at := range l.clients {
			if at.answered() {
				delete(l.clients, client)
			}
		}
		l.sweep = max(minSweep, 2*len(l.clients))
	}
	return behind
}

// ofShard returns the main sender: this one, or that of which this one is a lane.
func (f *Sender) ofShard() *Sender {
	if f.main != nil {
		return f.main
	}
	return f
}

// of returns the sender that leaders know as a source: this one, or one of its lanes, or nil. f may
// be nil.
func (f *Sender) of(source uint64) *Sender {
	if f == nil || f.source == source {
		return f
	}
	l := f.lanes.Load()
	if l == nil {
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, lane := range l.all {
		if lane.source == source {
			return lane
		}
	}
	return nil
}

// hold has nothing sent of what comes next until the main sender has settled all numbers below
// until.
func (f *Sender) hold(until uint64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.main.settled.Load() >= until {
		return
	}
	from := f.box.Next()
	if n := len(f.holds); n > 0 {
		last := &f.holds[n-1]
		if until = max(until, last.until); last.from == from { // nothing was kept behind the last hold
			last.until = until
			return
		}
	}
	f.holds = append(f.holds, hold{from, until})
}

// release sets how far a lane may send. mu is held.
func (f *Sender) release() {
	if f.main == nil {
		return
	}
	for len(f.holds) > 0 && f.main.settled.Load() >= f.holds[0].until {
		f.holds = f.holds[1:]
	}
	f.box.Until = f.box.First + laneWindow
	if len(f.holds) > 0 {
		f.box.Until = min(f.box.Until, f.holds[0].from)
		f.main.await(f.holds[0].until)
	}
}

// await has the lanes looked at once all numbers below until are settled.
func (f *Sender) await(until uint64) {
	for {
		at := f.awaited.Load()
		if at > 0 && at <= until || f.awaited.CompareAndSwap(at, until) {
			break
		}
	}
	if f.settled.Load() >= until {
		f.fw.Poke()
	}
}

// settle notes how far the outbox is answered, and has lanes looked at that may send more then. mu
// is held.
func (f *Sender) settle() {
	first := f.box.First
	if first == f.settled.Load() {
		return
	}
	f.settled.Store(first)
	if f.main != nil {
		if !f.box.Sent() {
			f.fw.Poke()
		}
	} else if at := f.awaited.Load(); at > 0 && first >= at {
		f.awaited.CompareAndSwap(at, 0)
		f.fw.Poke()
	}
}

func (fw *Senders) someAsk(messages []protocol.Message) bool {
	for i := range messages {
		if fw.asks(&messages[i]) {
			return true
		}
	}
	return false
}

// asks reports whether a message asks about a pattern of subjects, or has records removed that
// match one. The messages of an atomic batch may not.
func (fw *Senders) asks(m *protocol.Message) bool {
	if m.Header == 0 {
		return false
	}
	head, wild := m.Data[:m.Header], subject.HasWildcards(m.Subject)
	if !wild && bytes.IndexByte(head, '*') < 0 && bytes.IndexByte(head, '>') < 0 {
		return false
	}
	c, err := fw.config.Codec.Conditions(head)
	return err == nil && (c.ExpectsLastBySubject && subject.HasWildcards(c.LastOf(m.Subject)) || wild && c.Rollup == publish.RollupSubject)
}

// strays refuses a message of a fast batch that asks about a pattern although its batch goes by the
// main sender, where it would hold up others. mu is held.
func (f *Sender) strays(v View, m *protocol.Message) bool {
	if f.main != nil || !f.fw.asks(m) {
		return false
	}
	out := replies.Get().(*publish.Replies)
	f.refuse(out, v, m.Reply, &publish.UnsupportedConditionError{Topic: f.id.Topic, Condition: "a pattern of subjects in a fast batch that began without one",
		Why: "other messages would wait for it; begin a batch with that message, or publish it by itself"})
	f.fw.send(out)
	return true
}
