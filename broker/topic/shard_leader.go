package topic

import (
	"github.com/carillon-mq/carillon/broker/dedup"
	"github.com/carillon-mq/carillon/broker/forward"
	"github.com/carillon-mq/carillon/broker/publish"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/carillon-mq/carillon/broker/clock"
	"github.com/carillon-mq/carillon/broker/log"
	"github.com/carillon-mq/carillon/broker/records"
	"github.com/carillon-mq/carillon/broker/replica"
)

// ShardLeader is one that this broker leads, with its logs open.
//
// Whoever publishes judges and appends under mu, so that conditions are judged at the end of the
// log. How far readers may read, the high watermark, is moved by the disk's committer and by the followers'
// progress; neither takes a lock of ours for that.
type ShardLeader struct {
	service    *Service
	topic      *Topic
	shard      *Shard
	data       *log.Log
	state      *log.Log
	damage     string         // what opening the logs found, for people; empty: nothing
	durability log.Durability // by which followers confirm; the worker's
	epoch      atomic.Uint64
	begun      uint64 // the epoch in which it began to lead
	inherited  uint64 // the end of data then
	leading    atomic.Pointer[replica.Leading]
	safe       [replica.Parts]replica.Watermark // up to where what was promised holds on this broker
	// high is the high watermark as readers know it: it begins when readable is set, and never goes back.
	high     replica.Watermark
	readable atomic.Bool
	failed   atomic.Pointer[error]
	// stateFailed is why nothing can be appended to the state log.
	stateFailed atomic.Pointer[error]
	over        atomic.Pointer[error] // why nothing that waits will be known to be safe
	touched     atomic.Bool           // the acker is to look at it
	inRound     bool                  // the acker's, as is unsafe
	unsafe      []*pending            // what is safe here and not yet on all replicas, in the order of its records
	ending      atomic.Bool
	// announced is whether Config.Leading knows of it: others are shown the leader only then. The
	// worker writes it.
	announced atomic.Bool

	ahead    ahead // of the data log
	confirms confirms

	watchers atomic.Pointer[[]*func()] // never changed in place; watchMu guards who replaces it
	watchMu  sync.Mutex

	records.Reader // of what readers see

	visible replica.Watermark // the first offset that readers see; never goes back
	kept    retained

	specMu sync.Mutex // who writes what is kept beside the log; comes before mu

	stateMu sync.Mutex // who appends to the state log; comes after mu

	mu        sync.Mutex
	closed    bool
	end       uint64 // of data
	lastTime  int64
	lastID    []byte // of the last message, if lastKnown
	lastKnown bool
	marked    bool             // messages with ids may be appended: the log says that there are some
	ids       *dedup.Window    // the stream's
	origins   *forward.Origins // the stream's, while this leads
	subjects  *subjects        // nil: nobody asked yet
	reading   sync.WaitGroup   // who reads the log for subjects; begun while not closed
	waiting   []*pending       // answers that rest on records under way, and nothing else
	promises  []*promise       // appends to the state log, likewise, in their order; guarded by stateMu
}

// newLeader begins to lead with the logs that are open. doubt is what was wrong with the copy until it was
// named all the same, for people.
func (s *Service) newLeader(p *Shard, v *view, doubt string) (*ShardLeader, error) {
	data, state := p.logs.parts[replica.Data], p.logs.parts[replica.State]
	if v.durability != log.Memory {
		// What a follower wrote without a sync is made safe before it is counted.
		for _, l := range p.logs.parts {
			if err := l.Flush(); err != nil {
				return nil, err
			}
		}
	}
	shard := &ShardLeader{service: s, topic: p.topic, shard: p, data: data, state: state, damage: doubt, begun: v.epoch, origins: p.origins, ids: &p.ids}
	shard.Reader.Init(shard, p.name, data)
	first, end, _ := data.Offsets()
	_, stateEnd, _ := state.Offsets()
	shard.end, shard.inherited = end, end
	shard.visible.Store(first)
	shard.high.Store(first)
	for _, info := range data.SegmentInfos() {
		if info.End > info.Base {
			shard.lastTime = info.Last.UnixNano()
		}
	}
	s.config.Clock.Wrote(shard.lastTime)
	if len(v.shard.Replicas) > 1 {
		s.config.Clock.AwaitVotes(s.ctx) // by which the ages of message ids in the log are told
	}
	if err := shard.knowIDs(v); err != nil {
		return nil, err
	}
	shard.safe[replica.Data].Store(end)
	shard.safe[replica.State].Store(stateEnd)
	// Followers may be connected already: as soon as leading is set, their progress has the acker look at the shard.
	shard.mu.Lock()
	shard.begin(v, p.high)
	shard.mu.Unlock()
	return shard, nil
}

// begin leads in the epoch of the view. mu is held.
func (s *ShardLeader) begin(v *view, high [replica.Parts]uint64) {
	s.stateMu.Lock()
	defer s.stateMu.Unlock()
	if before := s.leading.Load(); before != nil {
		before.End()
	}
	l := s.service.config.Exchange.Lead(replica.LeadConfig{
		ID: s.shard.id(), Shard: v.shard, MinInSync: v.minInSync, Durability: v.durability,
		Logs: [...]*log.Log{replica.Data: s.data, replica.State: s.state}, High: high, Moved: s.advanced,
		Unreadable: func(err error) { _ = s.Unreadable(err) },
	})
	s.askAgain(l) // completions go there from now on; what came before stands in safe
	s.epoch.Store(v.epoch)
	s.durability = v.durability
	for part := range replica.Parts {
		l.Safe(part, s.safe[part].Load())
	}
}

// enough says whether the in-sync set has as many members as are asked for.
func (s *ShardLeader) enough() bool { return s.leading.Load().Enough() }

// advanced is called when the followers' progress, or a change of the set, has moved a watermark.
func (s *ShardLeader) advanced() {
	if s.leading.Load() == nil {
		return // Lead has not returned; nobody waits yet, and whoever begins to lead looks again
	}
	s.advance()
	s.confirmed()
	s.service.acker.touch(s)
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

// knows says whether a log stood on the disk before, and knows it from now on.
func (s *Service) knows(name string) bool {
	s.openMu.Lock()
	defer s.openMu.Unlock()
	known := s.was[name]
	s.was[name] = true
	return known
}

// stands reports whether a log stood on the disk before, or was made since.
func (s *Service) stands(name string) bool {
	s.openMu.Lock()
	defer s.openMu.Unlock()
	return s.was[name]
}

// unknow forgets that logs of a shard stood on the disk.
func (s *Service) unknow(p *Shard, parts ...replica.Part) {
	s.openMu.Lock()
	defer s.openMu.Unlock()
	for _, part := range parts {
		delete(s.was, p.logIDs()[part].Name())
	}
}

// closeLeader ends leading. over is what those are told who wait for an answer; if it is nil the logs are closed
// first, so that everybody has one.
func (s *Service) closeLeader(p *Shard, shard *ShardLeader, over error) (err error) {
	shard.mu.Lock()
	shard.closed = true
	shard.mu.Unlock()
	p.leading.CompareAndSwap(shard, nil)
	shard.ending.Store(true)
	shard.reading.Wait()
	s.announce(shard, false)
	s.openMu.Lock()
	delete(s.open, shard)
	s.openMu.Unlock()
	if over == nil {
		if shard.failed.Load() != nil {
			p.fault.CompareAndSwap(nil, shard.failed.Load())
		}
		err = s.closeLogs(p)
		over = &publish.LeadershipLostError{Topic: p.topic.name, Why: "its log was closed"}
	}
	shard.leading.Load().End()
	p.high = [...]uint64{replica.Data: shard.leading.Load().High(replica.Data), replica.State: shard.leading.Load().High(replica.State)}
	shard.endConfirms(over)
	s.acker.end(shard, over)
	shard.mu.Lock()
	shard.origins.HandOver()
	shard.mu.Unlock()
	p.ids.Count(&s.counts.followedIDs)
	return err
}

// announce tells Config.Leading of a leader that can be read, and of its end. A request that finds
// the leader through Shard.Led may rely on Config.Leading having returned.
func (s *Service) announce(shard *ShardLeader, open bool) {
	if shard.announced.Load() == open || open && !shard.readable.Load() {
		return
	}
	if s.config.Leading != nil {
		s.config.Leading(shard, open)
	}
	shard.announced.Store(open)
}

// follow takes over what changed in the view.
func (s *ShardLeader) follow(v *view) {
	s.mu.Lock()
	if v.epoch > s.epoch.Load() {
		l := s.leading.Load()
		s.begin(v, [...]uint64{replica.Data: l.High(replica.Data), replica.State: l.High(replica.State)})
	} else {
		s.leading.Load().Adopt(v.shard, v.minInSync)
	}
	s.mu.Unlock()
	s.advanced()
	s.kept.due.Store(0)
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
