package route

import (
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/carillon-mq/carillon/broker/session"
	"github.com/carillon-mq/carillon/broker/work"
)

var (
	errReplaced = errors.New("a newer connection of the same broker took its place")
	errSilent   = fmt.Errorf("nothing was heard for %v", deadAfter)
	errClosing  = errors.New("this broker is shutting down")
	errGone     = errors.New("the peer closed the connection")
)

// link is one connection to a peer, from its hellos to its end. It implements session.Link.
//
// Three goroutines serve it: the reader, the only one that calls the hub; the writer; and
// keepAlive, which pings and detects silence. run owns them; done is closed when all have ended and
// nothing more reaches the hub.
type link struct {
	mesh   *Mesh
	raw    net.Conn // the TCP connection under conn; closing it never blocks
	conn   net.Conn // TLS, or raw itself
	peer   hello
	dialed bool // by this broker

	neighbour *neighbour // set by Mesh.claim
	claimed   time.Time
	previous  *link // the link that this one replaces; only run uses it
	succeeds  bool  // the peer was linked before, and that link is lost or replaced by this one

	barrier   barrier
	in        *reader
	out       *outbox
	draining  chan struct{} // closed: write what is queued, then close the link in order
	stop      chan struct{} // closed: the link failed, and err says why
	done      chan struct{}
	failing   sync.Once
	drainOnce sync.Once
	err       error

	up       atomic.Bool
	leaving  atomic.Bool  // the peer announced that it leaves
	suspect  atomic.Bool  // silent for suspectAfter
	silent   atomic.Bool  // silent for silentAfter; keeps its value when the link ends
	busy     atomic.Bool  // the reader handles input, and does not wait for the peer
	waiting  atomic.Int64 // since when the reader waits for the peer, by Mesh.now
	rtt      atomic.Int64
	plain    atomic.Int64 // plain patterns that the peer has interest in
	groups   atomic.Int64 // queue groups that the peer has members of
	oversize atomic.Uint64
}

func newLink(m *Mesh, raw, conn net.Conn, in *reader, peer hello, dialed bool) *link {
	limit := max(m.config.MaxPayload, peer.MaxPayload)
	in.limit = limit + frameOverhead
	return &link{
		mesh: m, raw: raw, conn: conn, peer: peer, dialed: dialed, in: in,
		out:      newOutbox(limit),
		draining: make(chan struct{}), stop: make(chan struct{}), done: make(chan struct{}),
	}
}

// Forward queues a message for the peer. behind asks the publisher to call Wait.
func (l *link) Forward(m *session.Message, reach session.Reach) (behind bool) {
	v := l.out.forward(m, reach)
	if v.oversize {
		l.oversize.Add(1)
	}
	if v.overflow {
		l.fail(errOverflow)
	}
	return v.behind
}

// Wait blocks while the link is behind. It returns when the link is down.
func (l *link) Wait() { l.out.wait() }

// Carry queues a Topics frame for the peer. behind asks publishers to call Wait.
func (l *link) Carry(parts ...[]byte) (behind bool) {
	v := l.out.carry(parts)
	if v.oversize {
		l.oversize.Add(1)
	}
	if v.overflow {
		l.fail(errOverflow)
	}
	return v.behind
}

// Announce queues a change of this broker's interest.
func (l *link) Announce(change session.Interest) {
	if !l.out.announce(change) {
		l.fail(errOverflow)
	}
}

// Pending returns the bytes that are queued or being written.
func (l *link) Pending() int { return l.out.pending() }

// fail ends the link. Only the first reason counts. It never blocks.
func (l *link) fail(err error) {
	l.failing.Do(func() {
		l.err = err
		close(l.stop)
		l.raw.Close()
	})
}

func (l *link) alive() bool {
	select {
	case <-l.stop:
		return false
	default:
		return true
	}
}

// drain makes the writer send what is queued and then close the link in order.
func (l *link) drain() { l.drainOnce.Do(func() { close(l.draining) }) }

func (l *link) run() {
	defer close(l.done)
	if l.previous != nil {
		<-l.previous.done
		l.previous = nil
	}
	if l.alive() {
		peer, interest := l.mesh.config.Hub.Attach(l, l.peer.ID)
		topics := l.mesh.config.Topics.Attach(l.peer.ID, l)
		l.out.release(interest)
		if l.mesh.leaving.Load() {
			l.announceLeaving()
		}
		var workers sync.WaitGroup
		workers.Go(l.write)
		workers.Go(l.keepAlive)
		l.fail(l.read(peer, topics))
		topics.Detach()
		peer.Detach()
		workers.Wait()
	}
	l.out.close(nil)
	l.barrier.end()
}

// sendControl queues a small frame. Control frames count towards the bound, too: otherwise the
// pongs for a peer that never reads would pile up.
func (l *link) sendControl(put func(*frames)) {
	if !l.out.control(put) {
		l.fail(errOverflow)
	}
}

func (l *link) announceLeaving() { l.sendControl(func(f *frames) { f.empty(frameLeaving) }) }

// write sends what gathers in the outbox. Everything that was queued during one write goes out with
// the next, so batching needs no timer.
func (l *link) write() {
	var rest *chunk
	defer func() { l.out.close(rest) }()
	traffic := &l.neighbour.traffic
	for {
		parted := false
		select {
		case <-l.stop:
			return
		case <-l.out.wake:
		case <-l.draining:
			parted = true
		}
		for rest = l.out.take(); rest != nil; {
			if err := l.conn.SetWriteDeadline(time.Now().Add(writeTimeout)); err != nil {
				l.fail(fmt.Errorf("set write deadline: %w", err))
				return
			}
			if _, err := l.conn.Write(rest.data[:rest.used]); err != nil {
				l.fail(fmt.Errorf("write: %w", err))
				return
			}
			traffic.outMessages.Add(uint64(rest.messages))
			traffic.outBytes.Add(uint64(rest.used))
			l.out.wrote(rest.used)
			sent := rest
			rest = rest.next
			sent.free()
			if rest == nil {
				rest = l.out.take()
			}
		}
		if parted {
			l.closeWrite()
			<-l.stop // The peer closes its side, or Close gives up waiting.
			return
		}
	}
}

// closeWrite closes this direction only. Closing both while the peer still sends makes the kernel
// reset the connection and lose what was just written.
func (l *link) closeWrite() {
	if t, ok := l.conn.(*tls.Conn); ok {
		_ = t.CloseWrite() // The end of the TCP stream follows anyway.
	}
	if t, ok := l.raw.(interface{ CloseWrite() error }); ok {
		_ = t.CloseWrite()
		return
	}
	l.fail(errClosing)
}

// keepAlive sends pings and detects silence.
func (l *link) keepAlive() {
	ticker, ping := work.NewTicker(pingEvery), work.NewTicker(pingEvery)
	defer ticker.Stop()
	defer ping.Stop()
	last, pace := l.mesh.now(), pingEvery
	for {
		select {
		case <-l.stop:
			return
		case <-ping.C:
			ping.Next()
			l.sendControl(func(f *frames) { f.token(framePing, uint64(l.mesh.now())) })
			continue
		case <-ticker.C:
		}
		now := l.mesh.now()
		if now-last > pace+keepAliveTick {
			// This process did not run for a while, so the silence may be its own.
			l.waiting.Store(int64(now))
		}
		last = now
		silence := time.Duration(0)
		if !l.busy.Load() {
			silence = now - time.Duration(l.waiting.Load())
		}
		pace = pingEvery
		if silence >= quietAfter {
			pace = keepAliveTick
		}
		ticker.Pace(pace)
		if silent := silence >= silentAfter; l.silent.Swap(silent) != silent {
			l.mesh.hush()
		}
		if silence >= deadAfter {
			l.fail(errSilent)
			return
		}
		if silence >= suspectAfter {
			if !l.suspect.Swap(true) {
				l.neighbour.nudge()
			}
		} else {
			l.suspect.Store(false)
		}
	}
}

func (l *link) read(peer ClientSide, topics TopicsSide) error {
	var d decoder
	var progress interestExchange
	traffic := &l.neighbour.traffic
	defer peer.Flush()
	for {
		messages, frames := uint64(0), false
		for {
			t, body, ok, err := l.in.next()
			if err != nil {
				return refuse(CauseMalformed, "broker %q sent a broken frame: %v", l.peer.Name, err)
			}
			if !ok {
				break
			}
			if t == frameMessage {
				m, reach, err := d.decode(body)
				if err != nil {
					return refuse(CauseMalformed, "broker %q sent a broken message: %v", l.peer.Name, err)
				}
				messages++
				if peer.Deliver(m, reach) {
					peer.Flush()
					if frames {
						topics.Flush() // which does not wait for clients
						frames = false
					}
					peer.Wait()
				}
				continue
			}
			// From Deliver to Flush the hub's index is locked. Handlers of other frames may need
			// that lock, or wait for another holder of it.
			peer.Flush()
			if t == frameTopics {
				if err := topics.Take(body); err != nil {
					return refuse(CauseMalformed, "broker %q sent a broken frame: %v", l.peer.Name, err)
				}
				frames = true
				continue
			}
			if t == framePing && frames {
				topics.Flush() // its pong says that all before it was handled
				frames = false
			}
			if err := l.control(peer, t, body, &progress); err != nil {
				return err
			}
		}
		peer.Flush()
		if frames {
			topics.Flush()
		}
		if messages > 0 {
			traffic.inMessages.Add(messages)
			peer.Wait()
		}
		l.waiting.Store(int64(l.mesh.now()))
		l.busy.Store(false)
		n, err := l.in.fill()
		l.busy.Store(true)
		traffic.inBytes.Add(uint64(n))
		if err != nil {
			if errors.Is(err, io.EOF) {
				return errGone
			}
			return fmt.Errorf("read: %w", err)
		}
	}
}

// interestExchange is the progress of the exchange of interest in both directions.
type interestExchange struct {
	theirs, ours bool
	queues       map[session.Interest]struct{} // the groups that link.groups counts
}

func (l *link) control(peer ClientSide, t frameType, body []byte, s *interestExchange) error {
	switch t {
	case frameInterest:
		change, err := parseInterest(body)
		if err != nil {
			return refuse(CauseMalformed, "broker %q sent a broken frame: %v", l.peer.Name, err)
		}
		l.count(change, s)
		peer.SetInterest(change)
	case frameInterestEnd:
		s.theirs = true
		l.sendControl(func(f *frames) { f.empty(frameReady) })
		l.markUp(s)
	case frameReady:
		s.ours = true
		l.markUp(s)
	case framePing:
		token, err := parseToken(body)
		if err != nil {
			return refuse(CauseMalformed, "broker %q sent a broken ping: %v", l.peer.Name, err)
		}
		l.sendControl(func(f *frames) { f.token(framePong, token) })
	case framePong:
		token, err := parseToken(body)
		if err != nil {
			return refuse(CauseMalformed, "broker %q sent a broken pong: %v", l.peer.Name, err)
		}
		if sent, now := time.Duration(token), l.mesh.now(); sent >= 0 && sent <= now {
			l.rtt.Store(int64(now - sent))
			l.barrier.passed(sent)
		}
	case frameNotice:
		return l.hand(l.mesh.config.Notices, "notice", body)
	case frameDemands:
		return l.hand(l.mesh.config.Demands, "report of users", body)
	case frameLeaving:
		l.leaving.Store(true)
		l.mesh.peerLeaves(l)
	case frameRefused:
		return parseRefusal(body)
	default:
		return refuse(CauseMalformed, "broker %q sent a frame of the unknown type %d", l.peer.Name, t)
	}
	return nil
}

// hand gives an opaque frame to whom it is for. take is nil if nobody asked for such frames.
func (l *link) hand(take func(broker string, body []byte) error, what string, body []byte) error {
	if take == nil {
		return refuse(CauseMalformed, "broker %q sent a %s that this broker has not asked for", l.peer.Name, what)
	}
	if err := take(l.peer.ID, body); err != nil {
		return refuse(CauseMalformed, "broker %q sent a broken %s: %v", l.peer.Name, what, err)
	}
	return nil
}

// count updates the figures for Stats. A plain pattern begins and ends once. The size of a group
// changes many times, so the groups are remembered.
func (l *link) count(change session.Interest, s *interestExchange) {
	switch {
	case change.Queue == "" && change.Count > 0:
		l.plain.Add(1)
	case change.Queue == "":
		l.plain.Add(-1)
	default:
		group := session.Interest{Pattern: change.Pattern, Queue: change.Queue}
		if change.Count == 0 {
			delete(s.queues, group)
		} else {
			if s.queues == nil {
				s.queues = make(map[session.Interest]struct{})
			}
			s.queues[group] = struct{}{}
		}
		l.groups.Store(int64(len(s.queues)))
	}
}

func (l *link) markUp(s *interestExchange) {
	if s.theirs && s.ours && !l.up.Swap(true) {
		l.mesh.linkUp(l)
	}
}
