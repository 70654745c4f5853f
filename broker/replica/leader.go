package replica

import (
	"math"
	"slices"
	"time"

	"github.com/carillon-mq/carillon/broker/coordination"
	"github.com/carillon-mq/carillon/broker/log"
)

// LagTime is how long a member may lag before its leader wants the in-sync set without it: longer
// than a garbage collection, a slow sync or a redial, and short compared with how long publishers
// wait.
const LagTime = 10 * time.Second

// DisconnectTime is the same for a member without a connection. A redial takes some tens of
// milliseconds.
const DisconnectTime = 2 * time.Second

// swapRetry is the pause before a leader asks again for a set that it could not get.
const swapRetry = 500 * time.Millisecond

// Leader is the state of a shard's leader in one epoch: how far each follower's copy goes, the high
// watermark, and the in-sync set that it wants. It is pure; its owner's lock guards it.
//
// Times are the owner's and are only compared with each other.
type Leader struct {
	self        coordination.Replica
	min         int32                  // beside swapPending: a broker has tens of thousands of these
	swapPending bool                   // the answer to the swap to asked is awaited
	shard       coordination.Shard     // as in etcd, as far as known
	unanswered  []coordination.Replica // set of a swap with an unknown result; nil: none
	retryAt     time.Duration

	epochStart [Parts]uint64 // ends of the logs when the epoch began
	end        [Parts]uint64 // ends of the logs
	local      [Parts]uint64 // ends of what is durable here
	high       [Parts]uint64

	followers map[string]*progress // by broker
	barrier   barrier
}

// progress is a leader's knowledge of one follower.
type progress struct {
	coordination.Replica
	joined bool // it has asked under this epoch, in this incarnation, and is connected
	gone   bool // that incarnation is not registered any more
	safe   [Parts]uint64
	// behind is since when it lacks what the logs held then, which is mark; 0: it has caught up.
	behind time.Duration
	mark   [Parts]uint64

	// stuck is where its logs ended when its stream was ended since what follows is damaged here; 0:
	// that did not happen, or it has asked again.
	stuck [Parts]uint64

	confirmed     uint64 // newest barrier round that it confirmed
	withoutRounds bool   // it supports no rounds
}

// NewLeader begins an epoch. high is what the broker knew to be safe before, or zero.
func NewLeader(self coordination.Replica, shard *coordination.Shard, minInSync int,
	end, high [Parts]uint64) *Leader {
	l := &Leader{self: self, min: int32(minInSync), shard: *shard, epochStart: end, end: end,
		followers: map[string]*progress{}}
	for p := range high {
		l.high[p] = min(high[p], end[p])
	}
	return l
}

// Epoch returns the leader's epoch.
func (l *Leader) Epoch() int64 { return l.shard.Epoch }

// Shard returns a copy of the shard as in etcd, as far as known.
func (l *Leader) Shard() *coordination.Shard { s := l.shard; return &s }

// High returns the offset below which a part's records are safe on all members of the set.
func (l *Leader) High(p Part) uint64 { return l.high[p] }

// Readable reports whether the watermark has reached where the epoch began (R6).
func (l *Leader) Readable() bool {
	return l.high[Data] >= l.epochStart[Data] && l.high[State] >= l.epochStart[State]
}

// Enough reports whether the set has the minimum size, without which nothing is acknowledged.
func (l *Leader) Enough() bool { return len(l.shard.InSync) >= int(l.min) }

// Appended records an append.
func (l *Leader) Appended(p Part, end uint64) { l.end[p] = max(l.end[p], end) }

// Safe records the end of what is durable here. It reports whether the watermark moved.
func (l *Leader) Safe(p Part, end uint64) (moved bool) {
	l.end[p] = max(l.end[p], end)
	l.local[p] = max(l.local[p], end)
	return l.advance()
}

// Continue takes over what this broker's leader before it, in the same epoch, knew of the in-sync
// set: a newer state of the shard, and a swap without an answer, which may succeed still (R3).
func (l *Leader) Continue(shard *coordination.Shard, unanswered []coordination.Replica) {
	if shard.Epoch == l.shard.Epoch && shard.Revision >= l.shard.Revision {
		l.shard, l.unanswered = *shard, unanswered
	}
}

// Adopt applies a new state of the shard and the Topic's minimum. It reports whether the watermark
// moved.
func (l *Leader) Adopt(self coordination.Replica, shard *coordination.Shard,
	minInSync int) (moved bool) {
	l.self, l.min = self, int32(minInSync)
	if shard.Epoch != l.shard.Epoch || shard.Revision <= l.shard.Revision {
		return l.advance()
	}
	// An unanswered swap of the former revision has either led to this one or never will succeed.
	// Its late answer must not be taken for that of another swap.
	l.setShard(shard)
	for id := range l.followers {
		if !slices.Contains(shard.Replicas, id) {
			delete(l.followers, id)
		}
	}
	return l.advance()
}

// Join records a follower's ask under this epoch, with what is durable of its logs. It refuses a
// broker without a replica, and an earlier incarnation than one that asked before.
func (l *Leader) Join(from coordination.Replica, safe [Parts]uint64, now time.Duration) (ok bool) {
	f := l.followers[from.Broker]
	if !slices.Contains(l.shard.Replicas, from.Broker) ||
		f != nil && f.Incarnation > from.Incarnation {
		return false
	}
	fresh := &progress{Replica: from, joined: true, safe: safe}
	if f != nil && f.Replica == from {
		fresh.behind, fresh.mark = f.behind, f.mark // it asks again, and lags as before
		fresh.confirmed = f.confirmed
	}
	l.judge(fresh, now)
	l.followers[from.Broker] = fresh
	return true
}

// Copied records the end of what is durable of a follower's log. It reports whether the watermark
// moved.
func (l *Leader) Copied(from coordination.Replica, p Part, end uint64,
	now time.Duration) (moved bool) {
	f := l.followers[from.Broker]
	if f == nil || f.Replica != from || !f.joined || end <= f.safe[p] {
		return false
	}
	f.safe[p] = min(end, l.end[p])
	l.acknowledged(f)
	l.judge(f, now)
	return l.advance()
}

// judge updates behind: whether the follower has what the logs held when it was last found behind.
func (l *Leader) judge(f *progress, now time.Duration) {
	switch {
	case f.safe[Data] >= l.end[Data] && f.safe[State] >= l.end[State]:
		f.behind = 0
	case f.behind == 0 || f.safe[Data] >= f.mark[Data] && f.safe[State] >= f.mark[State]:
		f.behind, f.mark = now, l.end
	}
}

// Disconnected records the end of a follower's connection.
func (l *Leader) Disconnected(from coordination.Replica, now time.Duration) {
	if f := l.followers[from.Broker]; f != nil && f.Replica == from {
		f.joined = false
		l.judge(f, now)
	}
}

// UpdateGone updates which followers' incarnations have ended, by the function alive.
func (l *Leader) UpdateGone(alive func(coordination.Replica) bool) {
	for _, m := range l.shard.InSync {
		if m.Broker != l.self.Broker && l.followers[m.Broker] == nil {
			l.followers[m.Broker] = &progress{Replica: m, mark: l.end}
		}
	}
	for _, f := range l.followers {
		f.gone = !alive(f.Replica)
	}
}

// Stuck records where a follower's logs end, and that it can't copy what follows in one of them,
// since that is damaged here. Its stream ends now.
func (l *Leader) Stuck(from coordination.Replica, ends [Parts]uint64) {
	if f := l.followers[from.Broker]; f != nil && f.Replica == from {
		f.stuck = ends
	}
}

// Left records that a follower does not ask any more. When it does again, it may have another copy.
func (l *Leader) Left(from coordination.Replica) {
	if f := l.followers[from.Broker]; f != nil && f.Replica == from {
		f.stuck = [Parts]uint64{}
	}
}

// NobodyBeyond returns the offset from which on no other replica has any record of a log, if all
// other replicas ask in this epoch and are stuck. Otherwise it returns 0: one of them is away,
// is repairing its copy, or copies, and may have what is damaged here. Nobody but this leader could
// have sent them more.
func (l *Leader) NobodyBeyond(p Part) (offset uint64) {
	for _, id := range l.shard.Replicas {
		if id == l.self.Broker {
			continue
		}
		f := l.followers[id]
		if f == nil || f.gone || f.stuck[p] == 0 {
			return 0
		}
		offset = max(offset, f.stuck[p])
	}
	return offset
}

// Lost returns the offsets of a log that no other replica has, oldest first. lacks returns what a
// replica under repair lacks; nil: it is not under repair, or that is not known. Then it lacks what
// it got nothing for, and what is beyond its log's end if it is stuck. Otherwise it may have any
// offset: it is away, or copies.
func (l *Leader) Lost(p Part, lacks func(broker string) []log.Span,
	nothing func(r coordination.Replica) []log.Span) []log.Span {
	lost := []log.Span{{From: 1, Next: math.MaxUint64}}
	for _, id := range l.shard.Replicas {
		if id == l.self.Broker {
			continue
		}
		spans := lacks(id)
		if f := l.followers[id]; len(spans) == 0 && f != nil && !f.gone && (f.joined || f.stuck[p] > 0) {
			if spans = nothing(f.Replica); f.stuck[p] > 0 {
				spans = log.AddSpan(spans, log.Span{From: f.stuck[p], Next: math.MaxUint64})
			}
		}
		lost = intersect(lost, spans)
	}
	return lost
}

// has returns the end of what is durable of a member's log, as far as known; 0 if it has not asked
// in that incarnation.
func (l *Leader) has(m coordination.Replica, p Part) uint64 {
	if m.Broker == l.self.Broker {
		return l.local[p]
	}
	if f := l.followers[m.Broker]; f != nil && f.Replica == m {
		return f.safe[p]
	}
	return 0
}

// advance moves the watermarks to what all members have, of the set and of the set of an unanswered
// swap (R3), and confirms barrier rounds (R11).
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
		for _, m := range l.unanswered {
			high = min(high, l.has(m, p))
		}
		if high > l.high[p] {
			l.high[p], moved = high, true
		}
	}
	return moved
}

// Want returns the in-sync set that the next swap should ask for; nil: no swap is due. The owner
// calls SwapAnswered with the answer. A member leaves, if enough stay, when its incarnation ended,
// it withdrew, it lost what it had confirmed, or it lagged for too long. A replica joins when it
// has everything that is safe. A swap with a lost answer is repeated unchanged.
func (l *Leader) Want(now time.Duration) []coordination.Replica {
	if l.swapPending || now < l.retryAt {
		return nil
	}
	if l.unanswered == nil {
		l.unanswered = l.wanted(now)
	}
	l.swapPending = l.unanswered != nil
	return slices.Clone(l.unanswered)
}

func (l *Leader) wanted(now time.Duration) []coordination.Replica {
	var stay, leave []coordination.Replica
	for _, m := range l.shard.InSync {
		f := l.followers[m.Broker]
		switch {
		case m.Broker == l.self.Broker:
			stay = append(stay, l.self)
		case f != nil && f.Replica != m: // it has restarted
			if l.caughtUp(f) {
				stay = append(stay, f.Replica)
			} else {
				leave = append(leave, m)
			}
		case m.Incarnation == 0: // it withdrew and has not asked since
			leave = append(leave, m)
		case f != nil && (f.gone || l.lostRecords(f) || l.lagging(f, now)):
			leave = append(leave, m)
		default:
			stay = append(stay, m)
		}
	}
	for _, id := range l.shard.Replicas {
		in := func(m coordination.Replica) bool { return m.Broker == id }
		if f := l.followers[id]; f != nil && !slices.ContainsFunc(stay, in) &&
			!slices.ContainsFunc(leave, in) && l.caughtUp(f) {
			stay = append(stay, f.Replica)
		}
	}
	// Too few stay to acknowledge anything: keep every member that could be elected
	if len(stay) < int(l.min) {
		stay = append(stay, leave...)
	}
	if same(stay, l.shard.InSync) {
		return nil
	}
	return stay
}

// lostRecords reports whether a member lost records that it had confirmed: its ask had less than
// what is safe on all members. The cause is a log that failed before records confirmed in memory
// were written. It joins again when it has caught up.
func (l *Leader) lostRecords(f *progress) bool {
	return f.joined && (f.safe[Data] < l.high[Data] || f.safe[State] < l.high[State])
}

// lagging reports whether a member has lagged for too long.
func (l *Leader) lagging(f *progress, now time.Duration) bool {
	l.judge(f, now)
	patience := LagTime
	if !f.joined {
		patience = DisconnectTime
	}
	return f.behind > 0 && now-f.behind > patience
}

// caughtUp reports whether a follower may join the set: it has everything that is safe, and
// everything that the logs had when the epoch began.
func (l *Leader) caughtUp(f *progress) bool {
	if !f.joined || f.gone {
		return false
	}
	for p := range Parts {
		if f.safe[p] < l.Goal(p) {
			return false
		}
	}
	return true
}

// Goal returns the offset below which a follower that joins now must have all records: what is safe
// on all members, and what the log held when the epoch began, since an earlier leader may have
// acknowledged that.
func (l *Leader) Goal(p Part) uint64 { return max(l.high[p], l.epochStart[p]) }

func same(a, b []coordination.Replica) bool {
	return len(a) == len(b) &&
		!slices.ContainsFunc(a, func(m coordination.Replica) bool { return !slices.Contains(b, m) })
}

// SwapAnswered handles the answer to a swap: the shard that was written, or, after a refusal, that
// was read afterwards. nil means that the result is unknown: the swap may succeed still, so its
// members count until the same swap has an answer or etcd has a newer revision. It reports whether
// the watermark moved.
//
// A refusal with an unchanged shard means that the incarnation of the leader, or of a broker that
// was to join, has ended. Then no earlier attempt of the same swap can succeed any more, either.
func (l *Leader) SwapAnswered(shard *coordination.Shard, now time.Duration) (moved bool) {
	l.swapPending = false
	l.retryAt = now + swapRetry
	if shard == nil || shard.Epoch != l.shard.Epoch || shard.Revision < l.shard.Revision {
		return false
	}
	// The swap, or another write, succeeded.
	if shard.Revision > l.shard.Revision || l.unanswered == nil {
		l.retryAt = now
	}
	l.setShard(shard)
	return l.advance()
}

// setShard replaces the shard. A member that has withdrawn since must ask again before it counts:
// what it confirmed before is of a copy that it does not vouch for.
func (l *Leader) setShard(shard *coordination.Shard) {
	for _, id := range withdrawn(&l.shard, shard) {
		if f := l.followers[id]; f != nil {
			f.joined, f.safe, f.stuck = false, [Parts]uint64{}, [Parts]uint64{}
		}
	}
	l.shard, l.unanswered = *shard, nil
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
