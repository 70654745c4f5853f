package acking

import (
	"sync"
	"sync/atomic"

	"github.com/carillon-mq/carillon/broker/forward"
	"github.com/carillon-mq/carillon/broker/sender"
)

// Leader is a led shard as the Acker sees it. Its lock may be held when Failed, High, Confirmed,
// Settled and Unconfirmed are called, and is not held when others are.
type Leader interface {
	Name() string
	ID() sender.ID
	Publishing() sender.Shard
	// Failed returns why the log failed or leadership ended, or nil.
	Failed() *error
	// High returns below which offset all in-sync replicas have the records.
	High() uint64
	// Confirmed returns the last barrier round that the in-sync replicas have confirmed.
	Confirmed() uint64
	// Settled is called for each Pending with a barrier round that is due.
	Settled()
	// Persisted notes that the records below end are durable here.
	Persisted(end uint64)
	// Fail notes that the log failed.
	Fail(err error)
	// Complete completes appends to the state log.
	Complete()
	// Commit raises the high watermark of readers, and commits removals below it.
	Commit()
	// Moved notifies those that watch the high watermark.
	Moved()
	// Left takes records that were beyond the watermark off the leader's bound.
	Left(size, records int)
	// Lost returns the error for a publisher whose message may not be durable.
	Lost(err error) error
	// Unconfirmed returns the error for an answer that was not confirmed in time.
	Unconfirmed() error
}

// Shard has the answers of one led shard that wait.
type Shard struct {
	acker  *Acker
	leader Leader
	mu     sync.Locker // the leader's; guards waiting

	touched      atomic.Bool // it is queued for the acker
	inRound      bool        // it is in the acker's round; the acker's
	unreplicated []*Pending  // not yet on all in-sync replicas, by offset; the acker's
	waiting      []*Pending  // without records of their own; they wait for earlier records
}

// Init prepares s for a leader with a lock.
func (s *Shard) Init(a *Acker, leader Leader, mu sync.Locker) {
	s.acker, s.leader, s.mu = a, leader, mu
}

// Wait queues answers without a record of their own, or frees p if it has none. The leader's lock
// is held. readable is the high watermark of readers.
func (s *Shard) Wait(p *Pending, readable uint64) {
	if len(p.Answers) == 0 {
		p.Free()
		return
	}
	s.acker.Expect(p.Messages())
	s.waiting = append(s.waiting, p)
	if p.Rest() < readable { // the watermark has passed meanwhile, and may not move again
		s.Touch()
	}
}

// AskAgain replaces the barrier rounds of answers that wait, since the epoch is a new one. The
// leader's lock is held.
func (s *Shard) AskAgain(round func() uint64) {
	for _, p := range s.waiting {
		if p.Round > 0 {
			p.Round = round()
		}
	}
}

// Touch queues s: another shard's progress, or other replicas, may unblock its answers.
func (s *Shard) Touch() {
	if !s.touched.Swap(true) {
		s.acker.touch(s)
	}
}

// settled moves pendings of s to queue: those that are durable on all in-sync replicas, or all if
// the log failed or leadership ended.
func (s *Shard) settled(queue []*Pending) []*Pending {
	s.mu.Lock()
	defer s.mu.Unlock()
	failed := s.leader.Failed()
	high, round := s.leader.High(), s.leader.Confirmed()
	n := 0
	for ; n < len(s.unreplicated) && (s.unreplicated[n].End <= high || failed != nil); n++ {
		if p := s.unreplicated[n]; p.End > high {
			p.err = *failed
		}
		queue = append(queue, s.unreplicated[n])
	}
	if n > 0 {
		left := copy(s.unreplicated, s.unreplicated[n:])
		clear(s.unreplicated[left:])
		s.unreplicated = s.unreplicated[:left]
	}
	left, now := s.waiting[:0], int64(0)
	if len(s.waiting) > 0 {
		now = forward.Mono()
	}
	for _, p := range s.waiting {
		ok, late := p.settles(high, round, now)
		switch {
		case late:
			p.err = s.leader.Unconfirmed()
		case ok:
			p.err = nil
		case failed != nil:
			p.err = *failed
		default:
			left = append(left, p)
			continue
		}
		queue = append(queue, p)
		if p.Round > 0 {
			s.leader.Settled()
		}
	}
	clear(s.waiting[len(left):])
	s.waiting = left
	return queue
}
