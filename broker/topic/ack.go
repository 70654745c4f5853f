package topic

import (
	"sync"

	"github.com/carillon-mq/carillon/broker/forward"
	"github.com/carillon-mq/carillon/broker/publish"
	"github.com/carillon-mq/carillon/broker/replica"
)

// newAcker starts an acker. close ends it.
func newAcker(s *Service) *acker {
	a := &acker{service: s, wake: make(chan struct{}, 1), done: make(chan struct{})}
	a.room = sync.NewCond(&a.mu)
	go a.run()
	return a
}

// committed answers a round of the disk. If the committer is idle, all publishers wait for this
// round, and the committer answers it itself: that saves two wake-ups.
func (a *acker) committed(idle bool) {
	if !idle || !a.at.TryLock() {
		a.poke()
		return
	}
	a.round()
	a.at.Unlock()
}

// end fails all pending answers of a shard whose leadership on this broker has ended.
func (a *acker) end(s *ShardLeader, over error) {
	s.over.Store(&over)
	a.complete(s)
	a.touch(s)
}

// complete completes appends to the state log.
func (a *acker) complete(s *ShardLeader) {
	if err := s.appends.Failed(); err != nil {
		s.mu.Lock()
		s.fail(err)
		s.mu.Unlock()
	}
	s.appends.Complete()
}

// close waits until everything is answered and ends the acker.
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
			a.at.Lock() // for each round: committed may wait for it, and there may always be more
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
		case len(s.unreplicated) > 0 || p.end > s.leading.Load().High(replica.Data): // in order
			s.unreplicated = append(s.unreplicated, p)
			continue
		}
		queue = append(queue, p)
	}
	for _, s := range a.moved {
		queue = s.settled(queue)
		a.complete(s)
		// Readers meet what replaces a record before that is removed.
		s.removing.Commit(s.advance(), s.shard.view.Load().durability)
	}
	answered, sent := int64(0), 0
	for i, p := range queue {
		answered += p.messages()
		if p.size > 0 {
			p.shard.ahead.Remove(p.size, p.records)
		}
		if len(p.answers) > 0 {
			a.answer(p)
		}
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

// answer gives the answers of one append to its sender. If leadership ended, the sender sends its
// messages to the next leader, which knows whether they were kept.
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
		case an.total != "":
			a.back.Counted(an.seq, an.offset, an.total)
		case an.more > 0:
			a.back.Kept(an.seq, an.offset, 1+uint64(an.more))
		default:
			a.back.Single(an.seq, an.offset, an.records, an.kind == isDuplicate)
		}
	}
	a.head = p.back.Answer(&a.back, (*publishing)(s.shard), s.shard.at(), a.head, &a.out, &a.settled)
}

// lost returns the error for a publisher whose message may not be durable.
func (s *ShardLeader) lost(err error) error {
	switch err.(type) {
	case *publish.LeadershipLostError, *publish.NotServedError, *publish.UnconfirmedError:
		return err
	}
	of := s.shard.view.Load().shard
	return &publish.StoreError{Topic: s.shard.name, Err: err, Unknown: of != nil && len(of.Replicas) > 1}
}

// send gives the answers of the round to the hub.
func (a *acker) send() {
	if len(a.out.Messages) > 0 {
		a.service.config.Hub.Send(a.out.Messages)
	}
	a.out.Reset()
	a.settled.Free()
}

// settled moves pendings of s to queue: those that are durable on all in-sync replicas, or all if
// the log failed or leadership ended.
func (s *ShardLeader) settled(queue []*pending) []*pending {
	s.mu.Lock()
	defer s.mu.Unlock()
	failed, high := s.failed.Load(), s.leading.Load().High(replica.Data)
	if failed == nil {
		failed = s.over.Load()
	}
	n := 0
	for ; n < len(s.unreplicated) && (s.unreplicated[n].end <= high || failed != nil); n++ {
		if p := s.unreplicated[n]; p.end > high {
			p.err = *failed
		}
		queue = append(queue, s.unreplicated[n])
	}
	if n > 0 {
		left := copy(s.unreplicated, s.unreplicated[n:])
		clear(s.unreplicated[left:])
		s.unreplicated = s.unreplicated[:left]
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
			s.confirms.Count(-1)
		}
	}
	clear(s.waiting[len(left):])
	s.waiting = left
	return queue
}
