package topic

import (
	"errors"
	"strings"
	"sync"
	"time"

	"github.com/carillon-mq/carillon/broker/coordination"
	"github.com/carillon-mq/carillon/broker/log"
)

// work is where a Topic stands in the queue. One worker at a time works for a Topic.
type work struct{ queued, busy, again bool }

// queue holds the Topics for which something is to be done: first those that somebody waits for, then
// those that can wait.
type queue struct {
	mu      sync.Mutex
	more    *sync.Cond
	ready   []*Topic
	later   []*Topic
	closing bool
}

func newQueue() *queue {
	q := &queue{}
	q.more = sync.NewCond(&q.mu)
	return q
}

// add has a worker look at t.
func (q *queue) add(t *Topic) {
	q.mu.Lock()
	defer q.mu.Unlock()
	switch w := &t.work; {
	case w.busy:
		w.again = true
	case !w.queued:
		w.queued = true
		q.ready = append(q.ready, t)
		q.more.Signal()
	}
}

// postpone has a worker look at t when nothing else is to be done.
func (q *queue) postpone(t *Topic) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.later = append(q.later, t)
	q.more.Signal()
}

// next waits for something to do. idle says that nobody waits for it.
func (q *queue) next() (t *Topic, idle, ok bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for {
		switch {
		case q.closing:
			return nil, false, false
		case len(q.ready) > 0:
			t, q.ready = q.ready[0], q.ready[1:]
			t.work = work{busy: true}
			return t, false, true
		case len(q.later) > 0:
			t, q.later = q.later[0], q.later[1:]
			if t.work.busy || t.work.queued { // whoever works for it sees to the rest, too
				continue
			}
			t.work.busy = true
			return t, true, true
		}
		q.more.Wait()
	}
}

func (q *queue) done(t *Topic) {
	q.mu.Lock()
	defer q.mu.Unlock()
	again := t.work.again
	t.work = work{}
	if again {
		t.work.queued = true
		q.ready = append(q.ready, t)
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
		t, idle, ok := s.queue.next()
		if !ok {
			return
		}
		s.work(t, idle)
		if t.shard.Load() == nil && !t.mayWait(t.view.Load(), true) {
			t.turnAway(time.Now())
		}
		s.queue.done(t)
	}
}

// work brings what is open of a Topic in line with its view.
func (s *Service) work(t *Topic, idle bool) {
	v, shard := t.view.Load(), t.shard.Load()
	if trouble := t.trouble.Load(); trouble != nil && time.Now().Before(trouble.again) && v.lead {
		return // the keeper comes back to it
	}
	switch {
	case v.gone:
		if err := s.deleteLogs(t); err != nil {
			s.stumble(t, "delete", err)
		} else {
			t.trouble.Store(nil)
		}
	case !v.lead:
		if shard != nil {
			s.closeShard(t, shard)
		}
		t.trouble.Store(nil)
	case shard != nil && shard.failed.Load() != nil:
		if s.config.Disk.Failed() != nil {
			return // until the broker is restarted; what it holds can be read
		}
		s.closeShard(t, shard)
		s.openShard(t, v)
	case shard == nil:
		s.openShard(t, v)
	case idle:
		shard.keepSpec(v)
	default:
		shard.follow(v)
		s.queue.postpone(t)
	}
}

// stumble notes what went wrong with a Topic's logs and when to try again: soon, and less often
// while it goes on.
func (s *Service) stumble(t *Topic, doing string, err error) {
	s.openMu.Lock()
	defer s.openMu.Unlock()
	now := time.Now()
	if now.Sub(t.stumbled) > 2*lastRetry {
		t.stumbles = 0
	}
	t.stumbles, t.stumbled = t.stumbles+1, now
	wait := min(firstRetry<<min(t.stumbles-1, 10), lastRetry)
	t.trouble.Store(&trouble{err: err, again: now.Add(wait)})
	s.retries[t] = struct{}{}
	s.log.Error("trouble with a Topic's log", "topic", t.name, "doing", doing, "error", err, "again", wait)
}

// retry has the Topics looked at whose time has come.
func (s *Service) retry(now time.Time) {
	s.openMu.Lock()
	defer s.openMu.Unlock()
	for t := range s.retries {
		if trouble := t.trouble.Load(); trouble == nil {
			delete(s.retries, t)
		} else if !now.Before(trouble.again) {
			s.queue.add(t)
		}
	}
}

// logIDs are the logs of a Topic, its data first.
func (t *Topic) logIDs() [2]log.Identity {
	return [2]log.Identity{{Topic: t.id}, {Topic: t.id, Part: statePart}}
}

const statePart = "state"

func (s *Service) deleteLogs(t *Topic) error {
	if shard := t.shard.Load(); shard != nil {
		s.closeShard(t, shard)
	}
	var errs []error
	for _, id := range t.logIDs() {
		errs = append(errs, s.config.Disk.Delete(id.Name()))
	}
	return errors.Join(errs...)
}

// closeAll closes what is open at the end.
func (s *Service) closeAll() error {
	var wg sync.WaitGroup
	var mu sync.Mutex
	var errs []error
	next := make(chan *Shard)
	for range openers {
		wg.Go(func() {
			for shard := range next {
				if err := s.closeShard(shard.topic, shard); err != nil {
					mu.Lock()
					errs = append(errs, err)
					mu.Unlock()
				}
			}
		})
	}
	for _, shard := range s.shards() {
		next <- shard
	}
	close(next)
	wg.Wait()
	return errors.Join(errs...)
}

// shards are those that are open.
func (s *Service) shards() []*Shard {
	s.openMu.Lock()
	defer s.openMu.Unlock()
	out := make([]*Shard, 0, len(s.open))
	for shard := range s.open {
		out = append(out, shard)
	}
	return out
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
			continue
		}
		to, err := s.config.Disk.SetAside(stored.Name)
		if err != nil {
			s.log.Error("a log of an unknown Topic could not be set aside", "log", stored.Name, "error", err)
			continue
		}
		s.counts.setAside.Add(1)
		s.log.Warn("a log of a Topic that does not exist was set aside; delete it if nobody misses it", "log", stored.Name, "to", to, "spec", string(stored.Meta.Spec))
	}
}
