package sender

import (
	"container/list"
	"errors"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/carillon-mq/carillon/broker/batching"
	"github.com/carillon-mq/carillon/broker/forward"
	"github.com/carillon-mq/carillon/broker/protocol"
	"github.com/carillon-mq/carillon/broker/publish"
)

// Sender brings what is published on this broker to the leader of one shard, whichever broker that
// is, this one included. Each message gets a number and stays in the outbox until the leader has
// answered.
//
// A leader on this broker is called directly, with the bytes of the outbox. That is the only
// difference from a leader on another one: the same numbers, rounds and answers.
type Sender struct {
	id     ID
	shard  Shard
	fw     *Senders
	source uint64 // for leaders

	lanes   atomic.Pointer[lanes] // beside this one; nil: there are none yet
	main    *Sender               // of which this one is a lane; nil: it is the main one
	settled atomic.Uint64         // all numbers below are answered, as of account
	awaited atomic.Uint64         // a lane waits until all numbers below are answered; 0: none does
	held    atomic.Int64          // bytes of the outboxes of the main sender and its lanes; the main one's
	own     tally                 // what its outbox holds; written under mu
	most    amount                // of own, beside what room says
	room    *room                 // that it shares with others
	party   atomic.Pointer[party] // in room; nil: it is not listed. Written under mu, and mu of room
	waiting int                   // publishers that wait for it; guarded by mu of room
	place   int                   // in waiters of party, from 1; 0: none. Guarded by mu of room
	eased   chan struct{}         // closed when they need not any more; guarded by mu of room

	// order is held from giving messages their numbers until they are on their way, so that a
	// leader meets them in the order of their numbers. It comes before mu. No answer takes it.
	order sync.Mutex
	here  Arrival // messages on their way to this broker's own leader; guarded by order
	// resent reports that messages in here were sent before, so that a late answer may settle them
	// while the leader reads them. Both locks are held to write it, and either to read it.
	resent bool

	mu       sync.Mutex
	box      forward.Outbox
	fast     batching.Fast
	fastDue  int64         // when the idle ones are looked for again
	fasts    int           // open fast batches, as they are counted in fw
	listed   *list.Element // in fw.active; nil: it is not there
	to       *Link
	epoch    uint64
	round    uint32
	broken   bool          // the messages of this round have to go again
	patience time.Duration // after which the publisher of an unanswered message gets an error
	unplaced bool          // messages wait for the first broker to be chosen for the shard
	rest     time.Time
	pause    time.Duration
	head     []byte
	holds    []hold         // of a lane, in order
	late     []settledChunk // freed while resent is set; deliver frees them
}

// New returns the sender of a shard, of which id says how it is known.
func (fw *Senders) New(id ID, shard Shard) *Sender {
	return fw.newSender(id, shard, fw.source, nil)
}

func (fw *Senders) newSender(id ID, shard Shard, source uint64, main *Sender) *Sender {
	f := &Sender{id: id, shard: shard, fw: fw, source: source, main: main, box: forward.NewOutbox(), patience: forward.OutboxTime}
	f.room, f.most = fw.room, amount{math.MaxInt64, math.MaxInt64}
	if main != nil {
		f.room, f.most = fw.laneRoom, amount{laneBytes, laneWindow}
	}
	f.settled.Store(f.box.First)
	return f
}

// Publish brings messages to the leader, behind all earlier ones. It copies them, or retains the
// memory that they alias; nil copies all.
func (f *Sender) Publish(v View, messages []protocol.Message, memory protocol.Memory) (behind bool) {
	size := 0
	for i := range messages {
		if !forward.Lends(&messages[i], memory) {
			size += forward.EntrySize(&messages[i])
		}
	}
	f.order.Lock()
	defer f.order.Unlock()
	f.mu.Lock()
	f.belong(v)
	if why := f.refuses(v); why != nil {
		f.mu.Unlock()
		f.refuseAll(v, messages, why)
		return false
	}
	now, at := time.Now(), forward.Mono()
	f.box.Expect(size)
	goesOn := f.goesOnHere(v)
	if goesOn {
		f.begin(f.box.Next())
	}
	for i := range messages {
		next := &messages[i]
		if len(next.To) == 0 && !v.Keeps(next.Subject) {
			continue
		}
		if part, ok := f.fastPart(next); ok && (f.strays(v, next) || !f.takeFast(v, next, &part, at)) {
			continue
		}
		if m := f.box.Add(next, memory, at); goesOn {
			f.here.Messages = append(f.here.Messages, m)
		}
	}
	if goesOn {
		f.box.Send()
	} else {
		behind = f.pump(v, now)
	}
	f.account()
	f.mu.Unlock()
	f.deliver()
	return behind || f.full()
}

// full reports whether publishers have to wait for room.
func (f *Sender) full() bool { return f.room.full(f) }

// refuseAll answers that none of the messages is kept. No lock is needed.
func (f *Sender) refuseAll(v View, messages []protocol.Message, why error) {
	out := replies.Get().(*publish.Replies)
	for i := range messages {
		if len(messages[i].To) > 0 || v.Keeps(messages[i].Subject) {
			f.refuse(out, v, messages[i].Reply, why)
		}
	}
	f.fw.send(out)
}

// refuse adds the answer that a message is not kept.
func (f *Sender) refuse(out *publish.Replies, v View, to []byte, err error) {
	f.fw.config.Refused.Note(err)
	if len(to) > 0 && !v.NoAck() {
		out.Refusal(f.fw.config.Codec, to, f.id.Topic, err)
	}
}

// refuses returns why no message can be accepted now, or nil. mu is held.
func (f *Sender) refuses(v View) error {
	to, served := f.target(v), v.Served()
	f.unplaced = f.unplaced && !served
	if !served {
		why := f.shard.Refusal()
		e, known := errors.AsType[*publish.NotServedError](why)
		if f.unplaced = known && e.Reason == publish.Unplaced; !f.unplaced {
			return why
		}
	}
	switch {
	case v.Gone(), f.fw.config.Closing(), served && to == nil && v.Replicas() < 2:
		return f.shard.Refusal()
	// For a lane that is full by itself its connections wait.
	case f.room.overfull(f.party.Load()), to == nil && (f.ofShard().held.Load() > outboxUnled || f.room.closes(f, f.party.Load())):
		f.fw.refused.Add(1)
		return &publish.OutboxFullError{Topic: f.id.Topic, Why: "more waits for its leader's answers than this broker keeps"}
	}
	return nil
}

// target is the way to the leader, or nil. mu is held.
func (f *Sender) target(v View) *Link {
	switch {
	case v.Gone() || v.Leader() == "":
		return nil
	case v.Leader() == f.fw.self.broker:
		if v.Leads() {
			return f.fw.self
		}
		return nil
	case f.to != nil && f.to.broker == v.Leader() && !f.to.down.Load():
		return f.to
	}
	return f.fw.link(v.Leader())
}

// pump sends what is due: with another leader, epoch or link all unanswered messages, then new
// ones. Messages for a leader on this broker wait in here for deliver. order and mu are held.
func (f *Sender) pump(v View, now time.Time) (behind bool) {
	f.release()
	to := f.target(v)
	if to == nil {
		f.to = nil
		return false
	}
	f.unplaced = false
	if other := to != f.to || f.epoch != v.Epoch(); other || f.broken {
		if !other && now.Before(f.rest) {
			return false
		}
		if _, at, some := f.box.Oldest(); some && at < forward.Mono()-int64(f.patience) {
			f.to = nil
			// look fails it first: leaders may have forgotten this source by now.
			f.fw.Poke()
			return false
		}
		if other {
			f.pause = 0
		}
		f.to, f.epoch, f.broken = to, v.Epoch(), false
		f.round++
		f.fw.resent.Add(uint64(f.box.Begin()))
	}
	for {
		first, count, entries, data := f.box.Run()
		if count == 0 {
			return behind
		}
		if to == f.fw.self {
			f.gather(first, entries, data)
			continue
		}
		f.head = forward.AppendFrameHead(f.head[:0], forward.FrameRun, f.id.TopicID, f.id.Number, f.source, f.round)
		f.head = forward.AppendRunHead(f.head, f.epoch, first, f.box.First, f.box.Ever)
		behind = to.out.Carry(f.head, entries, data) || behind
	}
}

// goesOnHere reports whether the leader is on this broker and was sent, in this round, all that
// came before. What comes now follows as it is, and pump has nothing to do. mu is held.
func (f *Sender) goesOnHere(v View) bool {
	self := f.fw.self
	return f.main == nil && f.to == self && f.target(v) == self && f.epoch == v.Epoch() && !f.broken && f.box.Sent()
}

// begin prepares here for messages from this number on. They stay valid until deliver returns:
//
//  1. Nobody answers a message that was never sent before the leader has read it.
//  2. What a late answer settles of messages that were sent before is freed by deliver (resent).
//  3. fail takes order.
//
// order and mu are held.
func (f *Sender) begin(first uint64) {
	f.here = Arrival{Shard: f.shard, Source: f.source, Round: f.round, Epoch: f.epoch, First: first, next: first,
		Floor: f.box.First, Below: f.box.Ever, Messages: f.here.Messages}
}

// gather puts entries that pump sends into here. order and mu are held.
func (f *Sender) gather(first uint64, entries, data []byte) {
	f.resent = true
	if len(f.here.Messages) == 0 {
		f.begin(first)
	}
	if data != nil {
		f.here.Messages = append(f.here.Messages, forward.JoinEntry(entries, data))
		f.here.next++
		return
	}
	_ = f.here.read(entries) // Outbox wrote them
}

// deliver hands the gathered messages to the leader on this broker. order is held.
func (f *Sender) deliver() {
	a := &f.here
	if len(a.Messages) > 0 {
		f.shard.Arrive(f.fw.self, a)
		clear(a.Messages)
		a.Messages = a.Messages[:0]
	}
	if f.resent {
		f.freeLate()
	}
}

// free returns a chunk to the outbox, or has deliver do it if the leader may be reading it. mu is
// held.
func (f *Sender) free(c *forward.Chunk, messages int) {
	if f.resent {
		f.late = append(f.late, settledChunk{f, c, messages})
		return
	}
	f.box.Free(c, messages)
}

// freeLate frees what was settled while the leader read it. order is held.
func (f *Sender) freeLate() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.resent = false
	for _, l := range f.late {
		f.box.Free(l.in, l.messages)
	}
	f.late = nil
	f.account()
}

// account updates the service's totals. mu is held.
func (f *Sender) account() {
	fw, before := f.fw, f.own.load()
	change := amount{int64(f.box.Bytes) - before.bytes, int64(f.box.Next()-f.box.First) - before.messages}
	if change != (amount{}) {
		f.ofShard().held.Add(change.bytes)
		f.room.add(f, change)
	}
	if n := f.fast.Len(); n != f.fasts {
		fw.fasts.Add(int64(n - f.fasts))
		f.fasts = n
	}
	f.settle()
}

// belong lists the sender, and counts it with the shards that its leader's broker leads. mu is
// held.
func (f *Sender) belong(v View) {
	if f.listed == nil {
		f.list()
	}
	if p := f.party.Load(); p == nil || p.broker != v.Leader() {
		f.room.join(f, v.Leader())
	}
}

// list has the service look at the outbox in intervals. mu is held.
func (f *Sender) list() {
	fw := f.fw
	fw.mu.Lock()
	f.listed = fw.active.PushBack(f)
	first := fw.active.Len() == 1
	fw.mu.Unlock()
	if first {
		fw.Poke()
	}
}

// unlist ends what belong began. mu is held.
func (f *Sender) unlist() {
	f.fw.mu.Lock()
	f.fw.active.Remove(f.listed)
	f.fw.mu.Unlock()
	f.listed = nil
	f.room.leave(f)
}

// look does what no publish and no answer triggers: it follows a change of leader, sends again
// after a rest, and fails messages that are too old.
func (f *Sender) look(now time.Time) {
	v := f.shard.View()
	if v.Gone() {
		f.fail(math.MaxInt64, &publish.NotServedError{Topic: f.id.Topic, Reason: publish.BeingDeleted, Why: "it is being deleted"})
	}
	f.order.Lock()
	f.mu.Lock()
	f.belong(v)
	f.unplaced = f.unplaced && !v.Served()
	f.pump(v, now)
	_, at, some := f.box.Oldest()
	old := some && at < f.expired()
	f.expireFast(v)
	f.account()
	// Answered messages may be held for a moment.
	if !some && f.fast.Len() == 0 && f.own.load() == (amount{}) {
		f.box.Shrink()
		f.unlist()
	}
	f.mu.Unlock()
	f.deliver()
	f.order.Unlock()
	if old {
		f.expire()
	}
}

// expired returns the time before which unanswered messages are too old. mu is held.
func (f *Sender) expired() int64 {
	if f.unplaced {
		return forward.Mono() - int64(min(f.patience, placementTime))
	}
	return forward.Mono() - int64(f.patience)
}

// expire fails the messages that no leader has answered in time.
func (f *Sender) expire() {
	text := "its leader doesn't answer"
	if why := f.shard.Why(); why != "" {
		text = why
	}
	f.mu.Lock()
	before := f.expired()
	f.mu.Unlock()
	f.fail(before, &publish.LeadershipLostError{Topic: f.id.Topic, Why: text})
}

// fail answers the messages that came before a time: with lost if a leader may have them, and
// otherwise with the reason why none does.
func (f *Sender) fail(before int64, lost error) {
	out := replies.Get().(*publish.Replies)
	v, unsent := f.shard.View(), f.shard.Refusal()
	var done Settled
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
		reply, c, _ := f.box.Settle(seq)
		done.add(f, c)
		f.fw.failed.Add(1)
		if is := (batching.Outcome{Refused: true, Refusal: f.fw.config.Codec.AppendRefusal(nil, f.id.Topic, err)}); !f.isFast(reply) || !f.settleFast(v, seq, reply, is, out) {
			f.refuse(out, v, reply, err)
		}
	}
	f.mu.Unlock()
	f.order.Unlock()
	f.fw.send(out) // before the replies, which stand in the chunks, are freed
	done.Free()
}

// again begins another round after a leader did not take all messages, or when it is ready for
// them.
func (f *Sender) again(round uint32, ready bool) {
	f.mu.Lock()
	switch {
	case ready:
		f.rest, f.pause = time.Time{}, 0
	case round == f.round && !f.broken:
		f.pause = min(max(2*f.pause, againFirst), againLast)
		f.broken, f.rest = true, time.Now().Add(f.pause)
	}
	f.mu.Unlock()
	f.fw.Poke()
}

// Answered takes a leader's answers of a round. Replies go to out, and the chunks that they stand
// in to done: they are valid until done.Free.
func (f *Sender) Answered(round uint32, data []byte, out *publish.Replies, done *Settled) error {
	v := f.shard.View()
	noAck := v.NoAck()
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
			batch, records := f.box.Batch(seq), a.Records
			if batch != nil {
				records = max(records, 1) // a log does not tell a batch of one message from that message
			}
			reply, c, ok := f.box.Settle(seq)
			if !ok {
				continue
			}
			done.add(f, c)
			switch {
			case len(reply) > 0 && f.isFast(reply) && f.settleFast(v, seq, reply, batching.Outcome{Refused: a.Kind == forward.ItemRefused, Refusal: a.Refusal, Offset: a.Offset + seq - a.Seq, Duplicate: a.Duplicate}, out):
			case len(reply) == 0 || noAck:
			case a.Kind == forward.ItemRefused:
				if len(a.Refusal) > 0 {
					out.Encoded(reply, a.Refusal)
				}
			default:
				out.Ack(f.fw.config.Codec, reply, f.id.Name, publish.Ack{Offset: a.Offset + seq - a.Seq, Records: records, Duplicate: a.Duplicate, Batch: batch, Total: a.Total})
			}
		}
	}
	return nil
}

// SetPatience sets after what time the publisher of an unanswered message gets an error.
func (f *Sender) SetPatience(d time.Duration) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.patience = d
}

// Wait blocks while there is no room for more of its messages, or the way to the shard's leader is
// behind.
func (f *Sender) Wait() {
	f.room.wait(f)
	f.mu.Lock()
	to := f.to
	f.mu.Unlock()
	if to != nil {
		to.out.Wait()
	}
}

// Next is the number of the next message.
func (f *Sender) Next() uint64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.box.Next()
}
