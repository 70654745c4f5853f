package topic

import (
	"container/list"
	"math"
	"sync"
	"time"

	"github.com/carillon-mq/carillon/broker/forward"
	"github.com/carillon-mq/carillon/broker/protocol"
	"github.com/carillon-mq/carillon/broker/publish"
)

// sender brings what is published on this broker to the leader of one shard, whichever broker that is,
// this one included. Each message gets a number and stays in the outbox until the leader has answered.
//
// A leader on this broker is called directly, with the bytes of the outbox. That is the only
// difference from a leader on another one: the same numbers, rounds and answers.
type sender struct {
	shard *Shard
	fw    *forwards

	// order is held from giving messages their numbers until they are on their way, so that a leader
	// meets them in the order of their numbers. It comes before mu. No answer takes it.
	order sync.Mutex
	here  arrival // messages on their way to this broker's own leader; guarded by order

	mu       sync.Mutex
	box      forward.Outbox
	bytes    int // of box as they are counted in fw
	messages int
	listed   *list.Element // in fw.active; nil: it is not there
	to       *Link
	epoch    uint64
	round    uint32
	broken   bool          // the messages of this round have to go again
	patience time.Duration // after which the publisher of an unanswered message gets an error
	rest     time.Time
	pause    time.Duration
	head     []byte
}

// sender returns the shard's sender. The first publish makes it.
func (p *Shard) sender() *sender {
	if f := p.out.Load(); f != nil {
		return f
	}
	f := &sender{shard: p, fw: &p.topic.service.forwards, box: forward.NewOutbox(), patience: forward.OutboxTime}
	if !p.out.CompareAndSwap(nil, f) {
		return p.out.Load()
	}
	return f
}

// publish brings messages to the leader, behind all earlier ones.
func (f *sender) publish(v *view, messages []protocol.Message) (behind bool) {
	size := 0
	for i := range messages {
		size += forward.LetterSize(&messages[i])
	}
	f.order.Lock()
	defer f.order.Unlock()
	f.mu.Lock()
	if why := f.refuses(v); why != nil {
		f.mu.Unlock()
		in := intakes.Get().(*intake)
		in.refuseAll(f.shard, v, messages, why)
		in.finish(f.fw.service)
		return false
	}
	now, at := time.Now(), forward.Mono()
	f.box.Expect(size)
	for i := range messages {
		if v.keeps(messages[i].Subject) {
			f.box.Add(&messages[i], at)
		}
	}
	behind = f.pump(v, now)
	if f.account(); f.listed == nil && !f.box.Empty() {
		f.list()
	}
	f.mu.Unlock()
	f.deliver()
	return behind || f.fw.full()
}

// refuses returns why no message can be accepted now, or nil. mu is held.
func (f *sender) refuses(v *view) error {
	switch to := f.target(v); {
	case v.gone, v.unsupported != "", v.shard == nil, f.fw.service.closing.Load(), to == nil && len(v.shard.Replicas) < 2:
		return f.shard.refusal()
	case f.fw.bytes.Load() > 2*outboxBytes, f.fw.messages.Load() > 2*outboxMessages, to == nil && (f.box.Bytes > outboxUnled || f.fw.full()):
		f.fw.refused.Add(1)
		return &publish.OutboxFullError{Topic: f.shard.topic.name, Why: "more waits for its leader's answers than this broker keeps"}
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

// pump sends what is due: with another leader, epoch or link all unanswered messages, then new ones.
// Messages for a leader on this broker wait in here for deliver. order and mu are held.
func (f *sender) pump(v *view, now time.Time) (behind bool) {
	to := f.target(v)
	if to == nil {
		f.to = nil
		return false
	}
	if other := to != f.to || f.epoch != v.epoch; other || f.broken {
		if !other && now.Before(f.rest) {
			return false
		}
		if _, at, some := f.box.Oldest(); some && at < forward.Mono()-int64(f.patience) {
			f.to = nil
			f.fw.poke() // look fails it first: leaders don't remember a source for long enough to know it again
			return false
		}
		if other {
			f.pause = 0
		}
		f.to, f.epoch, f.broken = to, v.epoch, false
		f.round++
		f.fw.resent.Add(uint64(f.box.Begin()))
	}
	for {
		first, count, letters := f.box.Run()
		if count == 0 {
			return behind
		}
		if to == f.fw.self {
			f.gather(first, letters)
			continue
		}
		f.head = forward.AppendFrameHead(f.head[:0], forward.FrameRun, f.shard.topic.id, f.shard.number, f.fw.source, f.round)
		f.head = forward.AppendRunHead(f.head, f.epoch, first, f.box.First, f.box.Ever)
		behind = to.out.Carry(f.head, letters) || behind
	}
}

// gather puts letters into here. They stay valid until deliver returns: only an answer, or fail, which takes
// order, frees a letter. order and mu are held.
func (f *sender) gather(first uint64, letters []byte) {
	a := &f.here
	if len(a.messages) == 0 {
		*a = arrival{shard: f.shard, source: f.fw.source, round: f.round, epoch: f.epoch, first: first, next: first,
			floor: f.box.First, below: f.box.Ever, messages: a.messages}
	}
	_ = a.read(letters) // Outbox wrote them
}

// deliver hands the gathered messages to the leader on this broker. order is held.
func (f *sender) deliver() {
	a := &f.here
	if len(a.messages) == 0 {
		return
	}
	f.shard.arrive(f.fw.self, a)
	clear(a.messages)
	a.messages = a.messages[:0]
}

// account updates the service's totals. mu is held.
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

// list has the service look at the outbox in intervals. mu is held.
func (f *sender) list() {
	fw := f.fw
	fw.mu.Lock()
	f.listed = fw.active.PushBack(f)
	first := fw.active.Len() == 1
	fw.mu.Unlock()
	if first {
		fw.poke()
	}
}

// look does what no publish and no answer triggers: it follows a change of leader, sends again after a rest,
// and fails messages that are too old.
func (f *sender) look(now time.Time) {
	v := f.shard.view.Load()
	if v.gone {
		f.fail(math.MaxInt64, &publish.NotServedError{Topic: f.shard.topic.name, Reason: publish.BeingDeleted, Why: "it is being deleted"})
	}
	f.order.Lock()
	f.mu.Lock()
	f.pump(v, now)
	_, at, some := f.box.Oldest()
	old := some && at < forward.Mono()-int64(f.patience)
	if !some && f.listed != nil {
		f.fw.mu.Lock()
		f.fw.active.Remove(f.listed)
		f.fw.mu.Unlock()
		f.listed = nil
	}
	f.account()
	f.mu.Unlock()
	f.deliver()
	f.order.Unlock()
	if old {
		f.expire()
	}
}

// expire fails the messages that no leader has answered in time.
func (f *sender) expire() {
	why := f.shard.whyNot()
	text := "its leader doesn't answer"
	if why != nil {
		text = why.Why
	}
	f.mu.Lock()
	before := forward.Mono() - int64(f.patience)
	f.mu.Unlock()
	f.fail(before, &publish.LeadershipLostError{Topic: f.shard.topic.name, Why: text})
}

// fail answers the messages that came before a time: with lost if a leader may have them, and otherwise with
// the reason why none does.
func (f *sender) fail(before int64, lost error) {
	in := intakes.Get().(*intake)
	v, unsent := f.shard.view.Load(), f.shard.refusal()
	var done settled
	f.order.Lock() // no leader on this broker reads them now
	f.mu.Lock()
	for {
		seq, at, ok := f.box.Oldest()
		if !ok || at >= before {
			break
		}
		err := unsent
		if f.box.Went(seq) {
			err = lost
		}
		m, c, _ := f.box.Settle(seq)
		done.add(f, c)
		f.fw.failed.Add(1)
		in.refuse(f.shard, v, m.Reply, err)
	}
	f.mu.Unlock()
	f.order.Unlock()
	in.finish(f.fw.service) // before the replies, which stand in the chunks, are freed
	done.free()
}

// again begins another round after a leader did not take all messages, or when it is ready for them.
func (f *sender) again(round uint32, ready bool) {
	f.mu.Lock()
	switch {
	case ready:
		f.rest, f.pause = time.Time{}, 0
	case round == f.round && !f.broken:
		f.pause = min(max(2*f.pause, againFirst), againLast)
		f.broken, f.rest = true, time.Now().Add(f.pause)
	}
	f.mu.Unlock()
	f.fw.poke()
}

// answered takes a leader's answers of a round. Replies go to out, and the chunks that they stand in to done:
// they are valid until done.free.
func (f *sender) answered(round uint32, data []byte, out *publish.Replies, done *settled) error {
	noAck := f.shard.view.Load().noAck
	f.mu.Lock()
	defer f.mu.Unlock()
	f.pause = 0
	for len(data) > 0 {
		a, rest, err := forward.ParseAnswer(data)
		if err != nil {
			return err
		}
		data = rest
		if a.Kind == forward.ItemRefused && round != f.round {
			continue // its leader may have been deposed: the message goes again
		}
		last := min(a.Seq+a.Count, f.box.Next())
		for seq := max(a.Seq, f.box.First); seq < last; seq++ {
			m, c, ok := f.box.Settle(seq)
			if !ok {
				continue
			}
			done.add(f, c)
			switch {
			case len(m.Reply) == 0 || noAck:
			case a.Kind == forward.ItemRefused:
				if len(a.Refusal) > 0 {
					out.Encoded(m.Reply, a.Refusal)
				}
			default:
				out.Ack(f.fw.service.config.Codec, m.Reply, f.shard.name, a.Offset+seq-a.Seq, a.Records, a.Duplicate)
			}
		}
	}
	return nil
}

// settled are the chunks of answered messages, to be freed once the answers have been sent.
type settled struct{ chunks []settledChunk }

type settledChunk struct {
	by *sender
	in *forward.Chunk
}

func (d *settled) add(by *sender, in *forward.Chunk) {
	d.chunks = append(d.chunks, settledChunk{by, in})
}

// free returns the chunks to their outboxes. No sender's mu is held.
func (d *settled) free() {
	for i := 0; i < len(d.chunks); {
		f := d.chunks[i].by
		f.mu.Lock()
		for ; i < len(d.chunks) && d.chunks[i].by == f; i++ {
			f.box.Free(d.chunks[i].in)
		}
		f.account()
		f.mu.Unlock()
	}
	clear(d.chunks)
	d.chunks = d.chunks[:0]
}

// loopback is the way from this broker to the shards that it leads: answers and signals of their leaders
// reach its senders directly. Messages don't travel on it: deliver calls the leader.
type loopback struct{ link *Link }

func (b *loopback) Carry(parts ...[]byte) (behind bool) {
	var buf [128]byte
	frame := buf[:0]
	for _, part := range parts {
		frame = append(frame, part...)
	}
	h, rest, err := forward.ParseFrameHead(frame)
	if err != nil {
		return false // this broker's own frames are well-formed
	}
	s := b.link.service
	t := s.ByID(string(h.Topic))
	if t == nil || h.Shard >= len(t.shards) {
		return false // deleted meanwhile; its sender fails what it holds
	}
	f := t.shards[h.Shard].sender()
	switch h.Kind {
	case forward.FrameAnswers:
		var out publish.Replies
		var done settled
		_ = f.answered(h.Round, rest, &out, &done)
		if len(out.Messages) > 0 {
			s.config.Hub.Send(out.Messages)
		}
		done.free()
	case forward.FrameAgain, forward.FrameReady:
		f.again(h.Round, h.Kind == forward.FrameReady)
	}
	return false
}

func (b *loopback) Wait() {}
