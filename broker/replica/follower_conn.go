package replica

import (
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/carillon-mq/carillon/broker/coordination"
	"github.com/carillon-mq/carillon/broker/log"
	"github.com/carillon-mq/carillon/broker/work"
)

// followerConn is the leader's end of a connection from one follower broker.
type followerConn struct {
	connection
	probed bool // the follower supports probes

	mu      sync.Mutex
	ended   bool
	answers []byte // frames
	dirty   []*stream
	highs   []*stream          // whose watermark or start moved
	probes  []*stream          // that a barrier round waits for
	refused map[ID]requestHead // asks that may have come too early
	fetches []*fetch
	streams map[uint32]*stream // reader only

	// Reader only.
	now   time.Duration
	moved []*Leading

	// Writer only.
	memory           []byte    // lent to cursors
	throttled        []*stream // with bytes that wait for the allowance
	throttledFetches []*fetch  // that wait for the allowance
	allowance        int       // bytes that may be sent now of what followers lack
	paced            time.Time
}

// stream is one shard that a follower has joined on a connection.
type stream struct {
	conn      *followerConn
	id, round uint32
	from      coordination.Replica
	l         *Leading

	gone    atomic.Bool // it ended or was replaced
	dirty   atomic.Bool // in followerConn.dirty
	highDue atomic.Bool // in followerConn.highs
	probing atomic.Bool // in followerConn.probes
	blocked atomic.Bool // the window is full; an ack makes it dirty
	acked   [Parts]atomic.Uint64

	// Writer only.
	cursor    [Parts]*log.Cursor
	next      [Parts]uint64 // ends of what was sent
	goal      [Parts]uint64 // ends of the logs at the ask
	sent      [Parts]uint64 // end of what an ack is due for
	weight    [Parts]int    // approximate size of a record, in 256ths of a byte
	sentMarks marks
}

// Serve sends shards that are led here to another broker, which opened conn to follow them. It
// returns when conn has ended, and closes it.
func (x *Exchange) Serve(conn net.Conn, broker string) {
	o := &followerConn{refused: make(map[ID]requestHead), streams: make(map[uint32]*stream)}
	o.init(x, conn, broker)
	o.probed = announces(conn, coordination.FeatureBarrier)
	x.mu.Lock()
	if x.closed {
		x.mu.Unlock()
		o.fail(errClosing)
		return
	}
	before := x.followerConns[broker]
	x.followerConns[broker] = o
	x.workers.Add(1)
	x.mu.Unlock()
	defer x.workers.Done()
	if before != nil {
		before.fail(errReplaced)
	}
	x.log.Debug("Follower connected", "broker", broker)
	var writer sync.WaitGroup
	writer.Go(func() { o.fail(o.write()) })
	o.fail(o.read(newReader(conn, askBuffer, maxGiven), o.handle, o.allHandled))
	writer.Wait()
	o.mu.Lock()
	o.ended = true
	o.answers, o.dirty, o.highs, o.probes, o.refused, o.fetches = nil, nil, nil, nil, nil, nil
	o.mu.Unlock()
	x.mu.Lock()
	if x.followerConns[broker] == o {
		delete(x.followerConns, broker)
	}
	x.mu.Unlock()
	for _, s := range o.streams {
		s.l.left(s)
	}
	x.ended(&o.connection, "follower")
}

// ended logs how a connection ended.
func (x *Exchange) ended(c *connection, peer string) {
	if _, bad := c.err.(*garbageError); bad {
		x.warnThrottled("garbage from "+c.broker, "Ended a replication connection for what came over it",
			peer, c.broker, "error", c.err)
		return
	}
	x.log.Debug("Replication connection ended", peer, c.broker, "error", c.err)
}

// handle handles one frame of the follower.
func (o *followerConn) handle(t frameType, body []byte) error {
	if t != frameGiven && len(body) > maxAsk {
		return garbage("a frame of type %d with %d bytes", t, len(body))
	}
	switch t {
	case frameBeat:
	case frameClock:
		return o.receiveClock(body)
	case frameAck:
		id, p, safe, err := parseAck(body)
		if err != nil {
			return &garbageError{err}
		}
		o.acked(id, p, safe)
	case frameConfirm:
		p, err := parseProbe(body)
		if err != nil {
			return &garbageError{err}
		}
		o.confirmed(&p)
	case frameAsk:
		a, err := parseAsk(body)
		if err != nil {
			return o.malformed(body, err)
		}
		return o.ask(a)
	case frameFetch:
		q, err := parseFetch(body)
		if err != nil {
			return o.malformed(body, err)
		}
		return o.fetch(q)
	case frameGiven:
		g, err := parseGiven(body)
		if err != nil {
			return &garbageError{err}
		}
		o.given(g)
	case frameLeave:
		id, err := parseLeave(body)
		if err != nil {
			return &garbageError{err}
		}
		o.leave(id)
	default:
		return garbage("a frame of type %d", t)
	}
	return nil
}

// allHandled is called when all received frames are handled. It calls Moved once per shard.
func (o *followerConn) allHandled() {
	for i, l := range o.moved {
		l.notifyMoved()
		o.moved[i] = nil
	}
	o.moved, o.now = o.moved[:0], 0
}

func (o *followerConn) acked(id uint32, p Part, safe uint64) {
	s := o.streams[id]
	if s == nil {
		return // of a stream that was refused meanwhile
	}
	o.x.counters.inAcks.Add(1)
	if o.now == 0 {
		o.now = o.x.config.Now()
	}
	s.acked[p].Store(safe)
	if s.l.copied(s, p, safe, o.now) {
		o.queueMoved(s.l)
	}
	if s.blocked.Load() && s.blocked.Swap(false) {
		s.markDirty()
	}
}

// queueMoved queues a call of Moved for allHandled.
func (o *followerConn) queueMoved(l *Leading) {
	if len(o.moved) == 0 || o.moved[len(o.moved)-1] != l {
		o.moved = append(o.moved, l)
	}
}

// confirmed handles a follower's confirmation of a barrier round. It ignores that of an earlier ask
// or epoch.
func (o *followerConn) confirmed(p *probe) {
	s := o.streams[p.stream]
	if s != nil && s.round == p.round && s.l.epoch == p.epoch && s.l.confirm(s, p.number) {
		o.queueMoved(s.l)
	}
}

func (o *followerConn) leave(id uint32) {
	if s := o.streams[id]; s != nil {
		delete(o.streams, id)
		s.l.left(s)
	}
}

func (o *followerConn) ask(a *ask) error {
	x := o.x
	x.counters.inAsks.Add(1)
	before := o.streams[a.stream]
	if before == nil && len(o.streams) >= maxStreams {
		return garbage("more than %d streams", maxStreams)
	}
	delete(o.streams, a.stream)
	l, epoch, why, soon := x.leaderFor(a.ID, a.epoch)
	var s *stream
	if why == "" {
		s, why = l.ask(o, a)
	}
	if s != nil {
		o.streams[a.stream] = s
	}
	switch {
	case before != nil && s != nil:
		before.l.disconnected(before) // the new stream has replaced it already
	case before != nil:
		before.l.left(before)
	}
	if why != "" {
		o.refuse(&a.requestHead, epoch, why, soon)
	}
	return nil
}

// malformed refuses an ask or a fetch that can't be decoded, and ends its stream. The streams of
// other shards go on. If the frame is too short to name its stream, the connection ends. maxAnswers
// bounds the refusals that the follower does not read.
func (o *followerConn) malformed(body []byte, err error) error {
	f := fields{rest: body}
	id, round := f.u32(), f.u32()
	if f.bad {
		return &garbageError{err}
	}
	o.leave(id)
	o.x.counters.refused.Add(1)
	o.x.warnThrottled("malformed "+o.broker, "Refused a malformed request of a follower", "follower", o.broker, "error", err)
	o.answer(appendRefusal(nil, &refusal{stream: id, round: round, why: "the request is malformed: " + err.Error()}))
	return nil
}

// leaderFor returns the leader for the epoch, or a refusal and whether the epoch may begin here
// soon.
func (x *Exchange) leaderFor(id ID, in int64) (l *Leading, epoch int64, why string, soon bool) {
	l, epoch = x.leading(id)
	switch {
	case l == nil:
		why, soon = "this broker doesn't lead it", epoch <= in
	case l.epoch != in:
		why, soon = fmt.Sprintf("this broker leads it in epoch %d, not %d", l.epoch, in), epoch < in
	}
	return l, epoch, why, soon
}

// refuse answers an ask, and remembers it if it may have come too early.
func (o *followerConn) refuse(q *requestHead, epoch int64, why string, soon bool) {
	o.x.counters.refused.Add(1)
	o.mu.Lock()
	if soon && !o.ended && len(o.refused) < maxStreams {
		o.refused[q.ID] = *q
	}
	o.mu.Unlock()
	o.answer(appendRefusal(nil, &refusal{stream: q.stream, round: q.round, epoch: epoch, why: why}))
	if l, _ := o.x.leading(q.ID); soon && l != nil {
		o.letRetry(q.ID, l.epoch) // leading may have begun just now, before the ask was remembered
	}
}

// letRetry makes a follower ask again whose ask for the shard came before this broker led it.
func (o *followerConn) letRetry(id ID, epoch int64) {
	o.mu.Lock()
	q, ok := o.refused[id]
	if ok = ok && q.epoch == epoch; ok {
		delete(o.refused, id)
	}
	o.mu.Unlock()
	if ok {
		o.answer(appendRetry(nil, q.stream, q.round))
	}
}

// answer queues frames that are sent before anything else.
func (o *followerConn) answer(frames []byte) {
	o.mu.Lock()
	if !o.ended {
		o.answers = append(o.answers, frames...)
	}
	much := len(o.answers) > maxAnswers
	o.mu.Unlock()
	if much {
		o.fail(garbage("too many unread answers"))
	}
	o.signal()
}

// enqueue adds the stream to a queue of its connection.
func (s *stream) enqueue(queue *[]*stream) {
	o := s.conn
	o.mu.Lock()
	if !o.ended {
		*queue = append(*queue, s)
	}
	o.mu.Unlock()
}

// markDirty queues the stream for sending.
func (s *stream) markDirty() {
	if s.dirty.Load() || s.dirty.Swap(true) {
		return
	}
	s.enqueue(&s.conn.dirty)
	s.conn.signal()
}

// markHigh records that the watermark or the start moved. Without other data it is sent at the next
// tick.
func (s *stream) markHigh() {
	if s.highDue.Load() || s.highDue.Swap(true) {
		return
	}
	s.enqueue(&s.conn.highs)
}

// markProbe queues a probe of the newest barrier round, unless it is confirmed or the follower
// supports none.
func (s *stream) markProbe() {
	if !s.conn.probed || s.l.round.Load() == s.l.confirmed.Load() || s.probing.Swap(true) {
		return
	}
	s.enqueue(&s.conn.probes)
	s.conn.signal()
}

// probe sends a probe of the newest round, which includes all earlier ones.
func (s *stream) probe() error {
	s.probing.Store(false)
	if s.gone.Load() {
		return nil
	}
	p := probe{stream: s.id, round: s.round, epoch: s.l.epoch, number: s.l.round.Load()}
	_, err := s.conn.out.Write(appendProbe(s.conn.out.AvailableBuffer(), frameProbe, &p))
	return err
}

// write sends what is queued until the connection ends.
func (o *followerConn) write() error {
	ticker, beat := work.NewTicker(highTick), work.NewTicker(beatEvery)
	defer ticker.Stop()
	defer beat.Stop()
	pace := time.NewTimer(time.Hour)
	defer pace.Stop()
	var answers []byte
	var dirty, highs, probes []*stream
	var fetches []*fetch
	o.paced, o.allowance = time.Now(), catchUpRate/10
	for {
		tick, beats := false, false
		select {
		case <-o.stop:
			return o.err
		case <-o.wake:
		case <-ticker.C:
			ticker.Next()
			tick = true
		case <-beat.C:
			beat.Next()
			beats = true
			if _, err := o.out.Write(appendBeat(o.out.AvailableBuffer())); err != nil {
				return err
			}
		case <-pace.C:
		}
		if err := o.sendClock(beats); err != nil {
			return err
		}
		if o.addAllowance(); o.allowance > 0 {
			for _, s := range o.throttled {
				s.markDirty()
			}
			clear(o.throttled)
			o.throttled = o.throttled[:0]
			fetches, o.throttledFetches = append(fetches, o.throttledFetches...), nil
		}
		for {
			o.mu.Lock()
			answers, o.answers = o.answers, answers[:0]
			dirty, o.dirty = o.dirty, dirty[:0]
			probes, o.probes = o.probes, probes[:0]
			fetches, o.fetches = append(fetches, o.fetches...), nil
			if tick {
				highs, o.highs = o.highs, highs[:0]
			}
			o.mu.Unlock()
			if len(answers) == 0 && len(dirty) == 0 && len(highs) == 0 && len(fetches) == 0 &&
				len(probes) == 0 {
				break
			}
			if _, err := o.out.Write(answers); err != nil {
				return err
			}
			if cap(answers) > keptAnswers {
				answers = nil
			}
			for i, s := range probes { // before data, which may take a while
				if err := s.probe(); err != nil {
					return err
				}
				probes[i] = nil
			}
			for i, s := range dirty {
				s.dirty.Store(false)
				if err := s.turn(); err != nil {
					return err
				}
				dirty[i] = nil
			}
			for _, q := range fetches {
				if err := o.answerFetch(q); err != nil {
					return err
				}
			}
			fetches = nil
			for i, s := range highs {
				s.highDue.Store(false)
				if err := s.sendHigh(); err != nil {
					return err
				}
				highs[i] = nil
			}
			tick, highs = false, highs[:0]
		}
		if err := o.out.Flush(); err != nil {
			return err
		}
		if len(o.throttled)+len(o.throttledFetches) > 0 {
			pace.Reset(paceTick)
		}
	}
}

// keptAnswers is the largest buffer of answers that is kept for reuse, in bytes.
const keptAnswers = 64 << 10

// addAllowance adds to the allowance, up to a tenth of a second's worth.
func (o *followerConn) addAllowance() {
	now := time.Now()
	o.allowance = min(o.allowance+int(now.Sub(o.paced).Seconds()*catchUpRate), catchUpRate/10)
	o.paced = now
}

// turn sends one turn of each log.
func (s *stream) turn() error {
	if s.gone.Load() {
		return nil
	}
	more := false
	for p := range Parts {
		m, err := s.send(p)
		if err != nil {
			return err
		}
		more = more || m
	}
	if more {
		s.markDirty()
	}
	return nil
}

// extent returns the readable end of a log, and the end of what is promised.
func (l *Leading) extent(p Part) (appended, promised uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.appended[p], l.promised[p]
}

func (l *Leading) marks() (m marks) {
	for p := range Parts {
		m.high[p], m.start[p] = l.high[p].Load(), l.start[p].Load()
	}
	return m
}

// full reports whether the window is full.
func (s *stream) full(p Part) bool {
	acked := s.acked[p].Load()
	return s.sent[p] > acked && int(s.sent[p]-acked)*s.weight[p]>>8 >= windowBytes
}

// send sends one turn of one log, and reports whether there is more. An error ends the connection.
func (s *stream) send(p Part) (more bool, err error) {
	appended, promised := s.l.extent(p)
	if s.next[p] >= appended {
		return false, nil
	}
	if s.full(p) {
		s.blocked.Store(true)
		if s.full(p) || !s.blocked.Swap(false) {
			return false, nil
		}
	}
	o := s.conn
	lacked := s.next[p] < s.goal[p]
	if lacked && o.allowance <= 0 {
		o.throttled = append(o.throttled, s)
		return false, nil
	}
	c := s.cursor[p]
	o.memory = c.Lend(o.memory)
	defer func() { o.memory = c.Lend(o.memory) }()
	v, readErr := s.l.read(c)
	if readErr != nil {
		if !s.gone.Load() {
			o.x.warnThrottled(fmt.Sprintf("read %s %d", s.l.config.Topic, s.l.config.ID.Shard),
				"Could not read what a follower lacks", "follower", o.broker,
				"topic_id", s.l.config.Topic, "shard", s.l.config.ID.Shard, "part", p.String(), "error", readErr)
		}
		s.l.stuck(s, p, readErr)
		s.end(readErr.Error())
		return false, nil
	}
	defer v.Release()
	if v.End > appended || v.End > promised {
		appended, promised = s.l.extent(p) // the last append was promised after it was counted
	}
	d := data{stream: s.id, part: p, marks: s.l.marks()}
	sent := func(size int, count, end uint64) {
		if d.promised {
			s.sent[p] = end
		}
		weight := size << 8 / int(end-s.next[p])
		if s.weight[p] == 0 {
			s.weight[p] = weight
		}
		s.weight[p] += (weight - s.weight[p]) / 8
		s.next[p], s.sentMarks = end, d.marks
		o.x.counters.outBytes.Add(uint64(size))
		o.x.counters.outBatches.Add(count)
		if lacked {
			o.allowance -= size
			o.x.counters.catchUpBytes.Add(uint64(size))
		}
	}
	ahead := v
	if b, ok := ahead.Next(); ok && b.Base() < s.next[p] && b.End() <= appended {
		// Compaction merged several batches into this one, and the follower's log ends within it.
		if b, err = b.From(s.next[p]); err != nil {
			s.end(err.Error())
			return false, nil
		}
		d.promised = b.End() <= promised
		if _, err := o.out.Write(appendDataHeader(o.out.AvailableBuffer(), &d, len(b))); err != nil {
			return false, err
		}
		if _, err := o.out.Write(b); err != nil {
			return false, err
		}
		sent(len(b), 1, b.End())
		v = ahead
	}
	for {
		// Promised batches and others do not share a frame.
		piece := v
		size, count, end := 0, uint64(0), s.next[p]
		for ahead := v; ; count++ {
			b, ok := ahead.Next()
			if !ok || b.End() > appended || size > 0 && (b.End() <= promised) != d.promised {
				break
			}
			if b.Base() != end {
				s.end(fmt.Sprintf("a batch from offset %d stands where %d is due", b.Base(), end))
				return false, nil
			}
			d.promised = b.End() <= promised
			size, end = size+len(b), b.End()
			v = ahead
		}
		if size == 0 {
			break
		}
		if _, err := o.out.Write(appendDataHeader(o.out.AvailableBuffer(), &d, size)); err != nil {
			return false, err
		}
		for range count {
			b, _ := piece.Next()
			if _, err := o.out.Write(b); err != nil {
				return false, err
			}
		}
		sent(size, count, end)
	}
	if c.Next() != s.next[p] {
		c.Seek(s.next[p])
	}
	return s.next[p] < appended, nil
}

// read reads a log that is led.
func (l *Leading) read(c *log.Cursor) (log.View, error) {
	l.use.RLock()
	defer l.use.RUnlock()
	if l.ended.Load() {
		return log.View{}, log.ErrClosed
	}
	v, err := c.Read(turnBytes)
	if err != nil {
		l.unreadable(err)
	}
	return v, err
}

// unreadable reports why a log cannot be read. It is in use.
func (l *Leading) unreadable(err error) {
	if l.config.Unreadable != nil {
		l.config.Unreadable(err)
	}
}

// end ends the stream. Its follower asks again.
func (s *stream) end(why string) {
	s.l.mu.Lock()
	defer s.l.mu.Unlock()
	s.l.refuse(s, why)
}

// sendHigh sends the watermarks and starts, unless they were sent already.
func (s *stream) sendHigh() error {
	m := s.l.marks()
	if s.gone.Load() || m == s.sentMarks {
		return nil
	}
	s.sentMarks = m
	_, err := s.conn.out.Write(appendHigh(s.conn.out.AvailableBuffer(), s.id, &m))
	return err
}
