package replica

import (
	"sync"
	"sync/atomic"

	"github.com/carillon-mq/carillon/broker/log"
)

// Appends appends to the state log of a shard for its leader. What is appended with a completion
// completes when it is as durable on all members of the in-sync set as it asks.
type Appends struct {
	config AppendsConfig
	failed atomic.Pointer[error] // why nothing can be appended

	mu      sync.Mutex
	waiting []*stateAppend // in the order of the log
}

// AppendsConfig is what Appends works with. No function takes a lock of Appends' caller.
type AppendsConfig struct {
	Log       *log.Log
	Epoch     func() uint64
	Leading   func() *Leading
	Over      func() error // why leadership ended, or nil
	Persisted func(end uint64)
	// Touch has Complete called soon.
	Touch func()
}

// stateAppend is an append whose completion waits. It is a log.Completion.
type stateAppend struct {
	of         *Appends
	done       log.Completion
	first, end uint64
}

// Init precedes the first append.
func (s *Appends) Init(c AppendsConfig) { s.config = c }

// Lock keeps appends away until Unlock, while another epoch begins.
func (s *Appends) Lock() { s.mu.Lock() }

// Unlock follows Lock.
func (s *Appends) Unlock() { s.mu.Unlock() }

// Append appends under the epoch of the leader. a.Done may be nil.
func (s *Appends) Append(a *log.Append) (first uint64, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	a.Epoch = s.config.Epoch()
	end := uint64(0)
	if a.Done == nil {
		if first, err = s.config.Log.Append(a); err == nil {
			end = first + uint64(len(a.Records))
			s.config.Leading().Appended(State, end, false)
		}
		return first, err
	}
	if over := s.config.Over(); over != nil {
		return 0, over
	}
	p := &stateAppend{of: s, done: a.Done}
	a.Done = p
	first, err = s.config.Log.Append(a)
	a.Done = p.done
	if err != nil {
		return 0, err
	}
	p.first, p.end = first, first+uint64(len(a.Records))
	s.waiting = append(s.waiting, p)
	s.config.Leading().Appended(State, p.end, true)
	s.config.Touch() // it may have become durable before it was among those that wait
	return first, nil
}

// Committed is called by the disk's committer, or by Append itself for log.Memory.
func (p *stateAppend) Committed(_, end uint64, err error) {
	s := p.of
	if err != nil {
		s.failed.CompareAndSwap(nil, &err)
	} else {
		s.config.Persisted(end)
	}
	s.config.Touch()
}

// Failed returns why the log failed, or nil.
func (s *Appends) Failed() error {
	if why := s.failed.Load(); why != nil {
		return *why
	}
	return nil
}

// Complete completes appends that are durable on all in-sync replicas, or all if the log failed or
// leadership has ended. Its calls come one after the other.
func (s *Appends) Complete() {
	err := s.Failed()
	if err == nil {
		err = s.config.Over()
	}
	high := s.config.Leading().High(State)
	s.mu.Lock()
	n := 0
	for n < len(s.waiting) && (err != nil || s.waiting[n].end <= high) {
		n++
	}
	due := append([]*stateAppend(nil), s.waiting[:n]...)
	s.waiting = append(s.waiting[:0], s.waiting[n:]...)
	clear(s.waiting[len(s.waiting):cap(s.waiting)])
	s.mu.Unlock()
	for _, p := range due {
		if p.end > high {
			p.done.Committed(p.first, p.end, err)
		} else {
			p.done.Committed(p.first, p.end, nil)
		}
	}
}
