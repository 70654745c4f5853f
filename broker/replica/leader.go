package replica

import (
	"slices"
	"time"

	"github.com/carillon-mq/carillon/broker/coordination"
)

// LagTime is how long a member may be behind before its leader wants the in-sync set without it: long enough for
// a collection of garbage, a slow sync or a redial, short beside what publishers wait for.
const LagTime = 10 * time.Second

// PartTime is the same for a member that has no connection: it takes a redial some tens of milliseconds.
const PartTime = 2 * time.Second

// swapRetry is how long a leader waits before it asks again for a set that it couldn't get.
const swapRetry = 500 * time.Millisecond

// Leader is what a broker knows that leads one shard, in one epoch: who has how much, up to where that makes the
// records safe, and which in-sync set it wants. It is pure, and its owner's lock guards it.
//
// Times are what the owner's clock says, and only compared with each other.
type Leader struct {
	self    coordination.Replica
	min     int
	shard   coordination.Shard     // as etcd has it, by the last that was heard
	asked   []coordination.Replica // the set of a swap of which it isn't known what became of it; nil: there is none
	flying  bool                   // and its answer is still awaited
	retryAt time.Duration

	begin [Parts]uint64 // where the logs ended when the epoch began
	end   [Parts]uint64 // where they end
	local [Parts]uint64 // up to where they are safe here
	high  [Parts]uint64

	followers map[string]*progress // by broker
	barrier   barrier
}

// progress is what a leader knows of a follower.
type progress struct {
	coordination.Replica
	joined bool // it has asked under this epoch, in this life, and its connection stands
	gone   bool // its broker is no member of the cluster in that life
	safe   [Parts]uint64
	// behind is since when it hasn't caught up with what the logs held then, which is mark; 0: it has.
	behind time.Duration
	mark   [Parts]uint64

	confirmed uint64 // the newest barrier round that it confirmed
	mute      bool   // it can't be asked to
}

// NewLeader begins an epoch. high is up to where the broker knew the records to be safe before, or zeros.
func NewLeader(self coordination.Replica, shard *coordination.Shard, minInSync int, end, high [Parts]uint64) *Leader {
	l := &Leader{self: self, min: minInSync, shard: *shard, begin: end, end: end, followers: map[string]*progress{}}
	for p := range high {
		l.high[p] = min(high[p], end[p])
	}
	return l
}

// Epoch is the one that is led.
func (l *Leader) Epoch() int64 { return l.shard.Epoch }

// Shard is the shard as etcd has it, by the last that was heard.
func (l *Leader) Shard() *coordination.Shard { s := l.shard; return &s }

// High is up to where the part's records are safe on all members of the set.
func (l *Leader) High(p Part) uint64 { return l.high[p] }

// Readable says whether the watermark has reached where the epoch began (R6).
func (l *Leader) Readable() bool {
	return l.high[Data] >= l.begin[Data] && l.high[State] >= l.begin[State]
}

// Enough says whether the set has the minimum, so that anything can be acknowledged at all.
func (l *Leader) Enough() bool { return len(l.shard.InSync) >= l.min }

// Grown notes that a log was appended to.
func (l *Leader) Grown(p Part, end uint64) { l.end[p] = max(l.end[p], end) }

// Safe notes up to where a log is as safe here as its batches ask for. It says whether the watermark moved.
func (l *Leader) Safe(p Part, end uint64) (moved bool) {
	l.end[p] = max(l.end[p], end)
	l.local[p] = max(l.local[p], end)
	return l.advance()
}

// Adopt takes over what etcd says of the shard, and what the Topic asks for. It says whether the watermark moved.
func (l *Leader) Adopt(self coordination.Replica, shard *coordination.Shard, minInSync int) (moved bool) {
	l.self, l.min = self, minInSync
	if shard.Epoch != l.shard.Epoch || shard.Revision <= l.shard.Revision {
		return l.advance()
	}
	// A swap that asked for a change of the former revision was done, and this is it, or never will be. Its own
	// answer may be still to come, and must not be taken for that of another.
	l.take(shard)
	for id := range l.followers {
		if !slices.Contains(shard.Replicas, id) {
			delete(l.followers, id)
		}
	}
	return l.advance()
}

// Join notes that a follower asks under this epoch, with what is safe of its logs. It refuses one that is no
// replica, or in an earlier life than one that asked before.
func (l *Leader) Join(from coordination.Replica, safe [Parts]uint64, now time.Duration) (ok bool) {
	f := l.followers[from.Broker]
	if !slices.Contains(l.shard.Replicas, from.Broker) || f != nil && f.Incarnation > from.Incarnation {
		return false
	}
	fresh := &progress{Replica: from, joined: true, safe: safe}
	if f != nil && f.Replica == from {
		fresh.behind, fresh.mark = f.behind, f.mark // it asks again, and is as late as it was
		fresh.confirmed = f.confirmed
	}
	l.judge(fresh, now)
	l.followers[from.Broker] = fresh
	return true
}

// Copied notes up to where a follower's log is safe there. It says whether the watermark moved.
func (l *Leader) Copied(from coordination.Replica, p Part, end uint64, now time.Duration) (moved bool) {
	f := l.followers[from.Broker]
	if f == nil || f.Replica != from || !f.joined || end <= f.safe[p] {
		return false
	}
	f.safe[p] = min(end, l.end[p])
	l.acknowledged(f)
	l.judge(f, now)
	return l.advance()
}

// judge notes whether a follower keeps up: whether it has what the logs held when it was last found behind.
func (l *Leader) judge(f *progress, now time.Duration) {
	switch {
	case f.safe[Data] >= l.end[Data] && f.safe[State] >= l.end[State]:
		f.behind = 0
	case f.behind == 0 || f.safe[Data] >= f.mark[Data] && f.safe[State] >= f.mark[State]:
		f.behind, f.mark = now, l.end
	}
}

// Part notes that a follower's connection ended.
func (l *Leader) Part(from coordination.Replica, now time.Duration) {
	if f := l.followers[from.Broker]; f != nil && f.Replica == from {
		f.joined = false
		l.judge(f, now)
	}
}

// Gone notes which lives are over: alive says whether a broker is a member of the cluster in that life.
func (l *Leader) Gone(alive func(coordination.Replica) bool) {
	for _, m := range l.shard.InSync {
		if m.Broker != l.self.Broker && l.followers[m.Broker] == nil {
			l.followers[m.Broker] = &progress{Replica: m, mark: l.end}
		}
	}
	for _, f := range l.followers {
		f.gone = !alive(f.Replica)
	}
}

// has is up to where a member's log is safe, as far as it is known; 0 for one that hasn't asked in that life.
func (l *Leader) has(m coordination.Replica, p Part) uint64 {
	if m.Broker == l.self.Broker {
		return l.local[p]
	}
	if f := l.followers[m.Broker]; f != nil && f.Replica == m {
		return f.safe[p]
	}
	return 0
}

// advance moves the watermarks to what all members have of the set, and of the one that was asked for (R3), and
// confirms the barrier rounds that they have confirmed (R11).
func (l *Leader) advance() (moved bool) {
	moved = l.confirm()
	if !l.Enough() {
		return moved
	}
	for p := range Parts {
		high := l.local[p]
		for _, m := range l.shard.InSync {
			high = min(high, l.has(m, p))
		}
		for _, m := range l.asked {
			high = min(high, l.has(m, p))
		}
		if high > l.high[p] {
			l.high[p], moved = high, true
		}
	}
	return moved
}

// Want returns the in-sync set that a swap of Shard's is to ask for now, or nil. The owner calls Asked with the
// answer. A member that is gone, that withdrew, that has lost what it confirmed, or that was behind for too long, leaves
// if enough stay; a replica that has all that is safe joins. A swap whose answer was lost is asked for again as it was.
func (l *Leader) Want(now time.Duration) []coordination.Replica {
	if l.flying || now < l.retryAt {
		return nil
	}
	if l.asked == nil {
		l.asked = l.wanted(now)
	}
	l.flying = l.asked != nil
	return slices.Clone(l.asked)
}

func (l *Leader) wanted(now time.Duration) []coordination.Replica {
	var stay, leave []coordination.Replica
	for _, m := range l.shard.InSync {
		f := l.followers[m.Broker]
		switch {
		case m.Broker == l.self.Broker:
			stay = append(stay, l.self)
		case f != nil && f.Replica != m: // it is in another life
			if l.caughtUp(f) {
				stay = append(stay, f.Replica)
			} else {
				leave = append(leave, m)
			}
		case m.Incarnation == 0: // it withdrew, and hasn't asked since
			leave = append(leave, m)
		case f != nil && (f.gone || l.lacks(f) || l.late(f, now)):
			leave = append(leave, m)
		default:
			stay = append(stay, m)
		}
	}
	for _, id := range l.shard.Replicas {
		in := func(m coordination.Replica) bool { return m.Broker == id }
		if f := l.followers[id]; f != nil && !slices.ContainsFunc(stay, in) && !slices.ContainsFunc(leave, in) && l.caughtUp(f) {
			stay = append(stay, f.Replica)
		}
	}
	if len(stay) < l.min { // too few to acknowledge anything: nobody goes who could be elected for what he has
		stay = append(stay, leave...)
	}
	if same(stay, l.shard.InSync) {
		return nil
	}
	return stay
}

// lacks says whether a member has lost records that it had confirmed: it asked with less than what is safe on all members. That is a
// follower whose log failed before what it confirmed in memory was written. It joins again when it has caught up.
func (l *Leader) lacks(f *progress) bool {
	return f.joined && (f.safe[Data] < l.high[Data] || f.safe[State] < l.high[State])
}

// late says whether a member has been behind for too long.
func (l *Leader) late(f *progress, now time.Duration) bool {
	l.judge(f, now)
	patience := LagTime
	if !f.joined {
		patience = PartTime
	}
	return f.behind > 0 && now-f.behind > patience
}

// caughtUp says whether a follower may join the set: it has everything that is safe, and everything that
// the logs had when the epoch began.
func (l *Leader) caughtUp(f *progress) bool {
	if !f.joined || f.gone {
		return false
	}
	for p := range Parts {
		if f.safe[p] < l.high[p] || f.safe[p] < l.begin[p] {
			return false
		}
	}
	return true
}

func same(a, b []coordination.Replica) bool {
	return len(a) == len(b) && !slices.ContainsFunc(a, func(m coordination.Replica) bool { return !slices.Contains(b, m) })
}

// Asked is told what etcd has after a swap: what was written, or, if it was refused, what was read
// afterwards. nil says that this isn't known: the swap may have been done, or be done yet, so its members go on being
// counted, until the same swap has an answer or etcd is heard to have something newer. It says whether the watermark moved.
//
// That a swap was refused while the shard still is as it was means that its leader, or who was to join, has
// ended its life. No earlier try of the same swap can succeed any more then, either.
func (l *Leader) Asked(shard *coordination.Shard, now time.Duration) (moved bool) {
	l.flying = false
	l.retryAt = now + swapRetry
	if shard == nil || shard.Epoch != l.shard.Epoch || shard.Revision < l.shard.Revision {
		return false
	}
	if shard.Revision > l.shard.Revision || l.asked == nil { // something came of it
		l.retryAt = now
	}
	l.take(shard)
	return l.advance()
}

// take replaces the shard. A member that withdrew since has to ask again before it counts: what it
// confirmed before is of a copy that it doesn't vouch for.
func (l *Leader) take(shard *coordination.Shard) {
	for _, id := range withdrawn(&l.shard, shard) {
		if f := l.followers[id]; f != nil {
			f.joined, f.safe = false, [Parts]uint64{}
		}
	}
	l.shard, l.asked = *shard, nil
}

// withdrawn returns the members that withdrew between two states of a shard.
func withdrawn(before, after *coordination.Shard) (ids []string) {
	for _, m := range after.InSync {
		if m.Incarnation != 0 {
			continue
		}
		if was, _ := before.Member(m.Broker); was.Incarnation != 0 {
			ids = append(ids, m.Broker)
		}
	}
	return ids
}
