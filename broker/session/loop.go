package session

import (
	"sync"
	"sync/atomic"

	"github.com/carillon-mq/carillon/broker/limits"
	"github.com/carillon-mq/carillon/broker/protocol"
)

// loop sends to its share of the connections.
//
// The holder of mu may drain the queue. Usually that is the loop's own goroutine. A reader that
// queued only a few deliveries drains it itself if the loop is idle, which saves a request two
// goroutine switches. The simpler design, a goroutine per connection that is woken for each
// message, is where nats-server spends most of its time with many receivers.
type loop struct {
	hub  *Hub
	sink int

	// The queue. Guarded by in.
	in      sync.Mutex
	queue   []entry
	bytes   int
	stopped bool
	room    *sync.Cond // signalled when the queue was emptied

	behind atomic.Bool // the queue is over its bound
	wake   chan struct{}
	quit   chan struct{}

	// State of draining. Guarded by mu.
	mu    sync.Mutex
	spare []entry
	dirty []*Conn
	// The encoded message before and after the subscription's sid. The bare ones leave out the
	// headers.
	head, tail, bareHead, bareTail []byte
}

// keptEntries is the largest capacity of a queue that is kept for reuse.
const keptEntries = 8 << 10

type entryKind uint8

const (
	deliverMany     entryKind = iota // to subs
	deliverOne                       // to sub
	sendRaw                          // data to conn, as it is
	sendRawAndClose                  // like sendRaw, then close conn
	sendFrame                        // data to conn, which is a frame
	sendUpgrade                      // data to conn, and what follows it in frames
	endSub                           // deliver nothing more to sub
	moveSub                          // deliver to sub by deliverOne only, not from lists
)

// entry is one item of a loop's queue. The message's slices alias from.
type entry struct {
	kind entryKind
	sub  *Sub
	conn *Conn
	subs []*Sub
	msg  visible
	from *slab
	// ownsSlab marks the entry that owns the reference to from, for itself and for entries before
	// it.
	ownsSlab bool
}

// visible is the part of a message that receivers see. It leaves out the route, since entries are
// copied into queues and their size matters.
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

// push queues entries. bytes is the size of their messages.
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

// inline drains once on the caller's goroutine. If another goroutine drains, inline wakes the
// loop's own goroutine to check the queue again.
func (l *loop) inline() {
	if !l.mu.TryLock() {
		l.signal()
		return
	}
	l.drain()
	l.mu.Unlock()
}

// drain serves what is queued now, and reports whether there was anything.
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
		if batch[i].ownsSlab {
			batch[i].from.Release()
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
		if e.conn.closed() {
			return
		}
		e.conn.out.write(e.msg.Data)
		e.conn.closing = e.conn.closing || e.kind == sendRawAndClose
		l.touch(e.conn)
	case sendFrame, sendUpgrade:
		e.conn.web.sendApart(e.msg.Data, e.kind == sendUpgrade)
	case endSub:
		e.sub.ended = true
	case moveSub:
		e.sub.moved = true
	}
}

// encode encodes what all receivers of a message share: everything but the sid.
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
	if c.closed() {
		return
	}
	if open := c.replies.Load(); open != nil && len(e.msg.Reply) > 0 {
		open.add(e.msg.Reply)
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

// stop ends the loop's goroutine after it has served its queue. Later entries are dropped, as no
// client is connected any more.
func (l *loop) stop() {
	l.in.Lock()
	l.stopped = true
	l.room.Broadcast()
	l.in.Unlock()
	close(l.quit)
}
