package replica

import (
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/carillon-mq/carillon/broker/coordination"
	"github.com/carillon-mq/carillon/broker/log"
)

// outlet is a leader's end of a connection: what one follower broker copies from here.
type outlet struct {
	connection
	probed bool // the follower's program answers probes

	mu      sync.Mutex
	ended   bool
	answers []byte // frames
	dirty   []*stream
	highs   []*stream       // whose watermark or start moved
	probes  []*stream       // that a barrier round waits for
	refused map[ID]question // that were perhaps asked too soon
	fetches []*fetch
	streams map[uint32]*stream // the reader's

	// The reader's.
	now   time.Duration
	moved []*Leading

	// The writer's.
	memory    []byte // that cursors read files into
	later     []*stream
	unpaid    []*fetch // that wait for the allowance, as later does
	allowance int      // bytes of what followers lack that may be sent now
	paced     time.Time
}

// stream is one shard on an outlet, joined.
type stream struct {
	out       *outlet
	id, round uint32
	from      coordination.Replica
	l         *Leading

	gone    atomic.Bool // it ended, or another one took its place
	dirty   atomic.Bool // it is in outlet.dirty
	highDue atomic.Bool // it is in outlet.highs
	probing atomic.Bool // it is in outlet.probes
	blocked atomic.Bool // the window is full: an ack makes it dirty
	acked   [Parts]atomic.Uint64

	// The writer's.
	cursor [Parts]*log.Cursor
	next   [Parts]uint64 // up to where it was sent
	goal   [Parts]uint64 // up to where the log was when it was asked for
	sent   [Parts]uint64 // up to where an ack is due
	weight [Parts]int    // of a record, in 256ths of a byte, about
	told   marks
}

// Serve copies shards that are led here to another broker, which opened conn to follow them. It returns when conn
// has ended, and closes it.
func (x *Exchange) Serve(conn net.Conn, broker string) {
	o := &outlet{refused: make(map[ID]question), streams: make(map[uint32]*stream)}
	o.init(x, conn, broker)
	o.probed = announces(conn, coordination.FeatureBarrier)
	x.mu.Lock()
	if x.closed {
		x.mu.Unlock()
		o.fail(errClosing)
		return
	}
	before := x.outlets[broker]
	x.outlets[broker] = o
	x.workers.Add(1)
	x.mu.Unlock()
	defer x.workers.Done()
	if before != nil {
		before.fail(errReplaced)
	}
	x.log.Debug("Follower connected", "broker", broker)
	var writer sync.WaitGroup
	writer.Go(func() { o.fail(o.write()) })
	o.fail(o.read(newReader(conn, askBuffer, maxAsk), o.handle, o.settle))
	writer.Wait()
	o.mu.Lock()
	o.ended = true
	o.answers, o.dirty, o.highs, o.probes, o.refused, o.fetches = nil, nil, nil, nil, nil, nil
	o.mu.Unlock()
	x.mu.Lock()
	if x.outlets[broker] == o {
		delete(x.outlets, broker)
	}
	x.mu.Unlock()
	for _, s := range o.streams {
		s.l.part(s)
	}
	x.ended(&o.connection, "follower")
}

// ended logs how a connection ended.
func (x *Exchange) ended(c *connection, peer string) {
	if _, bad := c.err.(*garbageError); bad {
		x.complain("garbage from "+c.broker, "Ended a replication connection for what came over it", peer, c.broker, "error", c.err)
		return
	}
	x.log.Debug("Replication connection ended", peer, c.broker, "error", c.err)
}

// handle takes one frame of the follower.
func (o *outlet) handle(t frameType, body []byte) error {
	switch t {
	case frameBeat:
	case frameClock:
		return o.hearClock(body)
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
			return &garbageError{err}
		}
		return o.ask(a)
	case frameFetch:
		q, err := parseFetch(body)
		if err != nil {
			return &garbageError{err}
		}
		return o.fetch(q)
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

// settle is called when all that has come is handled: who leads is told once for all of it.
func (o *outlet) settle() {
	for i, l := range o.moved {
		l.tell()
		o.moved[i] = nil
	}
	o.moved, o.now = o.moved[:0], 0
}

func (o *outlet) acked(id uint32, p Part, safe uint64) {
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
		o.hasMoved(s.l)
	}
	if s.blocked.Load() && s.blocked.Swap(false) {
		s.mark()
	}
}

// hasMoved has settle tell who leads.
func (o *outlet) hasMoved(l *Leading) {
	if len(o.moved) == 0 || o.moved[len(o.moved)-1] != l {
		o.moved = append(o.moved, l)
	}
}

// confirmed takes a follower's confirmation of a barrier round. One of an earlier asking, or of another epoch, came too late.
func (o *outlet) confirmed(p *probe) {
	s := o.streams[p.stream]
	if s != nil && s.round == p.round && s.l.epoch == p.epoch && s.l.confirm(s, p.number) {
		o.hasMoved(s.l)
	}
}

func (o *outlet) leave(id uint32) {
	if s := o.streams[id]; s != nil {
		delete(o.streams, id)
		s.l.part(s)
	}
}

func (o *outlet) ask(a *ask) error {
	x := o.x
	x.counters.inAsks.Add(1)
	before := o.streams[a.stream]
	if before == nil && len(o.streams) >= maxStreams {
		return garbage("more than %d streams", maxStreams)
	}
	delete(o.streams, a.stream)
	l, epoch, why, soon := x.asked(a.ID, a.epoch)
	var s *stream
	if why == "" {
		s, why = l.ask(o, a)
	}
	if s != nil {
		o.streams[a.stream] = s
	}
	if before != nil {
		before.l.part(before) // Of the same shard the new one has taken its place already, if it joined.
	}
	if why != "" {
		o.refuse(&a.question, epoch, why, soon)
	}
	return nil
}

// asked is the shard as it is led here, or why it isn't in that epoch, and whether it may be soon.
func (x *Exchange) asked(id ID, in int64) (l *Leading, epoch int64, why string, soon bool) {
	l, epoch = x.leading(id)
	switch {
	case l == nil:
		why, soon = "this broker doesn't lead it", epoch <= in
	case l.epoch != in:
		why, soon = fmt.Sprintf("this broker leads it in epoch %d, not %d", l.epoch, in), epoch < in
	}
	return l, epoch, why, soon
}

// refuse answers a question, and remembers one that may only have come too soon.
func (o *outlet) refuse(q *question, epoch int64, why string, soon bool) {
	o.x.counters.refused.Add(1)
	o.mu.Lock()
	if soon && !o.ended && len(o.refused) < maxStreams {
		o.refused[q.ID] = *q
	}
	o.mu.Unlock()
	o.answer(appendRefusal(nil, &refusal{stream: q.stream, round: q.round, epoch: epoch, why: why}))
	if l, _ := o.x.leading(q.ID); soon && l != nil {
		o.come(q.ID, l.epoch) // It may have begun to lead it just now, and found nobody to call.
	}
}

// come calls a follower that asked for a shard before it was led here.
func (o *outlet) come(id ID, epoch int64) {
	o.mu.Lock()
	q, ok := o.refused[id]
	if ok = ok && q.epoch == epoch; ok {
		delete(o.refused, id)
	}
	o.mu.Unlock()
	if ok {
		o.answer(appendCome(nil, q.stream, q.round))
	}
}

// answer queues frames that go before anything else.
func (o *outlet) answer(frames []byte) {
	o.mu.Lock()
	if !o.ended {
		o.answers = append(o.answers, frames...)
	}
	much := len(o.answers) > maxAnswers
	o.mu.Unlock()
	if much {
		o.fail(garbage("it asks and asks, and doesn't read the answers"))
	}
	o.signal()
}

// mark says that there is something to send.
func (s *stream) mark() {
	if s.dirty.Load() || s.dirty.Swap(true) {
		return
	}
	o := s.out
	o.mu.Lock()
	if !o.ended {
		o.dirty = append(o.dirty, s)
	}
	o.mu.Unlock()
	o.signal()
}

// markHigh says that the watermark or the start moved. If there is nothing else to send, it is told at the next tick.
func (s *stream) markHigh() {
	if s.highDue.Load() || s.highDue.Swap(true) {
		return
	}
	o := s.out
	o.mu.Lock()
	if !o.ended {
		o.highs = append(o.highs, s)
	}
	o.mu.Unlock()
}

// markProbe asks the follower for the newest barrier round, unless it is confirmed or the follower can't be asked.
func (s *stream) markProbe() {
	if !s.out.probed || s.l.round.Load() == s.l.confirmed.Load() || s.probing.Swap(true) {
		return
	}
	o := s.out
	o.mu.Lock()
	if !o.ended {
		o.probes = append(o.probes, s)
	}
	o.mu.Unlock()
	o.signal()
}

// probe sends the question for the newest round, which stands for all before it.
func (s *stream) probe() error {
	s.probing.Store(false)
	if s.gone.Load() {
		return nil
	}
	p := probe{stream: s.id, round: s.round, epoch: s.l.epoch, number: s.l.round.Load()}
	_, err := s.out.out.Write(appendProbe(s.out.out.AvailableBuffer(), frameProbe, &p))
	return err
}

// write sends what there is, until the connection ends.
func (o *outlet) write() error {
	ticker := time.NewTicker(highTick)
	defer ticker.Stop()
	pace := time.NewTimer(time.Hour)
	defer pace.Stop()
	var answers []byte
	var dirty, highs, probes []*stream
	var fetches []*fetch
	o.paced, o.allowance = time.Now(), catchUpRate/10
	beaten := o.paced.Add(-beatEvery)
	for {
		tick, beats := false, false
		select {
		case <-o.stop:
			return o.err
		case <-o.wake:
		case <-ticker.C:
			tick = true
			if now := time.Now(); now.Sub(beaten) >= beatEvery-highTick/2 {
				beaten, beats = now, true
				if _, err := o.out.Write(appendBeat(o.out.AvailableBuffer())); err != nil {
					return err
				}
			}
		case <-pace.C:
		}
		if err := o.sayClock(beats); err != nil {
			return err
		}
		if o.earn(); o.allowance > 0 {
			for _, s := range o.later {
				s.mark()
			}
			clear(o.later)
			o.later = o.later[:0]
			fetches, o.unpaid = append(fetches, o.unpaid...), nil
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
			if len(answers) == 0 && len(dirty) == 0 && len(highs) == 0 && len(fetches) == 0 && len(probes) == 0 {
				break
			}
			if _, err := o.out.Write(answers); err != nil {
				return err
			}
			if cap(answers) > keptAnswers {
				answers = nil
			}
			for i, s := range probes { // before what may take a while
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
				if err := s.sayHigh(); err != nil {
					return err
				}
				highs[i] = nil
			}
			tick, highs = false, highs[:0]
		}
		if err := o.out.Flush(); err != nil {
			return err
		}
		if len(o.later)+len(o.unpaid) > 0 {
			pace.Reset(paceTick)
		}
	}
}

// keptAnswers is how large a buffer of answers may have grown and still be kept.
const keptAnswers = 64 << 10

// earn adds to what may be sent of what followers lacked, a tenth of a second's worth at most.
func (o *outlet) earn() {
	now := time.Now()
	o.allowance = min(o.allowance+int(now.Sub(o.paced).Seconds()*catchUpRate), catchUpRate/10)
	o.paced = now
}

// turn sends what fits one turn of each log.
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
		s.mark()
	}
	return nil
}

// extent is up to where a log may be read, and up to where that is promised.
func (l *Leading) extent(p Part) (grown, promised uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.grown[p], l.promised[p]
}

func (l *Leading) marks() (m marks) {
	for p := range Parts {
		m.high[p], m.start[p] = l.high[p].Load(), l.start[p].Load()
	}
	return m
}

// full says whether about as much is on its way as may be.
func (s *stream) full(p Part) bool {
	acked := s.acked[p].Load()
	return s.sent[p] > acked && int(s.sent[p]-acked)*s.weight[p]>>8 >= windowBytes
}

// send sends one turn of one log, and says whether there is more. An error is one of the connection.
func (s *stream) send(p Part) (more bool, err error) {
	grown, promised := s.l.extent(p)
	if s.next[p] >= grown {
		return false, nil
	}
	if s.full(p) {
		s.blocked.Store(true)
		if s.full(p) || !s.blocked.Swap(false) {
			return false, nil
		}
	}
	o := s.out
	lacked := s.next[p] < s.goal[p]
	if lacked && o.allowance <= 0 {
		o.later = append(o.later, s)
		return false, nil
	}
	c := s.cursor[p]
	o.memory = c.Lend(o.memory)
	defer func() { o.memory = c.Lend(o.memory) }()
	v, readErr := s.l.read(c)
	if readErr != nil {
		if !s.gone.Load() {
			o.x.complain(fmt.Sprintf("read %s %d", s.l.config.Topic, s.l.config.ID.Shard), "Could not read what a follower lacks", "follower", o.broker,
				"topic_id", s.l.config.Topic, "shard", s.l.config.ID.Shard, "part", p.String(), "error", readErr)
		}
		s.end(readErr.Error())
		return false, nil
	}
	defer v.Release()
	if v.End > grown || v.End > promised {
		grown, promised = s.l.extent(p) // What was appended last was promised afterwards.
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
		s.next[p], s.told = end, d.marks
		o.x.counters.outBytes.Add(uint64(size))
		o.x.counters.outBatches.Add(count)
		if lacked {
			o.allowance -= size
			o.x.counters.catchUpBytes.Add(uint64(size))
		}
	}
	ahead := v
	if b, ok := ahead.Next(); ok && b.Base() < s.next[p] && b.End() <= grown {
		// Compaction has made one of several, and the follower ends within it.
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
		// Batches that are promised and others don't share a frame.
		piece := v
		size, count, end := 0, uint64(0), s.next[p]
		for ahead := v; ; count++ {
			b, ok := ahead.Next()
			if !ok || b.End() > grown || size > 0 && (b.End() <= promised) != d.promised {
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
	return s.next[p] < grown, nil
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

// unreadable says why a log can't be read. It is in use.
func (l *Leading) unreadable(err error) {
	if l.config.Unreadable != nil {
		l.config.Unreadable(err)
	}
}

// end ends the stream: its follower is to ask again.
func (s *stream) end(why string) {
	s.l.mu.Lock()
	defer s.l.mu.Unlock()
	s.l.refuse(s, why)
}

// sayHigh tells the watermarks and starts, if they aren't told already.
func (s *stream) sayHigh() error {
	m := s.l.marks()
	if s.gone.Load() || m == s.told {
		return nil
	}
	s.told = m
	_, err := s.out.out.Write(appendHigh(s.out.out.AvailableBuffer(), s.id, &m))
	return err
}
