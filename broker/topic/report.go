package topic

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/carillon-mq/carillon/broker/coordination"
	"github.com/carillon-mq/carillon/broker/copystate"
	"github.com/carillon-mq/carillon/broker/replica"
)

// reports are the copies that this broker doubts, for the controller to compare when nobody vouches. They
// are written as a whole, and nothing waits for that: who may lead doesn't depend on them.
type reports struct {
	mu   sync.Mutex
	said map[replica.ID]coordination.Suspect
	wake chan struct{}
}

func (r *reports) init() {
	r.said, r.wake = map[replica.ID]coordination.Suspect{}, make(chan struct{}, 1)
}

// set notes what is to be reported of one copy; nil: nothing.
func (r *reports) set(id replica.ID, one *coordination.Suspect) {
	r.mu.Lock()
	defer r.mu.Unlock()
	before, was := r.said[id]
	switch {
	case one == nil && !was, one != nil && was && before == *one:
		return
	case one == nil:
		delete(r.said, id)
	default:
		r.said[id] = *one
	}
	select {
	case r.wake <- struct{}{}:
	default:
	}
}

func (r *reports) all() []coordination.Suspect {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.SortedFunc(maps.Values(r.said), func(a, b coordination.Suspect) int {
		return cmp.Or(strings.Compare(a.Topic, b.Topic), cmp.Compare(a.Shard, b.Shard))
	})
}

// Suspects is of how many shards this broker doesn't vouch for its copy.
func (s *Service) Suspects() int {
	s.reports.mu.Lock()
	defer s.reports.mu.Unlock()
	return len(s.reports.said)
}

// report notes what is to be told of a copy.
func (s *Service) report(p *Shard) {
	state := &p.own.state
	if state.Whole() {
		s.reports.set(p.id(), nil)
		return
	}
	if p.logs == nil {
		return // it says how far it goes when it is open again
	}
	data := p.logs.parts[replica.Data]
	one := coordination.Suspect{
		Topic: p.topic.id, Shard: p.number, End: reach(data), State: reach(p.logs.parts[replica.State]),
		Cut: state.Doubts() == copystate.Cut,
	}
	if !state.Anew() {
		one.Lacks = p.logs.lacking()
	}
	if epochs := data.Epochs(); len(epochs) > 0 {
		one.Epoch = epochs[len(epochs)-1].Epoch
	}
	s.reports.set(p.id(), &one)
}

// suspectClosed is what is reported of a copy whose logs cannot be opened: how far it went when they
// were last closed by this process.
func (p *Shard) suspectClosed() *coordination.Suspect {
	own := &p.own
	return &coordination.Suspect{Topic: p.topic.id, Shard: p.number, Epoch: own.epoch, End: own.reached[replica.Data], State: own.reached[replica.State], Closed: true}
}

// reporter writes the reports whenever they have changed, until the service closes.
func (s *Service) reporter() {
	for {
		select {
		case <-s.ctx.Done():
			return
		case <-s.reports.wake:
		}
		for {
			err := s.writeReports()
			if err == nil || s.ctx.Err() != nil {
				break
			}
			s.log.Warn("which copies this broker doubts could not be reported; trying again", "error", err)
			timer := time.NewTimer(firstRetry)
			select {
			case <-s.ctx.Done():
				timer.Stop()
				return
			case <-timer.C:
			}
		}
	}
}

func (s *Service) writeReports() error {
	if s.config.Report == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(s.ctx, reportTime)
	defer cancel()
	return s.config.Report(ctx, s.reports.all())
}
