package topic

import (
	"time"

	"github.com/carillon-mq/carillon/broker/work"
)

// wake has a worker look at p soon.
func (s *Service) wake(p *Shard) { s.tasks.Wake(p, work.Normal) }

// postpone has a worker look at p while no other shard has to be looked at.
func (s *Service) postpone(p *Shard) { s.tasks.Wake(p, work.Later) }

// stumble notes what went wrong with a shard's logs and when to try again: soon, and less often
// while it goes on.
func (s *Service) stumble(p *Shard, doing string, err error) {
	s.openMu.Lock()
	defer s.openMu.Unlock()
	now := time.Now()
	if now.Sub(p.stumbled) > 2*lastRetry {
		p.stumbles = 0
	}
	p.stumbles, p.stumbled = p.stumbles+1, now
	wait := min(firstRetry<<min(p.stumbles-1, 10), lastRetry)
	p.trouble.Store(&trouble{err: err, again: now.Add(wait)})
	s.retries[p] = struct{}{}
	s.log.Error("trouble with a Topic's log", "topic", p.Name(), "doing", doing, "error", err, "again", wait)
}

// retry has the shards looked at whose time has come.
func (s *Service) retry(now time.Time) {
	s.openMu.Lock()
	defer s.openMu.Unlock()
	for p := range s.retries {
		if trouble := p.trouble.Load(); trouble == nil {
			delete(s.retries, p)
		} else if !now.Before(trouble.again) {
			s.wake(p)
		}
	}
}

// untrouble ends the trouble that was there when the pass began. A log may fail during the pass: that
// is for the next one.
func (p *Shard) untrouble() { p.trouble.CompareAndSwap(p.tried, nil) }
