package session

import (
	"sync"
	"sync/atomic"

	"github.com/carillon-mq/carillon/broker/limits"
	"github.com/carillon-mq/carillon/broker/protocol"
)

// loop sends to its share of the connections.
//
// Whoever holds mu may drain the queue: usually the loop's own goroutine, but a reader that
// brought only a few deliveries does it itself if nobody else is, which saves a request
// two goroutine switches. A goroutine per connection, woken for each message, was the simpler
// way and costs most of nats-server's time at many receivers.
type loop struct {
	hub  *Hub
	sink int

	// The queue. Guarded by in.
	in      sync.Mutex
	queue   []entry
	bytes   int
	stopped bool
	room    *sync.Cond // signalled when the queue was taken

	behind atomic.Bool // the queue is over its bound
	wake   chan struct{}
	quit   chan struct{}

	// What draining needs. Guarded by mu.
	mu    sync.Mutex
	spare []entry
	dirty []*Conn
	// The message being encoded, around the subscription's id; bare is it without headers.
	head, tail, bareHead, bareTail []byte
}

// keptEntries is how long a queue may have grown and still be kept for the next time.
const keptEntries = 8 << 10

type entryKind uint8

const (
	deliverMany     entryKind = iota // to subs
	deliverOne                       // to sub
	sendRaw                          // data to conn as it is
	sendRawAndClose                  // the same, and close once it is written
	endSub                           // nothing more for sub
	moveSub                          // what comes for sub with a list is not for it any more
)

// entry is one thing for a loop to do. The message's slices point into from.
type entry struct {
	kind entryKind
	sub  *Sub
	conn *Conn
	subs []*Sub
	msg  visible
	from *slab
	// held says that this entry carries the reference to from for itself and those before it.
	held bool
}

// visible is the part of a message that receivers see. Routing is left out, because entries are copied
// into queues and their size costs.
type visible struct {
	Subject, Reply, Data []byte
	Header               int
}

func visibleOf(m *Message) visible { return visible{m.Subject, m.Reply, m.Data, m.Header} }

func newLoop(h *Hub, sink int) *loop {
	l := &loop{hub: h, sink: sink, wake: make(chan struct{}, 1), quit: make(chan struct{})}
	l.room = sync.NewCond(&l.in)
	return l
}

// push queues entries; bytes is the size of their messages.
func (l *loop) push(entries []entry, bytes int) {
	l.in.Lock()
	l.queue = append(l.queue, entries...)
	l.bytes += bytes
	if l.bytes > limits.LoopBacklog || len(l.queue) > limits.LoopEntries {
		l.behind.Store(true)
	}
	l.in.Unlock()
}

func (l *loop) signal() {
	select {
	case l.wake <- struct{}{}:
	default:
	}
}

// wait blocks while the queue is over its bound.
func (l *loop) wait() {
	if !l.behind.Load() {
		return
	}
	l.in.Lock()
	for l.behind.Load() && !l.stopped {
		l.hub.stalls.Add(1)
		l.room.Wait()
	}
	l.in.Unlock()
}

func (l *loop) run() {
	for last := false; !last; {
		select {
		case <-l.wake:
		case <-l.quit:
			last = true
		}
		l.mu.Lock()
		for l.drain() {
		}
		l.mu.Unlock()
	}
}

// inline drains once on the caller's goroutine; if somebody else is at it, the loop's goroutine
// will look again.
func (l *loop) inline() {
	if !l.mu.TryLock() {
		l.signal()
		return
	}
	l.drain()
	l.mu.Unlock()
}

// drain serves what is queued now, and says whether there was anything.
func (l *loop) drain() bool {
	l.in.Lock()
	batch := l.queue
	l.queue, l.spare = l.spare[:0], nil
	l.bytes = 0
	if l.behind.Load() {
		l.behind.Store(false)
		l.room.Broadcast()
	}
	l.in.Unlock()
	if len(batch) == 0 {
		l.spare = batch
		return false
	}
	for i := range batch {
		l.serve(&batch[i])
	}
	for i, c := range l.dirty {
		c.flush()
		l.dirty[i] = nil
	}
	l.dirty = l.dirty[:0]
	for i := range batch {
		if batch[i].held {
			batch[i].from.release()
		}
	}
	clear(batch)
	if cap(batch) <= keptEntries {
		l.spare = batch[:0]
	}
	return true
}

func (l *loop) serve(e *entry) {
	switch e.kind {
	case deliverMany:
		l.encode(&e.msg)
		for _, s := range e.subs {
			if !s.ended && !s.moved {
				l.deliver(s, e)
			}
		}
	case deliverOne:
		if !e.sub.ended {
			l.encode(&e.msg)
			l.deliver(e.sub, e)
		}
	case sendRaw, sendRawAndClose:
		if e.conn.closed.Load() {
			return
		}
		e.conn.out.write(e.msg.Data)
		e.conn.closing = e.conn.closing || e.kind == sendRawAndClose
		l.touch(e.conn)
	case endSub:
		e.sub.ended = true
	case moveSub:
		e.sub.moved = true
	}
}

// encode prepares what all receivers of a message share: everything but the subscription's id.
func (l *loop) encode(m *visible) {
	if m.Header == 0 {
		l.head = protocol.AppendMsgPrefix(l.head[:0], m.Subject)
		l.tail = protocol.AppendMsgSuffix(l.tail[:0], m.Reply, len(m.Data))
		return
	}
	l.head = protocol.AppendHMsgPrefix(l.head[:0], m.Subject)
	l.tail = protocol.AppendHMsgSuffix(l.tail[:0], m.Reply, m.Header, len(m.Data))
	l.bareHead = protocol.AppendMsgPrefix(l.bareHead[:0], m.Subject)
	l.bareTail = protocol.AppendMsgSuffix(l.bareTail[:0], m.Reply, len(m.Data)-m.Header)
}

func (l *loop) deliver(s *Sub, e *entry) {
	c := s.conn
	if c.closed.Load() {
		return
	}
	if e.msg.Header > 0 && !c.headers.Load() {
		c.out.message(l.bareHead, s.sid, l.bareTail, e.msg.Data[e.msg.Header:], e.from)
		c.sentBytes += uint64(len(e.msg.Data) - e.msg.Header)
	} else {
		c.out.message(l.head, s.sid, l.tail, e.msg.Data, e.from)
		c.sentBytes += uint64(len(e.msg.Data))
	}
	c.sent++
	l.touch(c)
}

func (l *loop) touch(c *Conn) {
	if !c.dirty {
		c.dirty = true
		l.dirty = append(l.dirty, c)
	}
	if c.out.size >= fullChunk {
		c.write()
	}
}

// stop ends the loop's goroutine after what is queued has been served. What comes later, from whoever
// sends on this node's behalf, goes nowhere: nobody is connected.
func (l *loop) stop() {
	l.in.Lock()
	l.stopped = true
	l.room.Broadcast()
	l.in.Unlock()
	close(l.quit)
}
