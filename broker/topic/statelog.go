package topic

import (
	"github.com/carillon-mq/carillon/broker/log"
	"github.com/carillon-mq/carillon/broker/replica"
)

// AppendState appends to the state log under the epoch of the leader. a.Done is called when the
// append is as durable on all in-sync replicas as a.Durability says, or has failed. It may be nil.
func (s *ShardLeader) AppendState(a *log.Append) (first uint64, err error) {
	s.stateMu.Lock()
	defer s.stateMu.Unlock()
	return s.appendState(a)
}

// appendState is AppendState with stateMu held.
func (s *ShardLeader) appendState(a *log.Append) (first uint64, err error) {
	a.Epoch = s.epoch.Load()
	end := uint64(0)
	if a.Done == nil {
		if first, err = s.state.Append(a); err == nil {
			end = first + uint64(len(a.Records))
			s.leading.Load().Appended(replica.State, end, false)
		}
		return first, err
	}
	if over := s.over.Load(); over != nil {
		return 0, *over
	}
	p := &stateAppend{shard: s, done: a.Done}
	a.Done = (*stateCompletion)(p)
	first, err = s.state.Append(a)
	a.Done = p.done
	if err != nil {
		return 0, err
	}
	p.first, p.end = first, first+uint64(len(a.Records))
	s.stateAppends = append(s.stateAppends, p)
	s.leading.Load().Appended(replica.State, p.end, true)
	s.service.acker.touch(s) // it may have become durable before it was among the stateAppends
	return first, nil
}

// stateCompletion is a stateAppend as the disk's committer sees it: a log.Completion.
type stateCompletion stateAppend

// Committed is called by the disk's committer, or by Append itself for log.Memory.
func (p *stateCompletion) Committed(_, end uint64, err error) {
	s := p.shard
	if err != nil {
		s.stateFailed.CompareAndSwap(nil, &err)
		s.service.acker.touch(s)
		return
	}
	s.persisted(replica.State, end)
	s.service.acker.touch(s)
}

// completeStateAppends completes appends that are durable on all in-sync replicas, or all if the
// log failed. It belongs to the acker.
func (s *ShardLeader) completeStateAppends() {
	var err error
	if failed := s.stateFailed.Load(); failed != nil {
		err = *failed
		s.mu.Lock()
		s.fail(err)
		s.mu.Unlock()
	} else if over := s.over.Load(); over != nil {
		err = *over
	}
	high := s.leading.Load().High(replica.State)
	s.stateMu.Lock()
	n := 0
	for n < len(s.stateAppends) && (err != nil || s.stateAppends[n].end <= high) {
		n++
	}
	due := append([]*stateAppend(nil), s.stateAppends[:n]...)
	s.stateAppends = append(s.stateAppends[:0], s.stateAppends[n:]...)
	clear(s.stateAppends[len(s.stateAppends):cap(s.stateAppends)])
	s.stateMu.Unlock()
	for _, p := range due {
		if p.end > high {
			p.done.Committed(p.first, p.end, err)
		} else {
			p.done.Committed(p.first, p.end, nil)
		}
	}
}
