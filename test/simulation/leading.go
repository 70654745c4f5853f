package simulation

import (
	"slices"
	"time"

	"github.com/carillon-mq/carillon/broker/coordination"
	"github.com/carillon-mq/carillon/broker/replica"
)

// core is what decides for a leader: a *replica.Leader, or one of which an invariant was taken away.
type core interface {
	Shard() *coordination.Shard
	High(replica.Part) uint64
	Readable() bool
	Enough() bool
	Grown(replica.Part, uint64)
	Safe(replica.Part, uint64) bool
	Adopt(coordination.Replica, *coordination.Shard, int) bool
	Join(coordination.Replica, [replica.Parts]uint64, time.Duration) bool
	Copied(coordination.Replica, replica.Part, uint64, time.Duration) bool
	Part(coordination.Replica, time.Duration)
	Gone(func(coordination.Replica) bool)
	Want(time.Duration) []coordination.Replica
	Asked(*coordination.Shard, time.Duration) bool
}

const (
	// window is how many records a follower may be sent that it hasn't kept yet.
	window = 32
	// maxPending is how many records a leader takes that aren't safe yet.
	maxPending = 400
)

// leading is a broker that leads a shard in one epoch.
type leading struct {
	b       *broker
	id      shardID
	epoch   int64
	core    core
	logs    *[replica.Parts]*modelLog
	high    [replica.Parts]uint64
	pending [replica.Parts][]pending
	streams map[string]*stream
	telling bool
	over    bool
}

// pending is an answer that waits until the watermark covers the offset.
type pending struct {
	offset uint64
	answer func(sure bool)
}

// stream is a follower that copies.
type stream struct {
	n           int // of the question that began it
	from        coordination.Replica
	end         *end
	to          *following
	next, acked [replica.Parts]uint64
}

func (b *broker) durability(id shardID) coordination.Durability {
	return b.w.topic(id).Spec.Durability
}

func lead(b *broker, id shardID, shard *coordination.Shard) *leading {
	l := &leading{b: b, id: id, epoch: shard.Epoch, logs: b.disk.open(id), streams: map[string]*stream{}}
	var ends [replica.Parts]uint64
	for p, part := range l.logs {
		ends[p] = part.end
		l.high[p] = min(b.known(id)[p], part.end)
	}
	b.w.logf("%s: leads %s in epoch %d: ends %v, known safe %v, set %s", b.id, id, shard.Epoch, ends, l.high, members(shard.InSync))
	l.core = b.w.mutation.core(replica.NewLeader(b.self, shard, b.w.mutation.minimum(b.w.minimum(shard)), ends, l.high), b.self, l.high)
	for p, part := range l.logs {
		l.core.Safe(replica.Part(p), part.safe(b.durability(id)))
	}
	l.core.Gone(l.alive)
	l.moved()
	l.want()
	return l
}

// end is that a newer epoch has begun: nobody is told that anything is safe any more.
func (l *leading) end() {
	l.over = true
	for p := range l.pending {
		for _, answer := range l.pending[p] {
			answer.answer(false)
		}
		l.pending[p] = nil
	}
}

func (l *leading) alive(m coordination.Replica) bool { return m.Incarnation != 0 && l.b.view.lives(m) }

func (l *leading) adopt(shard *coordination.Shard) {
	before := l.core.Shard()
	l.core.Adopt(l.b.self, shard, l.b.w.mutation.minimum(l.b.w.minimum(shard)))
	l.withdrawn(before)
	l.core.Gone(l.alive)
	for _, id := range l.followers() { // who comes back as a replica asks anew
		if s := l.streams[id]; !slices.Contains(shard.Replicas, id) {
			delete(l.streams, id)
			s.end.send(func() { s.to.refused(s.n, 0) })
		}
	}
	l.moved()
	l.want()
}

// withdrawn ends the streams of members that withdrew since: they ask again.
func (l *leading) withdrawn(before *coordination.Shard) {
	for _, m := range l.core.Shard().InSync {
		was, _ := before.Member(m.Broker)
		if s := l.streams[m.Broker]; m.Incarnation == 0 && was.Incarnation != 0 && s != nil {
			delete(l.streams, m.Broker)
			s.end.send(func() { s.to.refused(s.n, 0) })
		}
	}
}

func (l *leading) kept(log *modelLog) {
	safe := log.safe(l.b.durability(l.id))
	if l.b.w.mutation.AckEarly {
		safe = log.end
	}
	l.core.Safe(log.part, safe)
	l.moved()
}

// moved does what is due when a watermark has moved.
func (l *leading) moved() {
	for p := range replica.Parts {
		high := l.core.High(p)
		if high <= l.high[p] {
			continue
		}
		l.b.w.judge.safe(l, p, l.high[p], high)
		l.high[p] = high
		l.b.known(l.id)[p] = max(l.b.known(l.id)[p], high)
		n := 0
		for n < len(l.pending[p]) && l.pending[p][n].offset < high {
			l.pending[p][n].answer(true)
			n++
		}
		l.pending[p] = l.pending[p][n:]
		l.tell()
	}
}

// tell brings followers the watermark, a little later.
func (l *leading) tell() {
	if l.telling || l.over {
		return
	}
	l.telling = true
	l.b.later(2*time.Millisecond, func() {
		l.telling = false
		for _, id := range l.followers() {
			s := l.streams[id]
			high, starts := l.high, l.starts()
			s.end.send(func() { s.to.told(s.n, high, starts) })
		}
	})
}

func (l *leading) starts() (starts [replica.Parts]uint64) {
	for p, log := range l.logs {
		starts[p] = log.start
	}
	return starts
}

func (l *leading) followers() []string {
	ids := make([]string, 0, len(l.streams))
	for _, b := range l.b.w.brokers {
		if l.streams[b.id] != nil {
			ids = append(ids, b.id)
		}
	}
	return ids
}

// question is what a follower asks.
type question struct {
	n        int
	epoch    int64
	from     coordination.Replica
	lineages [replica.Parts]replica.Lineage
	safe     [replica.Parts]uint64
}

// asked answers a follower, and begins to stream if it has nothing to put right first.
func (b *broker) asked(id shardID, q question, e *end, to *following) {
	r := b.roles[id]
	switch {
	case r == nil || r.epoch < q.epoch || r.epoch == q.epoch && r.lead == nil:
		e.send(func() { to.refused(q.n, 0) })
		return
	case r.epoch > q.epoch:
		newer := r.epoch
		e.send(func() { to.refused(q.n, newer) })
		return
	}
	l := r.lead
	var verdicts [replica.Parts]replica.Verdict
	copies := true
	for p := range replica.Parts {
		verdicts[p] = b.w.mutation.meet(l.logs[p].lineage(), q.lineages[p])
		copies = copies && verdicts[p].Verb == replica.Copy
	}
	if !copies {
		e.send(func() { to.judged(q.n, verdicts) })
		return
	}
	s := &stream{n: q.n, from: q.from, end: e, to: to}
	for p := range replica.Parts {
		s.next[p], s.acked[p] = q.lineages[p].End, q.lineages[p].End
	}
	if !l.core.Join(q.from, q.safe, b.now()) {
		e.send(func() { to.refused(q.n, 0) })
		return
	}
	b.w.logf("%s: %s joins %s with %v", b.id, q.from.Broker, id, q.safe)
	l.core.Adopt(b.self, l.core.Shard(), b.w.mutation.minimum(b.w.minimum(l.core.Shard()))) // joining moves no watermark by itself
	l.streams[q.from.Broker] = s
	e.send(func() { to.judged(q.n, verdicts) })
	l.moved()
	l.push(s)
	l.tell()
	l.want()
}

// push sends a follower as much as its window takes.
func (l *leading) push(s *stream) {
	if l.over || l.streams[s.from.Broker] != s {
		return
	}
	for p, log := range l.logs {
		if s.next[p] < log.base() {
			l.b.w.logf("%s: %s asks for what is gone of %s", l.b.id, s.from.Broker, l.id)
			delete(l.streams, s.from.Broker)
			l.core.Part(s.from, l.b.now())
			s.end.send(func() { s.to.refused(s.n, 0) })
			return
		}
		for s.next[p] < log.end && s.next[p] < s.acked[p]+window {
			batch, part, high := log.batches[log.at(s.next[p])], replica.Part(p), l.high
			s.next[p] = batch.end()
			s.end.send(func() { s.to.copied(s.n, part, batch, high) })
		}
	}
}

// copied is told up to where a follower keeps a log.
func (l *leading) copied(s *stream, p replica.Part, to uint64) {
	if l.over || l.streams[s.from.Broker] != s {
		return
	}
	s.acked[p] = max(s.acked[p], to)
	l.core.Copied(s.from, p, to, l.b.now())
	l.moved()
	l.push(s)
}

// parted is told that a follower's connection is gone.
func (l *leading) parted(e *end) {
	for _, id := range l.followers() {
		if s := l.streams[id]; s.end == e {
			delete(l.streams, id)
			l.core.Part(s.from, l.b.now())
		}
	}
}

// want asks etcd for the set that the core wants.
func (l *leading) want() {
	if l.over {
		return
	}
	set := l.core.Want(l.b.now())
	if set == nil {
		return
	}
	b, e := l.b, l.b.w.etcd
	self, before := b.self, l.core.Shard()
	settle := func(shard *coordination.Shard) {
		if !l.over {
			before := l.core.Shard()
			l.core.Asked(shard, b.now())
			l.withdrawn(before)
			l.core.Gone(l.alive)
			l.moved()
			l.want()
		}
	}
	ask(b, false, func(*facts) swapped { return e.swap(self, before, set) }, func(answer swapped, answered bool) {
		switch {
		case !answered:
			settle(nil)
		case answer.done:
			settle(answer.shard)
		default:
			ask(b, false, func(f *facts) *coordination.Shard { return f.shards[l.id] }, func(shard *coordination.Shard, _ bool) { settle(shard) })
		}
	})
}

// publish appends what a client brought. With expected, only if that is the log's last offset. done is told the first offset, or,
// if the condition failed, what the last was; and that only when that is sure.
func (b *broker) publish(id shardID, p replica.Part, values []value, expected *uint64, done func(first, last uint64, sure bool)) {
	r := b.roles[id]
	if r == nil || r.lead == nil || len(r.lead.pending[p]) > maxPending {
		done(0, 0, false)
		return
	}
	l := r.lead
	log := l.logs[p]
	last := log.end - 1
	if expected != nil && *expected != last {
		if last < l.high[p] {
			done(0, last, true)
			return
		}
		l.pending[p] = append(l.pending[p], pending{last, func(sure bool) { done(0, last, sure) }})
		return
	}
	batch := &batch{epoch: uint64(l.epoch), first: log.end, values: slices.Clone(values)}
	l.pending[p] = append(l.pending[p], pending{batch.end() - 1, func(sure bool) { done(batch.first, batch.end()-1, sure) }})
	log.append(batch)
	l.core.Grown(p, log.end)
	for _, id := range l.followers() {
		l.push(l.streams[id])
	}
}

// fetch reads what is safe from an offset on, for a client.
func (b *broker) fetch(id shardID, p replica.Part, from uint64) (first uint64, values []value, ok bool) {
	r := b.roles[id]
	if r == nil || r.lead == nil || !b.w.mutation.ReadAtOnce && !r.lead.core.Readable() {
		return 0, nil, false
	}
	l := r.lead
	high := l.high[p]
	if b.w.mutation.ReadEarly {
		high = l.logs[p].end
	}
	b.w.judge.of(id, p).opened(l, high)
	from = max(from, l.logs[p].start)
	for at := from; at < min(high, from+64); at++ {
		v, _ := l.logs[p].value(at)
		values = append(values, v)
	}
	return from, values, true
}

// trim has the oldest records go.
func (b *broker) trim(id shardID, to uint64) {
	if r := b.roles[id]; r != nil && r.lead != nil {
		log := r.lead.logs[replica.Data]
		log.trim(min(to, r.lead.high[replica.Data]))
		b.w.judge.trimmed(id, log.start)
		r.lead.tell()
	}
}
