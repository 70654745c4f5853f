package topic

import (
	"github.com/carillon-mq/carillon/broker/forward"
	"math"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/carillon-mq/carillon/broker/protocol"
)

// Carrier is the way to another broker's Topics.
type Carrier interface {
	// Carry queues a frame, of parts that stand one behind the other. It copies them and never blocks. behind asks publishers to Wait.
	Carry(parts ...[]byte) (behind bool)
	// Wait blocks while the way is behind; it returns when it is cut.
	Wait()
}

// forwards is this broker's part as one that publishers of other brokers' shards are connected to.
type forwards struct {
	service  *Service
	source   uint64 // this process, for leaders
	self     *Link  // to what is led here, for what was to go elsewhere
	wake     chan struct{}
	bytes    atomic.Int64
	messages atomic.Int64
	waiting  atomic.Int32 // publishers that wait for room

	resent, deduplicated, failed, refused atomic.Uint64

	mu     sync.Mutex
	room   *sync.Cond
	links  map[string]*Link // by broker
	active map[*sender]struct{}
	closed bool
}

func (fw *forwards) init(s *Service) {
	fw.service, fw.source, fw.wake = s, rand.Uint64()|1, make(chan struct{}, 1)
	fw.room = sync.NewCond(&fw.mu)
	fw.links, fw.active = map[string]*Link{}, map[*sender]struct{}{}
	around := &roundabout{wake: make(chan struct{}, 1)}
	fw.self = &Link{service: s, broker: s.config.Self, out: around}
	s.running.Go(func() { around.run(s.ctx.Done(), fw.self) })
	s.running.Go(fw.run)
}

func (fw *forwards) poke() {
	select {
	case fw.wake <- struct{}{}:
	default:
	}
}

// link is the way to a broker, or nil.
func (fw *forwards) link(broker string) *Link {
	fw.mu.Lock()
	defer fw.mu.Unlock()
	return fw.links[broker]
}

// run sees to what no publisher and no answer does: other leaders and links, rests that end, and messages that are too old.
func (fw *forwards) run() {
	timer := time.NewTimer(outboxTick)
	defer timer.Stop()
	var active []*sender
	for {
		select {
		case <-fw.service.ctx.Done():
			return
		case <-fw.wake:
		case <-timer.C:
		}
		fw.mu.Lock()
		active = active[:0]
		for f := range fw.active {
			active = append(active, f)
		}
		fw.mu.Unlock()
		now := time.Now()
		for _, f := range active {
			f.look(now)
		}
		clear(active)
		if len(active) > 0 {
			timer.Reset(outboxTick)
		} else {
			timer.Stop()
		}
	}
}

// wait blocks while too much is forwarded and not answered.
func (fw *forwards) wait() {
	if !fw.full() {
		return
	}
	fw.mu.Lock()
	defer fw.mu.Unlock()
	fw.waiting.Add(1)
	defer fw.waiting.Add(-1)
	for fw.full() && !fw.closed {
		fw.room.Wait()
	}
}

// waitLink blocks while the way to the shard's leader is behind.
func (p *Shard) waitLink() {
	f := p.out.Load()
	if f == nil {
		return
	}
	f.mu.Lock()
	to := f.to
	f.mu.Unlock()
	switch {
	case to == nil:
	case to.out == nil:
		f.fw.service.config.Hub.Wait()
	default:
		to.out.Wait()
	}
}

func (fw *forwards) full() bool {
	return fw.bytes.Load() > outboxBytes || fw.messages.Load() > outboxMessages
}

func (fw *forwards) close() {
	fw.mu.Lock()
	fw.closed = true
	active := make([]*sender, 0, len(fw.active))
	for f := range fw.active {
		active = append(active, f)
	}
	fw.room.Broadcast()
	fw.mu.Unlock()
	for _, f := range active {
		f.fail(math.MaxInt64, f.stream.refusal())
	}
}

// sender forwards what is published here to the leader of one shard, wherever that is.
type sender struct {
	stream *Shard
	fw     *forwards
	quiet  atomic.Bool // nothing has to go before what is published to this broker as the leader

	mu       sync.Mutex
	box      forward.Outbox
	bytes    int // of box as they are counted in fw
	messages int
	listed   bool // in fw.active
	to       *Link
	epoch    uint64
	round    uint32
	broken   bool          // what went in this round has to go again
	patience time.Duration // after which a message's publisher is told that its fate isn't known
	rest     time.Time
	pause    time.Duration
	landed   uint64 // before which all was judged by this broker as the leader, in this round
	head     []byte
	direct   direct
}

// direct are the numbers of what this broker takes as the leader, without a way around, and has not answered yet.
type direct struct{ first, next uint64 }

func (d *direct) none() bool { return d.first == d.next }

// sender returns the shard's, which is made when something is to be forwarded first.
func (p *Shard) sender() *sender {
	if f := p.out.Load(); f != nil {
		return f
	}
	f := &sender{stream: p, fw: &p.topic.service.forwards, box: forward.NewOutbox(), patience: forward.OutboxTime}
	f.quiet.Store(true)
	if !p.out.CompareAndSwap(nil, f) {
		return p.out.Load()
	}
	return f
}

// forward has messages go to the leader, behind all that are not answered.
func (p *Shard) forward(v *view, messages []protocol.Message) (behind bool) {
	f := p.sender()
	fw := f.fw
	f.mu.Lock()
	if why := f.refuses(v); why != nil {
		f.mu.Unlock()
		in := intakes.Get().(*intake)
		if _, full := why.(*OutboxFullError); !full {
			why = p.refusal()
		}
		in.refuseAll(p, v, messages, why)
		in.finish(p.topic.service)
		return false
	}
	size := 0
	for i := range messages {
		size += forward.LetterSize(&messages[i])
	}
	now, at := time.Now(), forward.Mono()
	f.box.Expect(size)
	for i := range messages {
		if v.keeps(messages[i].Subject) {
			f.box.Add(&messages[i], at)
		}
	}
	behind = f.pump(v, now)
	if f.account(); !f.listed {
		f.list()
	}
	f.mu.Unlock()
	return behind || fw.full()
}

// refuses says why nothing more can be forwarded, or nothing. mu is held.
func (f *sender) refuses(v *view) error {
	to := f.target(v)
	switch {
	case to == nil && len(v.shard.Replicas) < 2:
		return &NotServedError{}
	case f.fw.bytes.Load() > 2*outboxBytes, f.fw.messages.Load() > 2*outboxMessages, to == nil && (f.box.Bytes > outboxUnled || f.fw.full()):
		f.fw.refused.Add(1)
		return &OutboxFullError{Topic: f.stream.topic.name, Why: "more waits for its leader's answers than this broker keeps"}
	}
	return nil
}

// target is the way to the leader, or nil. mu is held.
func (f *sender) target(v *view) *Link {
	switch {
	case v.gone || v.leader == "":
		return nil
	case v.leader == f.fw.self.broker:
		if v.lead {
			return f.fw.self
		}
		return nil
	case f.to != nil && f.to.broker == v.leader && !f.to.down.Load():
		return f.to
	}
	return f.fw.link(v.leader)
}

// pump sends what is to be sent now: all that is not answered, if there is another leader or another way there, and then what is new. mu is held.
func (f *sender) pump(v *view, now time.Time) (behind bool) {
	to := f.target(v)
	if to == nil || to != f.fw.self && !f.direct.none() { // what this broker took as the leader goes first
		f.to = nil
		f.hush()
		return false
	}
	if other := to != f.to || f.epoch != v.epoch; other || f.broken {
		if !other && now.Before(f.rest) {
			f.hush()
			return false
		}
		if other {
			f.pause = 0
		}
		f.to, f.epoch, f.broken, f.landed = to, v.epoch, false, 0
		f.round++
		f.fw.resent.Add(uint64(f.box.Begin()))
	}
	for {
		first, count, letters := f.box.Run()
		if count == 0 {
			break
		}
		if to.out == nil {
			f.forget(to, first, letters)
			behind = true
			continue
		}
		f.head = forward.AppendFrameHead(f.head[:0], forward.FrameRun, f.stream.topic.id, f.stream.number, f.fw.source, f.round)
		f.head = forward.AppendRunHead(f.head, f.epoch, first, f.floor(), f.box.Ever)
		behind = to.out.Carry(f.head, letters) || behind
	}
	f.hush()
	return behind
}

// forget sends letters to a broker that knows of no numbers: at most once, and it answers the publishers itself. mu is held.
func (f *sender) forget(to *Link, first uint64, letters []byte) {
	for seq := first; len(letters) > 0; seq++ {
		m, rest, ok := forward.ParseLetter(letters)
		if !ok {
			return // nothing else writes letters
		}
		if letters = rest; len(m.Subject) == 0 {
			continue
		}
		f.fw.service.config.Hub.Forward(to.broker, &m)
		if _, c, ok := f.box.Settle(seq); ok {
			f.box.Free(c)
		}
	}
}

// hush finds out whether this broker, if it leads, may take what comes without a way around. mu is held.
func (f *sender) hush() {
	f.quiet.Store(f.box.Empty() || f.to == f.fw.self && !f.broken && f.landed == f.box.Next())
}

// account counts what is held for all. mu is held.
func (f *sender) account() {
	fw, bytes, messages := f.fw, f.box.Bytes, int(f.box.Next()-f.box.First)
	if bytes != f.bytes {
		fw.bytes.Add(int64(bytes - f.bytes))
	}
	if messages != f.messages {
		fw.messages.Add(int64(messages - f.messages))
	}
	less := bytes < f.bytes || messages < f.messages
	f.bytes, f.messages = bytes, messages
	if less && fw.waiting.Load() > 0 && !fw.full() {
		fw.mu.Lock()
		fw.room.Broadcast()
		fw.mu.Unlock()
	}
}

// list has the outbox looked at. mu is held.
func (f *sender) list() {
	f.listed = true
	fw := f.fw
	fw.mu.Lock()
	fw.active[f] = struct{}{}
	first := len(fw.active) == 1
	fw.mu.Unlock()
	if first {
		fw.poke()
	}
}

// look sees to an outbox without anybody publishing.
func (f *sender) look(now time.Time) {
	v := f.stream.view.Load()
	if v.gone {
		f.fail(math.MaxInt64, &NotServedError{Topic: f.stream.topic.name, Reason: BeingDeleted, Why: "it is being deleted"})
	}
	f.mu.Lock()
	f.pump(v, now)
	_, at, some := f.box.Oldest()
	old := some && at < forward.Mono()-int64(f.patience)
	if !some && f.listed {
		f.listed = false
		f.fw.mu.Lock()
		delete(f.fw.active, f)
		f.fw.mu.Unlock()
	}
	f.account()
	f.mu.Unlock()
	if old {
		f.expire()
	}
}

// expire tells publishers that too much time went by.
func (f *sender) expire() {
	why := f.stream.whyNot()
	text := "its leader doesn't answer"
	if why != nil {
		text = why.Why
	}
	f.mu.Lock()
	before := forward.Mono() - int64(f.patience)
	f.mu.Unlock()
	f.fail(before, &LeadershipLostError{Topic: f.stream.topic.name, Why: text})
}

// fail refuses the messages that came before a time.
func (f *sender) fail(before int64, err error) {
	s := f.fw.service
	in := intakes.Get().(*intake)
	v := f.stream.view.Load()
	var freed []*forward.Chunk
	f.mu.Lock()
	for {
		seq, at, ok := f.box.Oldest()
		if !ok || at >= before {
			break
		}
		m, c, _ := f.box.Settle(seq)
		freed = append(freed, c)
		f.fw.failed.Add(1)
		in.refuse(f.stream, v, m.Reply, err)
	}
	f.hush()
	f.mu.Unlock()
	in.finish(s) // it copies the replies, which stand in what is freed
	f.mu.Lock()
	for _, c := range freed {
		f.box.Free(c)
	}
	f.account()
	f.mu.Unlock()
}

// again takes the word of a leader that didn't take everything, or that is ready for it now.
func (f *sender) again(round uint32, ready bool) {
	f.mu.Lock()
	switch {
	case ready:
		f.rest, f.pause = time.Time{}, 0
	case round == f.round && !f.broken:
		f.pause = min(max(2*f.pause, againFirst), againLast)
		f.broken, f.rest = true, time.Now().Add(f.pause)
		f.hush()
	}
	f.mu.Unlock()
	f.fw.poke()
}

// land notes that this broker, as the leader, has judged what went round to it.
func (f *sender) land(round uint32, next uint64) {
	f.mu.Lock()
	if round == f.round && !f.broken {
		f.landed = max(f.landed, next)
		f.hush()
	}
	f.mu.Unlock()
}

// roundabout is the way from this broker to itself, without holding up who uses it.
type roundabout struct {
	wake   chan struct{}
	mu     sync.Mutex
	frames [][]byte
}

func (r *roundabout) Carry(parts ...[]byte) (behind bool) {
	var frame []byte
	for _, part := range parts {
		frame = append(frame, part...)
	}
	r.mu.Lock()
	r.frames = append(r.frames, frame)
	r.mu.Unlock()
	select {
	case r.wake <- struct{}{}:
	default:
	}
	return false
}

func (r *roundabout) Wait() {}

func (r *roundabout) run(done <-chan struct{}, l *Link) {
	for {
		select {
		case <-done:
			return
		case <-r.wake:
		}
		r.mu.Lock()
		frames := r.frames
		r.frames = nil
		r.mu.Unlock()
		for _, frame := range frames {
			_ = l.Take(frame) // it is this broker's own
		}
		l.Flush()
	}
}
