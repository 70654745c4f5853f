package topic

import (
	"slices"

	"github.com/carillon-mq/carillon/broker/clock"
	"github.com/carillon-mq/carillon/broker/log"
	"github.com/carillon-mq/carillon/broker/replica"
)

// enough says whether the in-sync set has as many members as are asked for.
func (s *ShardLeader) enough() bool { return s.leading.Load().Enough() }

// failure is why nothing can be appended, or nil.
func (s *ShardLeader) failure() error {
	if err := s.failed.Load(); err != nil {
		return *err
	}
	return s.service.config.Disk.Failed()
}

// fail has the log closed and opened again, if the disk works. mu is held.
func (s *ShardLeader) fail(err error) {
	if s.failed.CompareAndSwap(nil, &err) && s.service.config.Disk.Failed() == nil && !s.service.closing.Load() {
		s.service.stumble(s.shard, "append", err)
	}
}

// advance takes over how far the watermark has come. Whoever waits for it hears of that from the acker.
func (s *ShardLeader) advance() {
	l := s.leading.Load()
	if !s.readable.Load() {
		if !l.Readable() {
			return
		}
		s.high.Raise(l.High(replica.Data))
		if !s.readable.Swap(true) && s.shard.leading.Load() == s {
			s.service.wake(s.shard) // to be announced
		}
		return
	}
	s.high.Raise(l.High(replica.Data))
}

// met notes that what was promised holds here up to end, for one of the logs.
func (s *ShardLeader) met(part replica.Part, end uint64) {
	s.safe[part].Raise(end)
	if s.leading.Load().Safe(part, end) {
		s.advance()
	}
}

// keepSpec notes in the log's directory what is asked for.
func (s *ShardLeader) keepSpec(v *view) {
	s.specMu.Lock()
	defer s.specMu.Unlock()
	s.mu.Lock()
	marked := s.marked
	s.mu.Unlock()
	if err := s.setSpec(v, !marked); err != nil {
		s.service.log.Warn("what is asked for of a Topic could not be kept beside its log", "topic", s.shard.name, "error", err)
	}
}

// setSpec has the log keep what is asked for. specMu is held.
func (s *ShardLeader) setSpec(v *view, noIDs bool) error {
	spec, epoch := v.keptSpec(noIDs, false), s.epoch.Load()
	if meta := s.data.Meta(); meta.Epoch == epoch && string(meta.Spec) == string(spec) {
		return nil
	}
	return s.data.SetSpec(spec, epoch)
}

// markIDs notes, safely, that there are messages with ids from now on.
func (s *ShardLeader) markIDs(v *view) error {
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
func (s *ShardLeader) Topic() *Topic { return s.topic }

// Shard is the shard as it is known to all brokers.
func (s *ShardLeader) Shard() *Shard { return s.shard }

// Epoch is the one under which this broker leads.
func (s *ShardLeader) Epoch() uint64 { return s.epoch.Load() }

// Inherited returns where the data log ended when this broker began to lead. What is below may have
// been read under an earlier leader.
func (s *ShardLeader) Inherited() uint64 { return s.inherited }

// Data is the log of records. What stands at or beyond the high watermark is not to be shown.
func (s *ShardLeader) Data() *log.Log { return s.data }

// State is the log of cursors.
func (s *ShardLeader) State() *log.Log { return s.state }

// Offsets are what readers may see: from start up to, not including, end, the high watermark.
func (s *ShardLeader) Offsets() (start, end uint64) {
	end = s.high.Load()
	start = s.data.Start()
	if keep := s.shard.view.Load().retention.Messages; keep > 0 && end > keep {
		start = max(start, end-keep)
	}
	return min(s.visible.Raise(start), end), end
}

// NewCursor reads from an offset on. It reads beyond the high watermark if it is let.
func (s *ShardLeader) NewCursor(from uint64) *log.Cursor { return s.data.NewCursor(from) }

// Watch calls changed after the high watermark moved, and perhaps once more after stop. changed must not block.
func (s *ShardLeader) Watch(changed func()) (stop func()) {
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

func (s *ShardLeader) watching() []*func() {
	if all := s.watchers.Load(); all != nil {
		return *all
	}
	return nil
}

func (s *ShardLeader) moved() {
	for _, changed := range s.watching() {
		(*changed)()
	}
}

func ptr[T any](v T) *T { return &v }

// now is the time of a record appended now, and the moment on the clock's Mono. A time is no earlier than that of
// the record before, unless that is further in the future than clocks that agree can explain. mu is held.
func (s *ShardLeader) now() (now, mono int64) {
	now, mono = s.service.config.Clock.Read()
	if s.lastTime > now && s.lastTime-now <= int64(clock.Bound) {
		now = s.lastTime
	}
	return now, mono
}
