package topic

import (
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/carillon-mq/carillon/broker/coordination"
)

// work is where a shard stands in the queue. One worker at a time works for it.
type work struct{ queued, busy, again, later bool }

// queue holds the shards for which something is to be done: first those that somebody waits for, then
// those that can wait.
type queue struct {
	mu      sync.Mutex
	more    *sync.Cond
	ready   []*Shard
	later   []*Shard
	closing bool
}

func newQueue() *queue {
	q := &queue{}
	q.more = sync.NewCond(&q.mu)
	return q
}

// add has a worker look at p.
func (q *queue) add(p *Shard) {
	q.mu.Lock()
	defer q.mu.Unlock()
	switch w := &p.work; {
	case w.busy:
		w.again = true
	case !w.queued:
		w.queued = true
		q.ready = append(q.ready, p)
		q.more.Signal()
	}
}

// postpone has a worker look at p when nothing else is to be done.
func (q *queue) postpone(p *Shard) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.later = append(q.later, p)
	q.more.Signal()
}

// next waits for something to do. idle says that nobody waits for it.
func (q *queue) next() (p *Shard, idle, ok bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for {
		switch {
		case q.closing:
			return nil, false, false
		case len(q.ready) > 0:
			p, q.ready = q.ready[0], q.ready[1:]
			p.work = work{busy: true}
			return p, false, true
		case len(q.later) > 0:
			p, q.later = q.later[0], q.later[1:]
			if p.work.queued { // whoever works for it sees to the rest, too
				continue
			}
			if p.work.busy { // it was put off a moment ago, by the worker that is still about to leave it
				p.work.later = true
				continue
			}
			p.work.busy = true
			return p, true, true
		}
		q.more.Wait()
	}
}

func (q *queue) done(p *Shard) {
	q.mu.Lock()
	defer q.mu.Unlock()
	again, later := p.work.again, p.work.later
	p.work = work{}
	switch {
	case again:
		p.work.queued = true
		q.ready = append(q.ready, p)
		q.more.Signal()
	case later:
		q.later = append(q.later, p)
		q.more.Signal()
	}
}

func (q *queue) close() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.closing = true
	q.more.Broadcast()
}

func (s *Service) worker() {
	for {
		p, idle, ok := s.queue.next()
		if !ok {
			return
		}
		s.work(p, idle)
		s.queue.done(p)
	}
}

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
			s.queue.add(p)
		}
	}
}

// movedAway says whether a shard's replicas are all on other brokers.
func (s *Service) movedAway(state *coordination.State, topicID string, number int) bool {
	shard := state.Shard(topicID, number)
	return shard != nil && !slices.Contains(shard.Replicas, s.config.Self)
}

// setAsideStrangers moves logs of Topics out of the way that there are not, and says so. Nobody was
// seen deleting them, so it isn't ours to delete what they hold.
func (s *Service) setAsideStrangers(first *coordination.State) {
	for _, key := range first.Unreadable() {
		if strings.HasPrefix(key, "topics/") || strings.Contains(key, "/topics/") {
			s.log.Warn("logs of unknown Topics are left where they are, since not every Topic's key can be read", "key", key)
			return
		}
	}
	found := s.found
	s.found = nil
	for _, stored := range found {
		id := stored.Meta.Topic
		if stored.Err != nil {
			id = stored.Name
			if at := strings.LastIndexByte(id, '-'); at >= 0 {
				id = id[:at]
			}
		}
		if s.ctx.Err() != nil {
			return
		}
		if first.TopicByID(id) != nil || s.State().TopicByID(id) != nil {
			if stored.Err != nil || !s.movedAway(first, id, stored.Meta.Shard) || !s.movedAway(s.State(), id, stored.Meta.Shard) {
				continue
			}
		}
		to, err := s.config.Disk.SetAside(stored.Name)
		if err != nil {
			s.log.Error("a log of an unknown Topic could not be set aside", "log", stored.Name, "error", err)
			continue
		}
		s.counts.setAside.Add(1)
		s.log.Warn("a log of a Topic that does not exist, or is kept by other brokers, was set aside; delete it if nobody misses it", "log", stored.Name, "to", to, "spec", string(stored.Meta.Spec))
	}
}
