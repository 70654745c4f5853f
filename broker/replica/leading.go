package replica

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/carillon-mq/carillon/broker/coordination"
	"github.com/carillon-mq/carillon/broker/log"
)

// Leading is a shard that is led here in one epoch. Without followers it is a Leader and a few
// words. Its methods are safe for concurrent use.
type Leading struct {
	x      *Exchange
	config ledShard
	epoch  int64

	high     [Parts]atomic.Uint64
	start    [Parts]atomic.Uint64 // as sent to followers
	readable atomic.Bool
	enough   atomic.Bool
	ended    atomic.Bool
	givingUp atomic.Bool // giveUp is under way

	round     atomic.Uint64 // newest barrier round
	confirmed atomic.Uint64 // newest confirmed barrier round

	// use is read-locked while a callback or a log of config is in use, so that End can wait for
	// it.
	use sync.RWMutex

	mu       sync.Mutex
	leader   *Leader
	appended [Parts]uint64 // readable ends of the logs: whether they are promised is known
	promised [Parts]uint64 // ends of what a client waits for
	first    [Parts]firstBatch
	streams  []*stream // one for each follower that has joined
	repairs  *repairs  // in this epoch; nil: none
	toSweep  bool      // in Exchange.unsettled
}

// ledShard is what a Leading keeps of its LeadConfig: a broker has tens of thousands of them.
type ledShard struct {
	ID
	Logs       [Parts]*log.Log
	Moved      func()
	Unreadable func(err error)
}

// firstBatch is the base of the batch that contains a log's start. It is before the start if the
// log was trimmed within a batch.
type firstBatch struct{ start, base uint64 }

// Lead is LeadOn for a shard that this broker has not led before.
func (x *Exchange) Lead(c LeadConfig) *Leading { return x.LeadOn(c, nil) }

// LeadOn starts to lead a shard in its epoch. What its logs hold is promised: it is acknowledged as
// soon as it is safe everywhere. What is not durable here yet is flushed. before is what the last
// Leading of the shard on this broker has left; it may be nil. If that was of the same epoch, its
// swap of the in-sync set may be under way still.
func (x *Exchange) LeadOn(c LeadConfig, before *Rest) *Leading {
	l := &Leading{x: x, config: ledShard{c.ID, c.Logs, c.Moved, c.Unreadable}, epoch: c.Shard.Epoch}
	x.mu.Lock()
	self, registered := x.self, x.registered
	x.mu.Unlock()
	var safe [Parts]uint64
	for p, lg := range c.Logs {
		start, end, durable := lg.Offsets()
		l.start[p].Store(start)
		l.appended[p], l.promised[p], safe[p] = end, end, durable
		if c.Durability == log.Memory {
			safe[p] = end
		}
	}
	for _, m := range c.Shard.InSync {
		if self.Incarnation == 0 && m.Broker == self.Broker {
			self = m
		}
	}
	l.leader = NewLeader(self, c.Shard, c.MinInSync, l.appended, c.High)
	if before != nil {
		l.leader.Continue(&before.shard, before.unanswered)
	}
	for p := range Parts {
		l.leader.Safe(p, safe[p])
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.publish()
	l.register(registered)
	if safe != l.appended {
		x.disk.Submit(l.flush, 0)
	}
	return l
}

// flush makes durable what the logs held when the epoch began.
func (l *Leading) flush() {
	l.use.RLock()
	moved := false
	for p := range Parts {
		lg := l.config.Logs[p]
		if l.ended.Load() {
			break
		}
		_, end, _ := lg.Offsets()
		if err := lg.Flush(); err != nil {
			l.x.warnThrottled("flush "+lg.Name(), "Could not make safe what a log held when its epoch began",
				"log", lg.Name(), "error", err)
			continue
		}
		moved = l.Safe(p, end) || moved
	}
	l.use.RUnlock()
	if moved {
		l.notifyMoved()
	}
}

// register registers a shard with followers, so that their asks find it. mu is held.
func (l *Leading) register(registered incarnations) {
	x := l.x
	if len(l.leader.shard.Replicas) < 2 {
		return
	}
	if registered != nil {
		l.leader.UpdateGone(registered.alive)
	}
	x.mu.Lock()
	fresh := !x.closed && x.leads[l.config.ID] != l
	var conns []*followerConn
	if fresh {
		x.leads[l.config.ID] = l
		for _, o := range x.followerConns {
			conns = append(conns, o)
		}
	}
	x.mu.Unlock()
	for _, o := range conns {
		o.letRetry(l.config.ID, l.epoch)
	}
	l.reconsiderSet(x.config.Now())
}

// publish publishes the watermarks for readers without mu. mu is held.
func (l *Leading) publish() {
	changed := false
	for p := range Parts {
		if high := l.leader.High(p); high != l.high[p].Load() {
			l.config.Logs[p].NoteWatermark(high) // first: who sees it relies on the log
			l.high[p].Store(high)
			changed = true
		}
	}
	l.readable.Store(l.leader.Readable())
	l.enough.Store(l.leader.Enough())
	l.publishRounds()
	if changed {
		for _, s := range l.streams {
			s.markHigh()
		}
	}
}

// publishRounds publishes the confirmed barrier rounds, and probes followers for a new round. mu is
// held.
func (l *Leading) publishRounds() {
	l.confirmed.Store(l.leader.Confirmed())
	if round := l.leader.Round(); round != l.round.Load() {
		l.round.Store(round)
		l.x.counters.rounds.Add(1)
		if round == l.leader.Confirmed() {
			return
		}
		for _, s := range l.streams {
			s.markProbe()
		}
	}
}

// RequestRound returns a barrier round. When it is confirmed, no newer leader had begun to lead
// when RequestRound was called, so what this leader knows then was the truth at that time (R11).
// Moved is called when a round was confirmed. A leader that is the only member confirms at once.
func (l *Leading) RequestRound() (round uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	round = l.leader.RequestRound()
	l.publishRounds()
	return round
}

// Confirmed returns the newest confirmed barrier round. All earlier ones are confirmed, too.
func (l *Leading) Confirmed() uint64 { return l.confirmed.Load() }

// confirm records that a follower confirmed a round. It reports whether a round was confirmed by
// all members.
func (l *Leading) confirm(s *stream, round uint64) (moved bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if s.gone.Load() {
		return false
	}
	if moved = l.leader.Confirm(s.from, round); moved {
		l.publishRounds()
	}
	return moved
}

// notifyMoved calls Moved. No lock is held.
func (l *Leading) notifyMoved() {
	l.use.RLock()
	defer l.use.RUnlock()
	if !l.ended.Load() && l.config.Moved != nil {
		l.config.Moved()
	}
}

// Appended records appends, in their order. promised says that a client waits for their durability;
// others are copied, and their completion is not reported.
func (l *Leading) Appended(p Part, end uint64, promised bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.appended[p] = max(l.appended[p], end)
	if promised {
		l.promised[p] = max(l.promised[p], end)
		l.leader.Appended(p, end)
	}
	for _, s := range l.streams {
		s.markDirty()
	}
}

// Safe records the end of what is durable here of what was promised. It reports whether the
// watermark moved, and does not call Moved.
func (l *Leading) Safe(p Part, end uint64) (moved bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if moved = l.leader.Safe(p, end); moved {
		l.publish()
	}
	return moved
}

// High returns the offset below which a part's records are safe on all members of the set.
func (l *Leading) High(p Part) uint64 { return l.high[p].Load() }

// Readable reports whether the watermark has reached where the epoch began.
func (l *Leading) Readable() bool { return l.readable.Load() }

// Enough reports whether the set has the minimum size.
func (l *Leading) Enough() bool { return l.enough.Load() }

// Adopt applies a newer state of the shard in the same epoch. It does not call Moved itself.
func (l *Leading) Adopt(shard *coordination.Shard, minInSync int) {
	l.x.mu.Lock()
	self, registered := l.x.self, l.x.registered
	l.x.mu.Unlock()
	l.mu.Lock()
	moved := !l.ended.Load() && l.adopt(self, shard, minInSync, registered)
	l.mu.Unlock()
	if moved {
		l.x.notifyLater(l)
	}
}

// adopt is Adopt with mu held.
func (l *Leading) adopt(self coordination.Replica, shard *coordination.Shard, minInSync int,
	registered incarnations) (moved bool) {
	if self.Incarnation == 0 {
		self = l.leader.self
	}
	before := l.leader.Shard()
	moved = l.leader.Adopt(self, shard, minInSync)
	l.refuseWithdrawn(before)
	for _, s := range slices.Clone(l.streams) { // refuse removes from it
		if !slices.Contains(l.leader.shard.Replicas, s.from.Broker) {
			l.refuse(s, "broker "+s.from.Broker+" is no replica any more")
		}
	}
	l.publish()
	l.register(registered)
	return moved
}

// refuseWithdrawn ends the streams of members that have withdrawn since. They ask again. mu is
// held.
func (l *Leading) refuseWithdrawn(before *coordination.Shard) {
	for _, id := range withdrawn(before, &l.leader.shard) {
		if i := slices.IndexFunc(l.streams, func(s *stream) bool { return s.from.Broker == id }); i >= 0 {
			l.refuse(l.streams[i], "broker "+id+" has withdrawn its copy from the in-sync set")
		}
	}
}

// observe applies a new set of registered incarnations.
func (l *Leading) observe(self coordination.Replica, registered incarnations) {
	l.mu.Lock()
	moved := !l.ended.Load() && l.adopt(self, l.leader.Shard(), int(l.leader.min), registered)
	l.mu.Unlock()
	if moved {
		l.x.notifyLater(l)
	}
}

// InSync returns the in-sync set as in etcd, as far as known.
func (l *Leading) InSync() []coordination.Replica {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.leader.shard.InSync)
}

// Follower is a leader's knowledge of one follower.
type Follower struct {
	coordination.Replica
	Joined bool          // it has asked, and is connected
	Gone   bool          // its incarnation has ended
	Safe   [Parts]uint64 // ends of what is durable of its logs
	Behind time.Duration // for how long it has lagged; 0: it has caught up
}

// Followers returns the followers by broker.
func (l *Leading) Followers() []Follower {
	now := l.x.config.Now()
	l.mu.Lock()
	defer l.mu.Unlock()
	all := make([]Follower, 0, len(l.leader.followers))
	for _, f := range l.leader.followers {
		follower := Follower{Replica: f.Replica, Joined: f.joined, Gone: f.gone, Safe: f.safe}
		if f.behind > 0 {
			follower.Behind = max(now-f.behind, 1)
		}
		all = append(all, follower)
	}
	slices.SortFunc(all, func(a, b Follower) int { return strings.Compare(a.Broker, b.Broker) })
	return all
}

// End ends leading. Afterwards no callback or log of LeadConfig is used. It must not be called from
// Moved, nor with a lock held that Moved takes.
func (l *Leading) End() {
	l.mu.Lock()
	l.ended.Store(true)
	for len(l.streams) > 0 {
		l.refuse(l.streams[0], "this broker has ended to lead it")
	}
	if l.repairs != nil && l.repairs.mend.cancel != nil {
		l.repairs.mend.cancel()
	}
	l.mu.Unlock()
	x := l.x
	x.mu.Lock()
	if x.leads[l.config.ID] == l {
		delete(x.leads, l.config.ID)
	}
	x.mu.Unlock()
	l.use.Lock() // wait for users
	defer l.use.Unlock()
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.repairs != nil {
		l.repairs.mend.abandon()
	}
}

// Rest is what a Leading that has ended leaves to the next one of its shard and epoch on this
// broker: what it knew of the in-sync set.
type Rest struct {
	shard      coordination.Shard
	unanswered []coordination.Replica
}

// Rest returns what l leaves. It is called after End.
func (l *Leading) Rest() *Rest {
	l.mu.Lock()
	defer l.mu.Unlock()
	return &Rest{l.leader.shard, slices.Clone(l.leader.unanswered)}
}

// refuse ends a stream. mu is held.
func (l *Leading) refuse(s *stream, why string) {
	if l.drop(s) {
		l.leader.Disconnected(s.from, l.x.config.Now())
		s.conn.answer(appendRefusal(nil,
			&refusal{stream: s.id, round: s.round, epoch: l.epoch, why: why}))
	}
}

// drop removes a stream and reports whether it was the follower's current one. mu is held.
func (l *Leading) drop(s *stream) bool {
	s.gone.Store(true)
	i := slices.Index(l.streams, s)
	if i < 0 {
		return false
	}
	l.streams = slices.Delete(l.streams, i, i+1)
	return true
}

// disconnected handles a follower's leave or the end of its connection.
func (l *Leading) disconnected(s *stream) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.drop(s) {
		now := l.x.config.Now()
		l.leader.Disconnected(s.from, now)
		l.reconsiderSet(now)
	}
}

// left is disconnected for a follower that does not ask again on this connection.
func (l *Leading) left(s *stream) {
	l.disconnected(s)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.leader.Left(s.from)
}

// ask answers a follower's ask with a verdict, or with why it is refused. With matching logs it has
// joined.
func (l *Leading) ask(o *followerConn, a *ask) (joined *stream, why string) {
	l.use.RLock()
	defer l.use.RUnlock()
	v := verdict{stream: a.stream, round: a.round}
	matches := true
	for p := range Parts {
		lineage := LineageOf(l.config.Logs[p])
		if l.ended.Load() {
			return nil, "this broker has ended to lead it"
		}
		var err error
		if v.parts[p], err = l.compare(p, lineage, a.logs[p]); err != nil {
			return nil, err.Error()
		}
		if err := l.mayDiffer(o.broker, p, lineage, a.logs[p], v.parts[p]); err != nil {
			return nil, err.Error()
		}
		matches = matches && v.parts[p].Verb == Copy
	}
	if !matches {
		o.answer(appendVerdict(nil, &v))
		return nil, ""
	}
	now := l.x.config.Now()
	from := coordination.Replica{Broker: o.broker, Incarnation: a.incarnation}
	l.mu.Lock()
	if l.ended.Load() {
		l.mu.Unlock()
		return nil, "this broker has ended to lead it"
	}
	if !l.leader.Join(from, a.safe, now) {
		l.mu.Unlock()
		return nil, fmt.Sprintf("broker %s is no replica in its life %d", from.Broker, from.Incarnation)
	}
	if l.repairs != nil { // one has ended
		delete(l.repairs.refused, o.broker)
		delete(l.repairs.extents, o.broker)
	}
	if !o.probed {
		l.leader.WithoutRounds(from)
	}
	for _, s := range l.streams {
		if s.from.Broker == from.Broker {
			l.drop(s) // it arrives on a new connection
			break
		}
	}
	s := &stream{conn: o, id: a.stream, round: a.round, from: from, l: l}
	for p := range Parts {
		start := l.config.Logs[p].Start()
		s.next[p], s.goal[p] = a.logs[p].End, l.appended[p]
		s.sent[p] = a.safe[p]
		s.acked[p].Store(a.safe[p])
		s.cursor[p] = l.config.Logs[p].NewCursor(max(s.next[p], start))
	}
	moved := l.leader.advance()
	for p := range Parts {
		v.parts[p].At = l.leader.Goal(p)
	}
	// The verdict precedes everything else of the stream: what comes before it, the follower drops.
	o.answer(appendVerdict(nil, &v))
	l.streams = append(l.streams, s)
	l.publish()
	l.reconsiderSet(now)
	s.markDirty()
	s.markHigh()
	s.markProbe()
	l.mu.Unlock()
	if moved {
		l.x.notifyLater(l)
	}
	return s, ""
}

// compare is Compare of a log that is led, which is in use, with a follower's. If the first batch
// can't be read, its base is unknown, and the logs are compared from the start on. Then they may
// seem to share too little, so a Reset is an error.
func (l *Leading) compare(p Part, own, follower Lineage) (Verdict, error) {
	if err := l.learnEpochs(p, own, follower); err != nil {
		return Verdict{}, err
	}
	base, err := l.baseOf(p, own)
	if err == nil {
		own.Start = base
	}
	v := Compare(own, follower)
	if v.Verb != Reset {
		err = nil
	}
	return v, err
}

// baseOf returns the base of the first batch that a log retains. The log is in use.
func (l *Leading) baseOf(p Part, lineage Lineage) (uint64, error) {
	if lineage.Start == 1 || lineage.Start == lineage.End {
		return lineage.Start, nil
	}
	l.mu.Lock()
	first := l.first[p]
	l.mu.Unlock()
	if first.start == lineage.Start {
		return first.base, nil
	}
	base, err := l.config.Logs[p].BatchBase(lineage.Start)
	if err != nil {
		l.unreadable(err)
		return 0, fmt.Errorf("its first record can't be read: %w", err)
	}
	l.mu.Lock()
	l.first[p] = firstBatch{lineage.Start, base}
	l.mu.Unlock()
	return base, nil
}

// copied records the end of what is durable of a follower's log. It reports whether the watermark
// moved.
func (l *Leading) copied(s *stream, p Part, safe uint64, now time.Duration) (moved bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if s.gone.Load() {
		return false
	}
	if moved = l.leader.Copied(s.from, p, safe, now); moved {
		l.publish()
	}
	return moved
}
