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
//
// The queue is served in portions, each of which ends with its writes. So a message for one
// connection is written before a flood to many others is served whole.
type loop struct {
	hub  *Hub
	sink int

	// The queue. Guarded by in.
	in         sync.Mutex
	queue      []entry
	deliveries int          // of queued entries, and of taken ones that are not served
	bytes      atomic.Int64 // of the messages of both; written under in
	used       bool         // since the last rest
	stopped    bool
	eased      *sync.Cond // behind became false

	behind atomic.Bool // written under in
	wake   chan struct{}
	quit   chan struct{}

	// State of draining. Guarded by mu.
	mu    sync.Mutex
	batch []entry // taken from the queue; those before next are served
	next  int
	part  int // receivers of batch[next] that are served
	spare []entry
	dirty []*Conn
	// The encoded message before and after the subscription's sid. The bare ones leave out the
	// headers.
	head, tail, bareHead, bareTail []byte
	// The same after the sid, and the rest of the message, for members of feeds, once one needs
	// them.
	fedTail, fedRest []byte
}

// quietEntries is how many entries wake a loop that nobody else wakes: a client that only
// unsubscribes holds no more memory than that, and no reader waits for a loop that sleeps.
const quietEntries = 256

// swapEntries is how many entries are worth the exchange of a batch's memory for that of the queue.
const swapEntries = 16

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

// size is how many bytes of a message the entry counts in the queue.
func (e *entry) size() int {
	if e.kind > deliverOne {
		return 0
	}
	return len(e.msg.Subject) + len(e.msg.Data)
}

func visibleOf(m *Message) visible { return visible{m.Subject, m.Reply, m.Data, m.Header} }

func newLoop(h *Hub, sink int) *loop {
	l := &loop{hub: h, sink: sink, wake: make(chan struct{}, 1), quit: make(chan struct{})}
	l.eased = sync.NewCond(&l.in)
	return l
}

// push queues entries with that many deliveries, of messages of that many bytes. It reports whether
// the loop is behind. Who needs the entries to be served soon wakes the loop. Ends of subscriptions
// wait for the next message, or until there are quietEntries.
func (l *loop) push(entries []entry, deliveries, bytes int) (behind bool) {
	l.in.Lock()
	defer l.in.Unlock()
	before := len(l.queue)
	l.queue = append(l.queue, entries...)
	return l.pushed(before, deliveries, bytes)
}

// hand is push for a caller that reuses the memory of entries. It may get other memory, without
// entries: many that come to an empty queue are not copied.
func (l *loop) hand(entries *[]entry, deliveries, bytes int) (behind bool) {
	l.in.Lock()
	defer l.in.Unlock()
	before := len(l.queue)
	if n := len(*entries); before == 0 && n >= swapEntries && cap(l.queue) >= n {
		l.queue, *entries = *entries, l.queue
	} else {
		l.queue = append(l.queue, *entries...)
	}
	return l.pushed(before, deliveries, bytes)
}

// pushed counts entries that were added to so many before. in is held.
func (l *loop) pushed(before, deliveries, bytes int) (behind bool) {
	l.used = true
	l.deliveries += deliveries
	if all := l.bytes.Add(int64(bytes)); all > limits.LoopBacklog || l.deliveries > limits.LoopDeliveries-limits.BatchDeliveries {
		l.behind.Store(true)
	}
	if before < quietEntries && len(l.queue) >= quietEntries {
		l.signal()
	}
	return l.behind.Load()
}

// pushOne queues an entry that is not a message.
func (l *loop) pushOne(e entry) { l.push([]entry{e}, 1, 0) }

func (l *loop) signal() {
	select {
	case l.wake <- struct{}{}:
	default:
	}
}

// unserved returns how many bytes of messages are queued, or taken and not counted as served: so
// much may come to a connection although its publishers wait.
func (l *loop) unserved() int64 { return l.bytes.Load() }

func (l *loop) isBehind() bool { return l.behind.Load() }

// Wait blocks while the loop is behind. A loop that was behind is so until half of its queue is
// served, so that whoever waits is woken for more than one message.
func (l *loop) Wait() {
	if !l.behind.Load() {
		return
	}
	l.hub.stalls.Add(1)
	l.in.Lock()
	for l.behind.Load() && !l.stopped {
		l.eased.Wait()
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

// inline serves a portion on the caller's goroutine. The loop's own goroutine serves what is left,
// and is woken to look at the queue if another goroutine drains it.
func (l *loop) inline() {
	if !l.mu.TryLock() {
		l.signal()
		return
	}
	l.drain()
	left := l.next < len(l.batch)
	l.mu.Unlock()
	if left {
		l.signal()
	}
}

// drain serves one portion of the queue and writes it to its receivers. It reports whether more is
// queued.
func (l *loop) drain() (more bool) {
	if l.next == len(l.batch) && !l.take() {
		return false
	}
	var p portion
	for l.next < len(l.batch) && !p.full() {
		e := &l.batch[l.next]
		if !l.serve(e, &p) {
			break
		}
		p.bytes += e.size()
		if e.ownsSlab {
			e.from.Release()
		}
		l.next, l.part = l.next+1, 0
	}
	for i, c := range l.dirty {
		c.flush()
		l.dirty[i] = nil
	}
	l.dirty = l.dirty[:0]
	if l.next == len(l.batch) {
		clear(l.batch)
		if cap(l.batch) <= keptEntries {
			l.spare = l.batch
		}
		l.batch, l.next = nil, 0
	}
	return l.served(p.deliveries, p.bytes)
}

// take takes all that is queued as the next batch, and reports whether there is anything.
func (l *loop) take() bool {
	l.in.Lock()
	defer l.in.Unlock()
	if len(l.queue) == 0 {
		return false
	}
	l.batch, l.next, l.part = l.queue, 0, 0
	l.queue, l.spare = l.spare[:0], nil
	return true
}

// rest is called now and then. It has a loop that got nothing since the last time serve the ends of
// subscriptions that nobody woke it for, or else give back the memory of its queue.
func (l *loop) rest() {
	if !l.mu.TryLock() {
		return
	}
	defer l.mu.Unlock()
	l.in.Lock()
	defer l.in.Unlock()
	switch {
	case l.used:
		l.used = false
	case len(l.queue) > 0:
		l.signal()
	case l.next == len(l.batch):
		l.queue, l.spare = nil, nil
	}
}

// served counts what a portion has served, and wakes those that wait for room. It reports whether
// more is queued.
func (l *loop) served(deliveries, bytes int) (more bool) {
	l.in.Lock()
	defer l.in.Unlock()
	l.deliveries -= deliveries
	if all := l.bytes.Add(-int64(bytes)); l.behind.Load() && l.deliveries <= limits.LoopDeliveries/2 && all <= limits.LoopBacklog/2 {
		l.behind.Store(false)
		l.eased.Broadcast()
	}
	return l.next < len(l.batch) || len(l.queue) > 0
}

// serve serves the entry, from receiver part on, and counts that in p. It reports whether the entry
// is served; if not, p is full.
func (l *loop) serve(e *entry, p *portion) (done bool) {
	if e.kind == deliverMany {
		return l.serveMany(e, p)
	}
	switch e.kind {
	case deliverOne:
		if !e.sub.ended {
			l.encode(&e.msg)
			l.deliver(e.sub, e)
		}
	case sendRaw, sendRawAndClose:
		if e.conn.closed() {
			break
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
	p.count(1, len(e.msg.Data))
	return true
}

func (l *loop) serveMany(e *entry, p *portion) (done bool) {
	l.encode(&e.msg)
	for l.part < len(e.subs) {
		if p.full() {
			return false
		}
		some := e.subs[l.part:min(l.part+strideOf(len(e.msg.Data)), len(e.subs))]
		for _, s := range some {
			if !s.ended && !s.moved {
				l.deliver(s, e)
			}
		}
		l.part += len(some)
		p.count(len(some), len(e.msg.Data))
	}
	return true
}

// encode encodes what all receivers of a message share: everything but the sid.
func (l *loop) encode(m *visible) {
	l.fedTail, l.fedRest = l.fedTail[:0], nil
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
	if c.closed() || s.feed != nil && (s.feed.to.ended || s.feed.only != nil && !l.judge(s.feed, &e.msg)) {
		return
	}
	if open := c.replies.Load(); open != nil && len(e.msg.Reply) > 0 {
		open.add(e.msg.Reply)
	}
	if s.feed != nil {
		l.feed(s, e)
	} else if e.msg.Header > 0 && !c.headers.Load() {
		c.out.message(l.bareHead, s.sid, l.bareTail, e.msg.Data[e.msg.Header:], e.from)
		c.sentBytes += uint64(len(e.msg.Data) - e.msg.Header)
	} else {
		c.out.message(l.head, s.sid, l.tail, e.msg.Data, e.from)
		c.sentBytes += uint64(len(e.msg.Data))
	}
	c.sent++
	l.touch(c)
}

// feed delivers a message to a member of a Feed.
func (l *loop) feed(s *Sub, e *entry) {
	if len(l.fedTail) == 0 {
		l.fedTail, l.fedRest = protocol.AppendHMsgOn(l.fedTail, e.msg.Subject, e.msg.Reply, e.msg.Data, e.msg.Header)
	}
	c := s.conn
	c.out.message(s.feed.head, s.sid, l.fedTail, l.fedRest, e.from)
	c.sentBytes += uint64(len(l.fedRest))
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
	l.eased.Broadcast()
	l.in.Unlock()
	close(l.quit)
}
