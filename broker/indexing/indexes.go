package indexing

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/carillon-mq/carillon/broker/log"
	"github.com/carillon-mq/carillon/broker/removal"
	"github.com/carillon-mq/carillon/broker/subjectindex"
	"github.com/carillon-mq/carillon/broker/work"
)

// Indexes has the indexes of the shards on a disk, and the goroutines that work on them.
type Indexes struct {
	disk   *log.Disk
	log    *slog.Logger
	cache  *subjectindex.Cache
	parts  atomic.Int64 // bytes of records that are in no file
	ctx    context.Context
	cancel context.CancelFunc
	over   chan struct{}

	readers *work.Tasks[*Index, struct{}] // open and close indexes, and read logs
	makers  *work.Tasks[*maker, struct{}] // write files
	finders *work.Tasks[*Lasts, struct{}] // find last records
	loaders *work.Tasks[*loader, struct{}]

	lasts    lastsMemory
	mostOpen int // indexes

	mu      sync.Mutex
	open    map[*Index]struct{}
	retries []*Index // after a failure, at the next tick of retryTime
}

// New returns the indexes of a disk. Close ends them. logger may be nil.
func New(disk *log.Disk, logger *slog.Logger) *Indexes {
	if logger == nil {
		logger = slog.New(slog.DiscardHandler)
	}
	s := &Indexes{disk: disk, log: logger, cache: subjectindex.NewCache(disk.FS(), 0), over: make(chan struct{}),
		open: map[*Index]struct{}{}, mostOpen: mostOpen}
	s.lasts.most, s.lasts.all = lastsInAll, map[*Lasts]struct{}{}
	s.readers = work.NewTasks(readersAtOnce, func(_ *struct{}, x *Index, _ work.Lane) bool {
		more, err := x.step()
		return s.did(x, &x.readFailed, more, err)
	})
	s.makers = work.NewTasks(makersAtOnce, func(_ *struct{}, m *maker, _ work.Lane) bool {
		more, err := m.of.make()
		return s.did(m.of, &m.of.makeFailed, more, err)
	})
	s.finders = work.NewTasks(findersAtOnce, func(_ *struct{}, l *Lasts, _ work.Lane) bool { return l.step() })
	s.loaders = work.NewTasks(loadersAtOnce, func(_ *struct{}, l *loader, _ work.Lane) bool {
		if l.of.ctx.Err() == nil {
			l.of.load()
		}
		return false
	})
	s.ctx, s.cancel = context.WithCancel(context.Background())
	go s.run()
	return s
}

// Close ends the goroutines. Each Index and each Lasts has been closed by its owner.
func (s *Indexes) Close() {
	s.cancel()
	<-s.over
	s.finders.Close()
	s.loaders.Close()
	s.readers.Close()
	s.makers.Close()
}

// Of returns the index of a log, which is not open yet. The caller closes it before the log.
// removed has the records that no answer counts; nil: there are none. unreadable judges errors of
// reading the log, as for all its readers, and returns what is to be said.
func (s *Indexes) Of(l *log.Log, removed *removal.Set, unreadable func(err error) error) *Index {
	x := &Index{set: s, log: l, removed: removed, unreadable: unreadable, turn: make(chan struct{}, 1), ctx: newLifetime()}
	x.maker.of = x
	return x
}

// admit notes an index that is to be open. If too many are, it has the one closed that was asked
// for least lately, and reports whether there is room.
func (s *Indexes) admit(x *Index, by asker) bool {
	spared := time.Now().Add(-evictTime)
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, ok := s.open[x]; ok {
		return true
	}
	if parts := s.parts.Load(); parts > partsBytes {
		s.evict(spared, by)
		if by != forConditions || parts > conditionParts {
			return false
		}
	}
	if len(s.open) >= s.mostOpen && !s.evict(spared, by) {
		return false
	}
	s.open[x] = struct{}{}
	x.unwanted.Store(false)
	return true
}

// evict has the index closed that was asked for least lately, and before a time. A condition spares
// only those that conditions asked since. mu is held.
func (s *Indexes) evict(before time.Time, by asker) bool {
	var oldest *Index
	var least int64
	for x := range s.open {
		asked, spared := x.asked.Load(), x.asked.Load()
		if by == forConditions {
			spared = x.needed.Load()
		}
		if spared < before.UnixNano() && (oldest == nil || asked < least) {
			oldest, least = x, asked
		}
	}
	if oldest == nil {
		return false
	}
	delete(s.open, oldest)
	oldest.unwanted.Store(true)
	s.readers.Wake(oldest, work.Urgent)
	return true
}

// closed notes an index that is not open any more.
func (s *Indexes) closed(x *Index) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.open, x)
}

// wake has a reader and the maker look at an index.
func (s *Indexes) wake(x *Index) {
	s.readers.Wake(x, work.Urgent)
	s.makers.Wake(&x.maker, work.Urgent)
}

// run looks for indexes that nobody asks for, and tries again what has failed.
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
		}
	}
}

// maker is an Index as the makers see it.
type maker struct {
	work.State
	of *Index
}

// did notes in failed how a piece of work on an index ended.
func (s *Indexes) did(x *Index, failed *atomic.Bool, more bool, err error) bool {
	switch {
	case x.ctx.Err() != nil:
		return false
	case err == nil:
		failed.Store(false)
		return more
	}
	if !failed.Swap(true) {
		s.log.Warn("the subject index of a Topic can't be made for now; questions about subjects read the log", "log", x.log.Name(), "error", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if !slices.Contains(s.retries, x) {
		s.retries = append(s.retries, x)
	}
	return false
}

func (s *Indexes) retry() {
	s.mu.Lock()
	retries := s.retries
	s.retries = nil
	s.mu.Unlock()
	for _, x := range retries {
		s.wake(x)
	}
}

// sweep has indexes closed that nobody has asked for lately.
func (s *Indexes) sweep() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for s.evict(time.Now().Add(-idleTime), forReaders) {
	}
}
