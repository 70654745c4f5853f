package topic

import (
	"math"

	"github.com/carillon-mq/carillon/broker/clock"
	"github.com/carillon-mq/carillon/broker/keptspec"
	"github.com/carillon-mq/carillon/broker/log"
	"github.com/carillon-mq/carillon/broker/removal"
	"github.com/carillon-mq/carillon/broker/replica"
	"github.com/carillon-mq/carillon/broker/retention"
)

// Removed returns the records below the high watermark that were removed one by one.
func (s *ShardLeader) Removed() *removal.Set { return s.removing.Set() }

// enough reports whether the in-sync set has minInSync members.
func (s *ShardLeader) enough() bool { return s.leading.Load().Enough() }

// failure returns why nothing can be appended, or nil.
func (s *ShardLeader) failure() error {
	if err := s.failed.Load(); err != nil {
		return *err
	}
	return s.service.config.Disk.Failed()
}

// hasEnded returns why leadership ended, or nil.
func (s *ShardLeader) hasEnded() error {
	if over := s.over.Load(); over != nil {
		return *over
	}
	return nil
}

// fail has the log closed and opened again if the disk works. mu is held.
func (s *ShardLeader) fail(err error) {
	if s.failed.CompareAndSwap(nil, &err) && s.service.config.Disk.Failed() == nil && !s.service.closing.Load() {
		s.service.retryLater(s.shard, "append", err)
	}
}

// advance raises the high watermark of readers, and returns it. The acker tells those that watch
// it.
func (s *ShardLeader) advance() uint64 {
	l := s.leading.Load()
	if !s.readable.Load() {
		if !l.Readable() {
			return 0
		}
		s.high.Raise(l.High(replica.Data))
		if !s.readable.Swap(true) && s.shard.leading.Load() == s {
			s.service.wake(s.shard) // the worker announces it
		}
	}
	return s.high.Raise(l.High(replica.Data))
}

// persisted notes that one of the logs is as durable here up to end as the Topic asks.
func (s *ShardLeader) persisted(part replica.Part, end uint64) {
	s.safe[part].Raise(end)
	if s.leading.Load().Safe(part, end) {
		s.advance()
	}
}

// keepSpec keeps the desired spec beside the log.
func (s *ShardLeader) keepSpec(v *view) {
	s.specMu.Lock()
	defer s.specMu.Unlock()
	s.mu.Lock()
	marked := s.marked
	s.mu.Unlock()
	// An empty log is not marked if it was not: the mark would save no reading.
	start, end, _ := s.data.Offsets()
	if err := keptspec.Keep(s.data, v.desired, !marked && (start < end || keptspec.NoIDs(s.data)), s.epoch.Load()); err != nil {
		s.service.log.Warn("the spec of a Topic could not be kept beside its log", "topic", s.shard.name, "error", err)
	}
}

// markIDs notes durably that the log may have message ids.
func (s *ShardLeader) markIDs(v *view) error {
	s.specMu.Lock()
	defer s.specMu.Unlock()
	if err := keptspec.Keep(s.data, v.desired, false, s.epoch.Load()); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.marked = true
	return nil
}

// Topic returns the Topic of the shard.
func (s *ShardLeader) Topic() *Topic { return s.topic }

// Shard returns the shard.
func (s *ShardLeader) Shard() *Shard { return s.shard }

// Epoch returns the epoch under which this broker leads.
func (s *ShardLeader) Epoch() uint64 { return s.epoch.Load() }

// Inherited returns where the data log ended when this broker began to lead. Records below may have
// been read under an earlier leader.
func (s *ShardLeader) Inherited() uint64 { return s.inherited }

// Followers returns what the leader knows of its followers, by broker.
func (s *ShardLeader) Followers() []replica.Follower {
	if leading := s.leading.Load(); leading != nil {
		return leading.Followers()
	}
	return nil
}

// Data returns the log of records. Records at or beyond the high watermark must not be shown.
func (s *ShardLeader) Data() *log.Log { return s.data }

// State returns the log of cursors.
func (s *ShardLeader) State() *log.Log { return s.state }

// Offsets returns the offsets that readers may see: start ≤ offset < end, the high watermark. start
// is that of the first record that is not removed, or end.
func (s *ShardLeader) Offsets() (start, end uint64) {
	end = s.high.Load()
	start = max(s.data.Start(), retention.Kept(s.Removed(), s.removing.Settled(end), s.shard.view.Load().retention.Messages))
	if s.Removed().Len() > 0 {
		start = min(s.Removed().Next(max(start, s.visible.Load())), end)
	}
	return min(s.visible.Raise(start), end), end
}

// NewCursor returns a cursor of the data log. It does not stop at the high watermark.
func (s *ShardLeader) NewCursor(from uint64) *log.Cursor { return s.data.NewCursor(from) }

// Watch calls changed after the high watermark moved, until stop, and perhaps once more. changed
// must not block.
func (s *ShardLeader) Watch(changed func()) (stop func()) { return s.watchers.Watch(changed) }

// AppendState appends to the state log under the epoch of the leader. a.Done is called when the
// append is as durable on all in-sync replicas as a.Durability says, or has failed. It may be nil.
func (s *ShardLeader) AppendState(a *log.Append) (first uint64, err error) {
	return s.appends.Append(a)
}

// now returns the time for a new record, and the clock's Mono. Times of records don't go back,
// unless the last one is further in the future than agreeing clocks can explain. mu is held.
func (s *ShardLeader) now() (now, mono int64) {
	now, mono = s.service.config.Clock.Read()
	if s.lastTime > now && s.lastTime-now <= int64(clock.Bound) {
		now = s.lastTime
	}
	return now, mono
}

// EpochAt returns the epoch of a record, and up to which offset it goes. It returns 0 while the log
// may not know where its epochs begin: a copy with a wrong one would seem to be of another history.
func (s *ShardLeader) EpochAt(offset uint64) (epoch, until uint64) {
	if !s.data.KnowsEpochs() {
		return 0, math.MaxUint64
	}
	return s.data.EpochAt(offset)
}
