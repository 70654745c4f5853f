package simulation

import (
	"time"
)

// Silence is how long a connection may be silent before its ends give it up.
const silence = 2 * time.Second

// network is what lies between brokers: connections whose messages come in order, late, or, while
// the way is cut, not until it is whole again.
type network struct {
	w     *world
	cut   map[[2]string]bool // ways from one to another; "etcd" is a place too
	slow  map[[2]string]time.Duration
	conns []*conn
}

func newNetwork(w *world) *network {
	n := &network{w: w, cut: map[[2]string]bool{}, slow: map[[2]string]time.Duration{}}
	w.every(500*time.Millisecond, n.listen)
	return n
}

// open says whether anything comes through from one place to another.
func (n *network) open(from, to string) bool { return !n.cut[[2]string{from, to}] }

func (n *network) latency(from, to string) time.Duration {
	return n.w.between(50*time.Microsecond, 500*time.Microsecond) + n.slow[[2]string{from, to}]
}

// conn is a connection between two brokers, for as long as either of its ends is open.
type conn struct {
	n    *network
	ends [2]*end // who dialled; who was dialled
}

// end is what one side has of a connection.
type end struct {
	c      *conn
	other  *end
	b      *broker
	life   int
	closed bool
	heard  time.Duration // when the other side was last heard
	lost   func()        // called once when it is closed, but not by its own side
	way    []message     // to this end, in order
	moving bool
}

type message struct {
	due time.Duration
	do  func() // nil: the other side has closed
}

// dial connects from one broker to another. done is told the two ends, or nil if nobody listens there.
func (n *network) dial(from, to *broker, done func(mine, its *end, refused bool)) {
	life := from.life
	answer := func(d time.Duration, mine, its *end, refused bool) {
		n.w.after(d, func() { from.do(life, func() { done(mine, its, refused) }) })
	}
	n.w.after(n.latency(from.id, to.id), func() {
		switch {
		case !n.open(from.id, to.id) || !n.open(to.id, from.id) || to.dark:
			answer(time.Second, nil, nil, false)
		case !to.up:
			answer(n.latency(to.id, from.id), nil, nil, true)
		default:
			c := &conn{n: n}
			mine := &end{c: c, b: from, life: life, heard: n.w.now}
			its := &end{c: c, b: to, life: to.life, heard: n.w.now}
			mine.other, its.other = its, mine
			c.ends = [2]*end{mine, its}
			n.conns = append(n.conns, c)
			answer(n.latency(to.id, from.id), mine, its, false)
		}
	})
}

// send brings something to the other side, after all that was sent before.
func (e *end) send(do func()) {
	if e.closed {
		return
	}
	e.post(do)
}

func (e *end) post(do func()) {
	to, n := e.other, e.c.n
	due := n.w.now + n.latency(e.b.id, to.b.id)
	if last := len(to.way) - 1; last >= 0 {
		due = max(due, to.way[last].due)
	}
	to.way = append(to.way, message{due, do})
	to.move()
}

// move delivers what has come as far as this end.
func (e *end) move() {
	if e.moving || len(e.way) == 0 {
		return
	}
	e.moving = true
	w := e.c.n.w
	wait := e.way[0].due - w.now
	if !e.c.n.open(e.other.b.id, e.b.id) {
		wait = max(wait, 20*time.Millisecond)
	}
	w.after(wait, func() {
		e.moving = false
		for len(e.way) > 0 && e.way[0].due <= w.now && e.c.n.open(e.other.b.id, e.b.id) {
			m := e.way[0]
			e.way = e.way[1:]
			e.b.do(e.life, func() {
				switch {
				case e.closed:
				case m.do == nil:
					e.drop()
				default:
					m.do()
				}
			})
		}
		e.move()
	})
}

// close is this side's.
func (e *end) close() {
	if !e.closed {
		e.closed = true
		e.post(nil)
	}
}

// drop is the network's, or the other side's.
func (e *end) drop() {
	if e.closed {
		return
	}
	e.closed = true
	e.post(nil)
	if e.lost != nil {
		e.lost()
	}
}

// died closes what a process had open when it was killed; the kernel says so to the others.
func (n *network) died(b *broker) {
	for _, c := range n.conns {
		for _, e := range c.ends {
			if e.b == b && !e.closed {
				e.closed = true
				e.post(nil)
			}
		}
	}
}

// listen is what heartbeats are there for: an end that hears nothing of the other is closed.
func (n *network) listen() {
	kept := n.conns[:0]
	for _, c := range n.conns {
		for _, e := range c.ends {
			o := e.other
			if !o.closed && o.b.life == o.life && o.b.up && !o.b.paused && n.open(o.b.id, e.b.id) {
				e.heard = n.w.now
			}
			if !e.closed && n.w.now-e.heard > silence && e.b.up && e.b.life == e.life && !e.b.paused {
				e.b.do(e.life, e.drop)
			}
		}
		gone := func(e *end) bool { return e.closed || e.b.life != e.life || !e.b.up }
		if !gone(c.ends[0]) || !gone(c.ends[1]) {
			kept = append(kept, c)
		}
	}
	clear(n.conns[len(kept):])
	n.conns = kept
}
