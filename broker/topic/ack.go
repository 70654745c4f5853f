package topic

import (
	"github.com/carillon-mq/carillon/broker/forward"
	"github.com/carillon-mq/carillon/broker/publish"
	"sync"
	"sync/atomic"

	"github.com/carillon-mq/carillon/broker/log"
	"github.com/carillon-mq/carillon/broker/replica"
	"github.com/carillon-mq/carillon/broker/sender"
)

// answerKind says what an answer says.
type answerKind uint8

const (
	isKept answerKind = iota
	isDuplicate
	isRefusal
)

// answer is given when the record at its offset is as safe as the Topic asks for.
type answer struct {
	offset  uint64
	kind    answerKind
	records uint32 // that the message carried; 0: it is one itself
	more    uint32 // messages that follow with the next numbers and are kept at the next offsets
	seq     uint64 // its number
	again   bool   // it was sent before, perhaps to another leader
	err     error  // of a refusal
}

// pending are the answers that wait for one append, or for earlier ones.
type pending struct {
	shard      *ShardLeader
	back       sender.Back
	end        uint64 // of the records that were appended with it; 0: none were
	size       int    // of them in bytes, and how many they are, as ahead counts them; 0: not at all
	records    int
	round      uint64 // barrier round that the answers wait for; 0: none
	asked      int64  // when it was asked for
	durability log.Durability
	answers    []answer
	err        error
}

var pendings = sync.Pool{New: func() any { return &pending{} }}

func newPending(s *ShardLeader) *pending {
	p := pendings.Get().(*pending)
	p.shard = s
	return p
}

func (p *pending) free() {
	if cap(p.answers) > batchRecords {
		return
	}
	clear(p.answers)
	*p = pending{answers: p.answers[:0]}
	pendings.Put(p)
}

// rest is the last record that the answers rest on.
func (p *pending) rest() (offset uint64) {
	for i := range p.answers {
		offset = max(offset, p.answers[i].offset+uint64(p.answers[i].more))
	}
	return offset
}

// kept adds the answer to a message whose record is appended with p, of which base is the first.
func (p *pending) kept(base uint64, a answer) {
	if n := len(p.answers); n > 0 && a.records == 0 {
		last := &p.answers[n-1]
		if next := uint64(last.more) + 1; last.kind == isKept && last.records == 0 && last.offset >= base &&
			last.offset+next == a.offset && last.seq+next == a.seq {
			last.more++
			return
		}
	}
	p.answers = append(p.answers, a)
}

// messages is how many messages are answered by p.
func (p *pending) messages() (n int64) {
	for i := range p.answers {
		n += 1 + int64(p.answers[i].more)
	}
	return n
}

// Committed is called by the disk's committer. It moves the high watermark, and leaves the rest to the acker.
func (p *pending) Committed(_, end uint64, err error) {
	s := p.shard
	if p.err = err; err == nil {
		s.met(replica.Data, end)
	}
	// Who waits for a sync is answered together with all others that waited for it.
	s.service.acker.push(p, p.durability != log.Synced || err != nil)
}

// acker answers publishers, on a goroutine of its own so that the disk's committer goes on: all
// answers of a round of the disk go to the hub in one call, and so to each connection in one write.
type acker struct {
	service    *Service
	unanswered atomic.Int64
	wake       chan struct{}
	done       chan struct{}

	mu      sync.Mutex
	room    *sync.Cond // unanswered shrank
	queue   []*pending
	touched []*ShardLeader // to be looked at, though nothing of them is in queue
	closing bool

	// Of who answers a round, who holds at.
	at      sync.Mutex
	spare   []*pending
	moved   []*ShardLeader
	out     publish.Replies
	back    forward.Answers
	settled sender.Settled
	head    []byte
}

func newAcker(s *Service) *acker {
	a := &acker{service: s, wake: make(chan struct{}, 1), done: make(chan struct{})}
	a.room = sync.NewCond(&a.mu)
	go a.run()
	return a
}

func (a *acker) push(p *pending, now bool) {
	a.mu.Lock()
	a.queue = append(a.queue, p)
	a.mu.Unlock()
	if now {
		a.poke()
	}
}

// touch has those looked at who wait for what others do: for records before theirs, or for other replicas.
func (a *acker) touch(s *ShardLeader) {
	if s.touched.Swap(true) {
		return
	}
	a.mu.Lock()
	a.touched = append(a.touched, s)
	a.mu.Unlock()
	a.poke()
}

// committed sees to the answers of a round of the disk. If everybody who publishes waits for them, the
// committer gives them itself: it has nothing else to do, and two goroutines fewer are to be woken.
func (a *acker) committed(idle bool) {
	if !idle || !a.at.TryLock() {
		a.poke()
		return
	}
	a.round()
	a.at.Unlock()
}

// end answers all that waits for a shard whose leadership on this broker has ended.
func (a *acker) end(s *ShardLeader, over error) {
	s.over.Store(&over)
	s.keepPromises()
	a.touch(s)
}

func (a *acker) poke() {
	select {
	case a.wake <- struct{}{}:
	default:
	}
}

// recall has waiting publishers look again: nothing else wakes them when a watermark has stood still for too long.
func (a *acker) recall() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.room.Broadcast()
}

// close ends the acker when everything is answered.
func (a *acker) close() {
	a.mu.Lock()
	a.closing = true
	a.room.Broadcast()
	a.mu.Unlock()
	a.poke()
	<-a.done
}

func (a *acker) run() {
	defer close(a.done)
	for range a.wake {
		for more := true; more; {
			a.at.Lock() // each time: somebody may wait for it, and there may always be more
			more = a.round()
			a.at.Unlock()
		}
		a.mu.Lock()
		end := a.closing && len(a.queue) == 0 && len(a.touched) == 0
		a.mu.Unlock()
		if end {
			return
		}
	}
}

// round answers what has come, and says whether anything had. at is held.
func (a *acker) round() bool {
	a.mu.Lock()
	queue := a.queue
	a.queue, a.spare = a.spare[:0], nil
	a.moved = append(a.moved[:0], a.touched...)
	clear(a.touched)
	a.touched = a.touched[:0]
	a.mu.Unlock()
	defer func() {
		clear(queue)
		a.spare = queue[:0]
	}()
	if len(queue) == 0 && len(a.moved) == 0 {
		return false
	}
	for _, s := range a.moved {
		s.inRound = true
		s.touched.Store(false) // before it is looked at
	}
	come := queue
	queue = queue[:0]
	for _, p := range come {
		s := p.shard
		if !s.inRound {
			s.inRound = true
			a.moved = append(a.moved, s)
		}
		switch {
		case p.err != nil:
			s.mu.Lock()
			s.fail(p.err)
			s.mu.Unlock()
		case len(s.unsafe) > 0 || p.end > s.leading.Load().High(replica.Data): // answers go out in order
			s.unsafe = append(s.unsafe, p)
			continue
		}
		queue = append(queue, p)
	}
	for _, s := range a.moved {
		queue = s.settled(queue)
		s.keepPromises()
	}
	answered, sent := int64(0), 0
	for i, p := range queue {
		answered += p.messages()
		if p.size > 0 {
			p.shard.ahead.take(p.size, p.records)
		}
		a.answer(p)
		if len(a.out.Messages) >= answersPerSend || i == len(queue)-1 {
			a.send()
			for ; sent <= i; sent++ {
				queue[sent].free()
			}
		}
	}
	for _, s := range a.moved {
		s.inRound = false
		s.moved()
	}
	clear(a.moved)
	a.moved = a.moved[:0]
	if a.unanswered.Add(-answered) <= maxUnanswered {
		a.mu.Lock()
		a.room.Broadcast()
		a.mu.Unlock()
	}
	return true
}

// answer gives the answers of one append to its sender. If the append was lost with the leadership, the
// next leader knows better what became of it, and the sender asks that one.
func (a *acker) answer(p *pending) {
	s := p.shard
	for i := range p.answers {
		switch an := &p.answers[i]; {
		case p.err != nil:
			err := s.lost(p.err)
			failed, fails := err.(*publish.StoreError)
			if fails && p.round > 0 {
				failed.Unknown = false // it is a refusal: nothing was appended
			}
			if _, late := err.(*publish.UnconfirmedError); !fails && !(late && !an.again) {
				p.back.Again(s.shard.at())
				a.back.Reset()
				return
			}
			for seq := an.seq; seq <= an.seq+uint64(an.more); seq++ {
				a.service.counts.refused.Note(err)
				a.back.Refused(seq, a.service.config.Codec, s.shard.name, err)
			}
		case an.kind == isRefusal:
			a.back.Refused(an.seq, a.service.config.Codec, s.shard.name, an.err)
		case an.more > 0:
			a.back.Kept(an.seq, an.offset, 1+uint64(an.more))
		default:
			a.back.Single(an.seq, an.offset, an.records, an.kind == isDuplicate)
		}
	}
	a.head = p.back.Answer(&a.back, (*publishing)(s.shard), s.shard.at(), a.head, &a.out, &a.settled)
}

// lost is what a publisher is told whose message is not known to be safe.
func (s *ShardLeader) lost(err error) error {
	switch err.(type) {
	case *publish.LeadershipLostError, *publish.NotServedError, *publish.UnconfirmedError:
		return err
	}
	of := s.shard.view.Load().shard
	return &publish.StoreError{Topic: s.shard.name, Err: err, Unknown: of != nil && len(of.Replicas) > 1}
}

func (a *acker) send() {
	if len(a.out.Messages) > 0 {
		a.service.config.Hub.Send(a.out.Messages)
	}
	a.out.Reset()
	a.settled.Free()
}

// settled adds to queue what waited and is safe now on all replicas; or everything, if it never will be.
func (s *ShardLeader) settled(queue []*pending) []*pending {
	s.mu.Lock()
	defer s.mu.Unlock()
	failed, high := s.failed.Load(), s.leading.Load().High(replica.Data)
	if failed == nil {
		failed = s.over.Load()
	}
	n := 0
	for ; n < len(s.unsafe) && (s.unsafe[n].end <= high || failed != nil); n++ {
		if p := s.unsafe[n]; p.end > high {
			p.err = *failed
		}
		queue = append(queue, s.unsafe[n])
	}
	if n > 0 {
		left := copy(s.unsafe, s.unsafe[n:])
		clear(s.unsafe[left:])
		s.unsafe = s.unsafe[:left]
	}
	left, round, now := s.waiting[:0], s.leading.Load().Confirmed(), int64(0)
	if len(s.waiting) > 0 {
		now = forward.Mono()
	}
	for _, p := range s.waiting {
		ok, err := p.settles(high, round, now)
		switch {
		case ok:
			p.err = err
		case failed != nil:
			p.err = *failed
		default:
			left = append(left, p)
			continue
		}
		queue = append(queue, p)
		if p.round > 0 {
			s.confirms.pending.Add(-1)
		}
	}
	clear(s.waiting[len(left):])
	s.waiting = left
	return queue
}

// failure is why nothing can be appended, or nil.
func (s *ShardLeader) failure() error {
	if err := s.failed.Load(); err != nil {
		return *err
	}
	return s.service.config.Disk.Failed()
}

// fail has the log closed and opened again, if the disk works. mu is held.
func (s *ShardLeader) fail(err error) {
	if s.failed.CompareAndSwap(nil, &err) && s.service.config.Disk.Failed() == nil && !s.service.closing.Load() {
		s.service.stumble(s.shard, "append", err)
	}
}

// pushesBack says whether publishers are to wait for a shard of the Topic that is led here.
func (t *Topic) pushesBack() bool {
	for _, p := range t.shards {
		if shard := p.leading.Load(); shard != nil && shard.pushesBack() {
			return true
		}
	}
	return false
}

// waitRoom blocks while a publisher to t is to wait.
func (s *Service) waitRoom(t *Topic) {
	s.senders.Wait()
	for _, p := range t.shards {
		if f := p.out.Load(); f != nil {
			f.Wait()
		}
	}
	for _, p := range t.shards {
		if shard := p.leading.Load(); shard != nil {
			_ = shard.data.WaitRoom(s.ctx) // what is wrong with the disk is told to who publishes
			break                          // all logs are on one disk
		}
	}
	a := s.acker
	a.mu.Lock()
	defer a.mu.Unlock()
	for (a.unanswered.Load() > maxUnanswered || t.pushesBack()) && !a.closing && s.ctx.Err() == nil {
		a.room.Wait()
	}
}
