package topic

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/carillon-mq/carillon/broker/log"
)

// Shard is one that this broker leads, with its logs open.
//
// Whoever publishes judges and appends under mu, so that conditions are judged at the end of the
// log. How far readers may read, the high watermark, is moved by the disk's committer, which takes no lock of ours.
type Shard struct {
	service *Service
	topic   *Topic
	data    *log.Log
	state   *log.Log
	damage  string // what opening the logs found, for people; empty: nothing
	epoch   atomic.Uint64
	high    atomic.Uint64 // the high watermark
	failed  atomic.Pointer[error]
	inRound bool // the acker's
	ending  atomic.Bool

	watchers atomic.Pointer[[]*func()] // never changed in place; watchMu guards who replaces it
	watchMu  sync.Mutex

	firstTime, finalTime timeOf // of what readers see

	visible atomic.Uint64 // the first offset that readers see; never goes back
	kept    retained

	specMu sync.Mutex // who writes what is kept beside the log; comes before mu

	mu        sync.Mutex
	closed    bool
	end       uint64 // of data
	lastTime  int64
	lastID    []byte // of the last message, if lastKnown
	lastKnown bool
	marked    bool // messages with ids may be appended: the log says that there are some
	ids       window
	subjects  *subjects      // nil: nobody asked yet
	reading   sync.WaitGroup // who reads the log for subjects; begun while not closed
	waiting   []*pending     // answers that rest on records under way, and nothing else
}

// openShard opens the logs of a Topic that this broker leads.
func (s *Service) openShard(t *Topic, v *view) {
	shard, err := s.openLogs(t, v)
	if err != nil {
		s.stumble(t, "open", err)
		return
	}
	t.trouble.Store(nil)
	s.openMu.Lock()
	s.open[shard] = struct{}{}
	s.openMu.Unlock()
	t.welcome(shard, v)
	if s.config.Shard != nil {
		s.config.Shard(shard, true)
	}
	s.queue.postpone(t)
}

func (s *Service) openLogs(t *Topic, v *view) (*Shard, error) {
	ids, spec := t.logIDs(), v.keptSpec(true)
	start := max(v.desired.Spec.Stream.FirstSequence, 1)
	data, err := s.config.Disk.Open(ids[0], start, v.epoch, spec)
	if err != nil {
		return nil, err
	}
	state, err := s.config.Disk.Open(ids[1], 1, v.epoch, nil)
	if err != nil {
		_ = data.Close() // nothing was appended
		return nil, err
	}
	shard := &Shard{service: s, topic: t, data: data, state: state}
	shard.epoch.Store(v.epoch)
	first, end, _ := data.Offsets()
	shard.end = end
	shard.high.Store(end)
	shard.visible.Store(first)
	for _, info := range data.SegmentInfos() {
		if info.End > info.Base {
			shard.lastTime = max(shard.lastTime, info.Last.UnixNano())
		}
	}
	var damage []string
	name := ids[0].Name()
	if v.epoch > 1 && !s.knows(name) {
		damage = append(damage, fmt.Sprintf("the log was not there in epoch %d and begins anew; if it had messages, they are lost", v.epoch))
	}
	damage = append(damage, s.judgeRecovery(t, data)...)
	damage = append(damage, s.judgeRecovery(t, state)...)
	shard.damage = strings.Join(damage, "; ")
	if shard.damage != "" {
		s.log.Error("a Topic's log is damaged; what can be read is served", "topic", t.name, "damage", shard.damage)
	}
	shard.ids.init(s)
	if err := shard.rememberIDs(v); err != nil {
		_, _ = data.Close(), state.Close()
		return nil, err
	}
	return shard, nil
}

// knows says whether a log stood on the disk before, and knows it from now on.
func (s *Service) knows(name string) bool {
	s.openMu.Lock()
	defer s.openMu.Unlock()
	known := s.was[name]
	s.was[name] = true
	return known
}

// judgeRecovery tells damage from the torn tail that any crash leaves.
func (s *Service) judgeRecovery(t *Topic, l *log.Log) (damage []string) {
	r := l.Recovery()
	if r.Cut > 0 && len(r.Damaged) == 0 && !r.Rebuilt {
		s.log.Info("a write that was under way when the broker died was cut", "topic", t.name, "log", l.Name(), "bytes", r.Cut)
		return nil
	}
	if r.Suspect {
		return []string{r.Reason}
	}
	return nil
}

// closeShard closes the logs. What was accepted is answered before it returns.
func (s *Service) closeShard(t *Topic, shard *Shard) error {
	shard.mu.Lock()
	shard.closed = true
	shard.mu.Unlock()
	t.shard.CompareAndSwap(shard, nil)
	shard.ending.Store(true)
	shard.reading.Wait()
	if s.config.Shard != nil {
		s.config.Shard(shard, false)
	}
	s.openMu.Lock()
	delete(s.open, shard)
	s.openMu.Unlock()
	var errs []error
	for _, l := range []*log.Log{shard.data, shard.state} {
		if err := l.Close(); err != nil && shard.failed.Load() == nil {
			s.log.Error("a Topic's log was not closed as it should be", "topic", t.name, "log", l.Name(), "error", err)
			errs = append(errs, err)
		}
	}
	shard.mu.Lock()
	shard.ids.clear()
	shard.mu.Unlock()
	if len(errs) > 0 {
		return errs[0]
	}
	return nil
}

// follow takes over what changed in the view.
func (s *Shard) follow(v *view) {
	s.mu.Lock()
	if v.epoch > s.epoch.Load() {
		s.epoch.Store(v.epoch)
	}
	s.mu.Unlock()
	s.kept.due.Store(0)
}

// keepSpec notes in the log's directory what is asked for.
func (s *Shard) keepSpec(v *view) {
	s.specMu.Lock()
	defer s.specMu.Unlock()
	s.mu.Lock()
	marked := s.marked
	s.mu.Unlock()
	if err := s.setSpec(v, !marked); err != nil {
		s.service.log.Warn("what is asked for of a Topic could not be kept beside its log", "topic", s.topic.name, "error", err)
	}
}

// setSpec has the log keep what is asked for. specMu is held.
func (s *Shard) setSpec(v *view, noIDs bool) error {
	spec, epoch := v.keptSpec(noIDs), s.epoch.Load()
	if meta := s.data.Meta(); meta.Epoch == epoch && string(meta.Spec) == string(spec) {
		return nil
	}
	return s.data.SetSpec(spec, epoch)
}

// markIDs notes, safely, that there are messages with ids from now on.
func (s *Shard) markIDs(v *view) error {
	s.specMu.Lock()
	defer s.specMu.Unlock()
	if err := s.setSpec(v, false); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.marked = true
	return nil
}

// Topic is the one that the shard belongs to.
func (s *Shard) Topic() *Topic { return s.topic }

// Epoch is the one under which this broker leads.
func (s *Shard) Epoch() uint64 { return s.epoch.Load() }

// Data is the log of records. What stands at or beyond the high watermark is not to be shown.
func (s *Shard) Data() *log.Log { return s.data }

// State is the log of cursors.
func (s *Shard) State() *log.Log { return s.state }

// Offsets are what readers may see: from start up to, not including, end, the high watermark.
func (s *Shard) Offsets() (start, end uint64) {
	end = s.high.Load()
	start = s.data.Start()
	if keep := s.topic.view.Load().retention.Messages; keep > 0 && end > keep {
		start = max(start, end-keep)
	}
	return min(s.show(start), end), end
}

// show moves the first offset that readers see, and returns it.
func (s *Shard) show(start uint64) uint64 {
	for {
		now := s.visible.Load()
		if start <= now {
			return now
		}
		if s.visible.CompareAndSwap(now, start) {
			return start
		}
	}
}

// NewCursor reads from an offset on. It reads beyond the high watermark if it is let.
func (s *Shard) NewCursor(from uint64) *log.Cursor { return s.data.NewCursor(from) }

// Watch calls changed after the high watermark moved, and perhaps once more after stop. changed must not block.
func (s *Shard) Watch(changed func()) (stop func()) {
	s.watchMu.Lock()
	defer s.watchMu.Unlock()
	w := &changed
	s.watchers.Store(ptr(append(slices.Clone(s.watching()), w)))
	return func() {
		s.watchMu.Lock()
		defer s.watchMu.Unlock()
		s.watchers.Store(ptr(slices.DeleteFunc(slices.Clone(s.watching()), func(other *func()) bool { return other == w })))
	}
}

func (s *Shard) watching() []*func() {
	if all := s.watchers.Load(); all != nil {
		return *all
	}
	return nil
}

func (s *Shard) moved() {
	for _, changed := range s.watching() {
		(*changed)()
	}
}

func ptr[T any](v T) *T { return &v }

// now is the time of a record appended now: times never go back within a shard. mu is held.
func (s *Shard) now() int64 { return max(time.Now().UnixNano(), s.lastTime) }
