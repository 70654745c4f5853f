package topic

import (
	"time"

	"github.com/carillon-mq/carillon/broker/work"
)

// wake queues p for a worker.
func (s *Service) wake(p *Shard) { s.tasks.Wake(p, work.Normal) }

// postpone queues p for a worker behind all shards of wake.
func (s *Service) postpone(p *Shard) { s.tasks.Wake(p, work.Later) }

// retryLater notes a failure of a shard's logs and when to retry: after firstRetry, doubling up to
// lastRetry, as its Backoff says.
func (s *Service) retryLater(p *Shard, doing string, err error) {
	s.openMu.Lock()
	defer s.openMu.Unlock()
	now := time.Now()
	wait := p.backoff.Failed(now)
	p.trouble.Store(&trouble{err: err, again: now.Add(wait)})
	s.retries[p] = struct{}{}
	s.log.Error("trouble with a Topic's log", "topic", p.Name(), "doing", doing, "error", err, "again", wait)
}

// retry wakes the shards whose retry is due.
func (s *Service) retry(now time.Time) {
	s.openMu.Lock()
	defer s.openMu.Unlock()
	for _, p := range inOrder(s.retries) {
		if trouble := p.trouble.Load(); trouble == nil {
			delete(s.retries, p)
		} else if !now.Before(trouble.again) {
			s.wake(p)
		}
	}
}

// untrouble ends the trouble that was there when the pass began. A log may fail during the pass:
// that is for the next one.
func (p *Shard) untrouble() { p.trouble.CompareAndSwap(p.tried, nil) }
