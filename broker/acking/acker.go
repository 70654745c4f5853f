package acking

import (
	"context"
	"sync"
	"sync/atomic"

	"github.com/carillon-mq/carillon/broker/forward"
	"github.com/carillon-mq/carillon/broker/publish"
	"github.com/carillon-mq/carillon/broker/sender"
)

// Config is what an Acker works with.
type Config struct {
	Hub     publish.Hub
	Codec   publish.Codec
	Refused *publish.Refusals // counts messages that are refused
}

// Acker answers publishers on a goroutine of its own.
type Acker struct {
	config     Config
	unanswered atomic.Int64 // messages
	wake       chan struct{}
	done       chan struct{}

	mu      sync.Mutex
	room    *sync.Cond // unanswered shrank
	queue   []*Pending
	touched []*Shard // queued though they have nothing in queue; see Shard.Touch
	closing bool

	// at is held while a round is answered, and guards what follows.
	at      sync.Mutex
	spare   []*Pending
	moved   []*Shard
	out     publish.Replies
	back    forward.Answers
	settled sender.Settled
	head    []byte
}

// New starts an Acker. Close ends it.
func New(c Config) *Acker {
	a := &Acker{config: c, wake: make(chan struct{}, 1), done: make(chan struct{})}
	a.room = sync.NewCond(&a.mu)
	go a.run()
	return a
}

// Unanswered returns how many messages wait for their answer.
func (a *Acker) Unanswered() int64 { return a.unanswered.Load() }

// Expect counts messages that wait for their answer from now on.
func (a *Acker) Expect(messages int64) { a.unanswered.Add(messages) }

// Behind reports whether so many messages wait for their answer that publishers have to wait.
func (a *Acker) Behind() bool { return a.unanswered.Load() > MaxUnanswered }

// FarBehind reports whether messages from links are refused.
func (a *Acker) FarBehind() bool { return a.unanswered.Load() > 2*MaxUnanswered }

// Wait blocks while a is behind or more returns true, until a closes or ctx ends.
func (a *Acker) Wait(ctx context.Context, more func() bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for (a.Behind() || more()) && !a.closing && ctx.Err() == nil {
		a.room.Wait()
	}
}

// WakePublishers wakes waiting publishers: nothing else does when a watermark stands still for too
// long.
func (a *Acker) WakePublishers() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.room.Broadcast()
}

// Committed answers a round of the disk. If the committer is idle, all publishers wait for this
// round, and the committer answers it itself: that saves two wake-ups.
func (a *Acker) Committed(idle bool) {
	if !idle || !a.at.TryLock() {
		a.poke()
		return
	}
	a.round()
	a.at.Unlock()
}

// Close waits until everything is answered and ends the Acker.
func (a *Acker) Close() {
	a.mu.Lock()
	a.closing = true
	a.room.Broadcast()
	a.mu.Unlock()
	a.poke()
	<-a.done
}

// push queues p. now wakes the acker; otherwise the end of the disk's round does.
func (a *Acker) push(p *Pending, now bool) {
	a.mu.Lock()
	a.queue = append(a.queue, p)
	a.mu.Unlock()
	if now {
		a.poke()
	}
}

// touch queues a shard.
func (a *Acker) touch(s *Shard) {
	a.mu.Lock()
	a.touched = append(a.touched, s)
	a.mu.Unlock()
	a.poke()
}

// poke wakes the acker.
func (a *Acker) poke() {
	select {
	case a.wake <- struct{}{}:
	default:
	}
}

func (a *Acker) run() {
	defer close(a.done)
	for range a.wake {
		for more := true; more; {
			a.at.Lock() // for each round: Committed may wait for it, and there may always be more
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
func (a *Acker) round() bool {
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
			s.leader.Fail(p.err)
		case len(s.unreplicated) > 0 || p.End > s.leader.High(): // in order
			s.unreplicated = append(s.unreplicated, p)
			continue
		}
		queue = append(queue, p)
	}
	for _, s := range a.moved {
		queue = s.settled(queue)
		s.leader.Complete()
		s.leader.Commit() // readers meet what replaces a record before that is removed
	}
	answered, sent := int64(0), 0
	for i, p := range queue {
		answered += p.Messages()
		if p.Size > 0 {
			p.shard.leader.Left(p.Size, p.Records)
		}
		if len(p.Answers) > 0 {
			a.answer(p)
		}
		if len(a.out.Messages) >= answersPerSend || i == len(queue)-1 {
			a.send()
			for ; sent <= i; sent++ {
				queue[sent].Free()
			}
		}
	}
	for _, s := range a.moved {
		s.inRound = false
		s.leader.Moved()
	}
	clear(a.moved)
	a.moved = a.moved[:0]
	if a.unanswered.Add(-answered) <= MaxUnanswered {
		a.mu.Lock()
		a.room.Broadcast()
		a.mu.Unlock()
	}
	return true
}

// answer gives the answers of one append to its sender. If leadership ended, the sender sends its
// messages to the next leader, which knows whether they were kept.
func (a *Acker) answer(p *Pending) {
	l := p.shard.leader
	name := l.Name()
	for i := range p.Answers {
		switch an := &p.Answers[i]; {
		case p.err != nil:
			err := l.Lost(p.err)
			failed, fails := err.(*publish.StoreError)
			if fails && p.Round > 0 {
				failed.Unknown = false // it is a refusal: nothing was appended
			}
			if _, late := err.(*publish.UnconfirmedError); !fails && !(late && !an.Again) {
				p.Back.Again(l.ID())
				a.back.Reset()
				return
			}
			for seq := an.Seq; seq <= an.Seq+uint64(an.More); seq++ {
				a.config.Refused.Note(err)
				a.back.Refused(seq, a.config.Codec, name, err)
			}
		case an.Kind == Refusal:
			a.back.Refused(an.Seq, a.config.Codec, name, an.Err)
		case an.Total != "":
			a.back.Counted(an.Seq, an.Offset, an.Total)
		case an.More > 0:
			a.back.Kept(an.Seq, an.Offset, 1+uint64(an.More))
		default:
			a.back.Single(an.Seq, an.Offset, an.Records, an.Kind == Duplicate)
		}
	}
	a.head = p.Back.Answer(&a.back, l.Publishing(), l.ID(), a.head, &a.out, &a.settled)
}

// send gives the answers of the round to the hub.
func (a *Acker) send() {
	if len(a.out.Messages) > 0 {
		a.config.Hub.Send(a.out.Messages)
	}
	a.out.Reset()
	a.settled.Free()
}
