package indexing

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/carillon-mq/carillon/broker/log"
	"github.com/carillon-mq/carillon/broker/subjectindex"
)

// Indexes has the indexes of the shards on a disk, and the one goroutine that works on them.
type Indexes struct {
	disk   *log.Disk
	log    *slog.Logger
	cache  *subjectindex.Cache
	parts  atomic.Int64 // bytes of records that are in no file
	ctx    context.Context
	cancel context.CancelFunc
	over   chan struct{}

	mu      sync.Mutex
	open    map[*Index]struct{}
	queue   []*Index
	retries []*Index // after a failure, at the next tick of retryTime
	wake    chan struct{}
}

// New returns the indexes of a disk. Close ends them. logger may be nil.
func New(disk *log.Disk, logger *slog.Logger) *Indexes {
	if logger == nil {
		logger = slog.New(slog.DiscardHandler)
	}
	s := &Indexes{disk: disk, log: logger, cache: subjectindex.NewCache(disk.FS(), 0), over: make(chan struct{}),
		open: map[*Index]struct{}{}, wake: make(chan struct{}, 1)}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	go s.run()
	return s
}

// Close ends the worker. Each Index has been closed by its owner.
func (s *Indexes) Close() {
	s.cancel()
	<-s.over
}

// Of returns the index of a log, which is not open yet. The caller closes it before the log.
func (s *Indexes) Of(l *log.Log) *Index {
	return &Index{set: s, log: l, turn: make(chan struct{}, 1), ctx: &lifetime{context.Background(), make(chan struct{})}}
}

// admit notes an index that is to be open. If too many are, it has the one closed that was asked
// for least lately, and reports whether there is room.
func (s *Indexes) admit(x *Index) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.parts.Load() > partsBytes {
		s.evict(time.Now().Add(-evictTime))
		return false
	}
	if len(s.open) >= mostOpen && !s.evict(time.Now().Add(-evictTime)) {
		return false
	}
	s.open[x] = struct{}{}
	return true
}

// evict has the index closed that was asked for least lately, and before a time. mu is held.
func (s *Indexes) evict(before time.Time) bool {
	var oldest *Index
	least := before.UnixNano()
	for x := range s.open {
		if asked := x.asked.Load(); asked < least {
			oldest, least = x, asked
		}
	}
	if oldest == nil {
		return false
	}
	delete(s.open, oldest)
	oldest.unwanted.Store(true)
	s.enqueue(oldest)
	return true
}

// closed notes an index that is not open any more.
func (s *Indexes) closed(x *Index) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.open, x)
}

// submit queues an index for the worker.
func (s *Indexes) submit(x *Index) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.enqueue(x)
}

// enqueue is submit with mu held.
func (s *Indexes) enqueue(x *Index) {
	if x.queued {
		return
	}
	x.queued = true
	s.queue = append(s.queue, x)
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// next returns the next index of the queue, or nil.
func (s *Indexes) next() *Index {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.queue) == 0 {
		return nil
	}
	x := s.queue[0]
	s.queue = s.queue[1:]
	x.queued = false
	return x
}

// run works on the indexes that are queued, a piece of each in turn.
func (s *Indexes) run() {
	defer close(s.over)
	sweep, retry := time.NewTicker(sweepTime), time.NewTicker(retryTime)
	defer sweep.Stop()
	defer retry.Stop()
	for {
		select {
		case <-s.ctx.Done():
			return
		case <-sweep.C:
			s.sweep()
		case <-retry.C:
			s.retry()
		default:
		}
		if x := s.next(); x != nil {
			s.work(x)
			continue
		}
		select {
		case <-s.ctx.Done():
			return
		case <-s.wake:
		case <-sweep.C:
			s.sweep()
		case <-retry.C:
			s.retry()
		}
	}
}

// work does a piece of work on an index, and queues it again if there is more.
func (s *Indexes) work(x *Index) {
	more, err := x.work()
	switch {
	case x.ctx.Err() != nil:
	case err != nil:
		if !x.failing.Swap(true) {
			s.log.Warn("the subject index of a Topic can't be made for now; questions about subjects read the log", "log", x.log.Name(), "error", err)
		}
		s.mu.Lock()
		if !slices.Contains(s.retries, x) {
			s.retries = append(s.retries, x)
		}
		s.mu.Unlock()
	case more:
		x.failing.Store(false)
		s.submit(x)
	default:
		x.failing.Store(false)
	}
}

func (s *Indexes) retry() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, x := range s.retries {
		s.enqueue(x)
	}
	s.retries = nil
}

// sweep has indexes closed that nobody has asked for lately.
func (s *Indexes) sweep() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for s.evict(time.Now().Add(-idleTime)) {
	}
}
