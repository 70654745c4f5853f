package retention

import (
	"errors"
	"log/slog"
	"math"
	"sync/atomic"
	"time"

	"github.com/carillon-mq/carillon/broker/clock"
	"github.com/carillon-mq/carillon/broker/log"
	"github.com/carillon-mq/carillon/broker/removal"
	"github.com/carillon-mq/carillon/broker/removing"
	"github.com/carillon-mq/carillon/broker/replica"
)

const (
	// Tick is how often retention is checked.
	Tick = 500 * time.Millisecond
	// retry is how long after a failure the keeper looks at a shard again.
	retry = 30 * time.Second
	// rest is when a shard is looked at again by which nothing is due.
	rest = time.Hour
)

// Shard is what a Keeper works on: the records of a shard that is led here. Readers see nothing at
// or beyond High, and nothing below Visible, which never goes back. Removed has the records below
// High that were removed one by one.
type Shard struct {
	Name          string
	Data          *log.Log
	High, Visible *replica.Watermark
	Removed       *removal.Set
	// Young is how old a record must be before its removal frees its segment: until then a new
	// leader may have to know its id.
	Young func() time.Duration
	// Settled returns an offset up to high before which Removed lacks no record that a readable one
	// has removed. It may be nil: then that is high.
	Settled func(high uint64) uint64
	Clock   *clock.Clock
	Logger  *slog.Logger
}

// Keeper says when old records of a shard are due to be deleted, and deletes them. Init comes
// first. Retain has one caller at a time. Other methods may be called concurrently.
type Keeper struct {
	shard  Shard
	seen   atomic.Uint64 // the high watermark of the last pass, or unseen
	gone   atomic.Uint64 // version of the removed records of the last pass
	due    atomic.Int64  // when records are due by age, on the clock's Mono; 0: at once
	policy log.Retention // of the last pass
	paused atomic.Bool   // deletion by age is paused, as the time is in doubt
	young  atomic.Bool   // the log begins with removed records that are too young
}

// unseen is the seen of a shard that is to be looked at.
const unseen = math.MaxUint64

// Init sets the shard. It is to be looked at.
func (k *Keeper) Init(shard Shard) {
	k.shard = shard
	k.Renew()
}

// Renew has the shard looked at again.
func (k *Keeper) Renew() {
	k.seen.Store(unseen)
	k.due.Store(0)
}

// Seen reports whether the shard was looked at since Renew.
func (k *Keeper) Seen() bool { return k.seen.Load() != unseen }

// IsDue reports whether policy may have something to delete at mono, of the clock's Mono.
func (k *Keeper) IsDue(policy log.Retention, mono int64) bool {
	if due := k.due.Load(); due == 0 || (policy.Age > 0 || k.young.Load()) && mono >= due {
		return true
	}
	if k.shard.Removed.Version() != k.gone.Load() {
		return true // the log may begin with removed records
	}
	return (policy.Bytes > 0 || policy.Messages > 0 || policy.Age > 0) && k.shard.High.Load() != k.seen.Load()
}

// Purge deletes the records below an offset, of those from start to end that readers see, and
// returns their number, as messages counts them. Records that a reader holds stay.
func (k *Keeper) Purge(start, end, below uint64, messages func(start, end uint64) uint64) (purged uint64, err error) {
	if below = min(below, end); below <= start {
		return 0, nil
	}
	data := k.shard.Data
	data.CountHoles(start)
	before := messages(start, end)
	now, err := data.Trim(below)
	if err != nil {
		return 0, err
	}
	if now = k.shard.Visible.Raise(now); now <= start {
		return 0, nil
	}
	k.shard.Removed.Trim(now)
	data.CountHoles(now)
	return before - min(messages(now, end), before), nil
}

// Retain deletes records by policy. While the time is in doubt, nothing is deleted by age.
func (k *Keeper) Retain(policy log.Retention) {
	s := &k.shard
	k.seen.Store(s.High.Load()) // first: later records are looked at next time
	k.gone.Store(s.Removed.Version())
	now, mono := s.Clock.Read()
	k.due.Store(mono + int64(rest))
	pause := policy.Age > 0 && s.Clock.InDoubt()
	k.pauseAge(pause)
	if pause {
		policy.Age = 0
		k.due.Store(mono + int64(Tick))
	}
	if err := k.apply(time.Unix(0, now), mono, policy); err != nil && !errors.Is(err, log.ErrClosed) {
		k.due.Store(mono + int64(retry))
		s.Logger.Warn("old records of a Topic could not be deleted", "topic", s.Name, "error", err)
	}
}

// pauseAge notes whether deletion by age is paused, and logs it when that begins and ends.
func (k *Keeper) pauseAge(pause bool) {
	s := &k.shard
	if k.paused.Swap(pause) == pause {
		return
	}
	if pause {
		s.Logger.Warn("Records of a Topic are not deleted by their age, as the time is in doubt",
			"topic", s.Name, "why", s.Clock.Verdict().Why)
		return
	}
	s.Logger.Info("Records of a Topic are deleted by their age again", "topic", s.Name)
}

// AgePaused returns why deletion by age is paused, as a reason and for people; empty: it isn't.
func (k *Keeper) AgePaused() (reason clock.Reason, why string) {
	if v := k.shard.Clock.Verdict(); k.paused.Load() {
		return v.Doubt, v.Why
	}
	return clock.None, ""
}

// settled returns the offset before which records are counted.
func (s *Shard) settled(high uint64) uint64 {
	if s.Settled == nil {
		return high
	}
	return s.Settled(high)
}

// Kept returns the first offset of so many records below end that are left, or 0 if there are no
// more than those. removed records don't count.
func Kept(removed *removal.Set, end, messages uint64) uint64 {
	switch {
	case messages == 0:
		return 0
	case removed.Len() > 0:
		return removed.Select(end, messages)
	case end <= messages:
		return 0
	}
	return end - messages
}

// passRemoved deletes the segments that the log begins with and all of whose records are removed.
// Young segments wait, and so do all while the time is in doubt. It has policy count what is left,
// since logs count offsets, and the set forget offsets that the log lacks.
func (k *Keeper) passRemoved(now time.Time, mono int64, policy *log.Retention) error {
	s := &k.shard
	if k.young.Store(false); s.Removed.Len() == 0 {
		return nil
	}
	_, end, _ := s.Data.Offsets()
	high := s.High.Load()
	first, old, doubt := min(s.Removed.Next(s.Data.Start()), high), now.Add(-s.Young()), s.Clock.InDoubt()
	free := uint64(0) // a new start costs a sync, so it is to free a segment
	for _, g := range s.Data.SegmentInfos() {
		if g.Active || g.End > first {
			break
		}
		if doubt || !g.Last.Before(old) {
			k.young.Store(true)
			k.due.Store(mono + int64(Tick))
			break
		}
		if g.End > g.Base {
			free = g.End
		}
	}
	if free > 0 {
		s.Visible.Raise(free)
		if _, err := s.Data.Trim(free); err != nil {
			return err
		}
	}
	if policy.Bytes > 0 {
		policy.Bytes += removing.RemovedBytes(s.Data, s.Removed, 0)
	}
	if policy.Messages > 0 {
		from := Kept(s.Removed, s.settled(high), policy.Messages)
		policy.Messages = max(policy.Messages, end-min(from, end))
	}
	s.Removed.Trim(s.Data.Start())
	return nil
}

// apply deletes records by policy, and notes when the next ones are due.
func (k *Keeper) apply(now time.Time, mono int64, policy log.Retention) error {
	s := &k.shard
	before := k.policy
	k.policy = policy
	if before.Messages > 0 && policy.Messages != before.Messages {
		// Records that were hidden must stay hidden when more is kept.
		if from := Kept(s.Removed, s.settled(s.High.Load()), before.Messages); from > 0 {
			if _, err := s.Data.Trim(s.Visible.Raise(from)); err != nil {
				return err
			}
		}
	}
	if err := k.passRemoved(now, mono, &policy); err != nil {
		return err
	}
	if policy == (log.Retention{}) {
		return nil
	}
	if _, err := s.Data.Retain(now, policy); err != nil {
		return err
	}
	if policy.Age > 0 {
		// No sooner than the next tick: a reader may be holding a segment.
		next := policy.Next(s.Data.SegmentInfos(), now).Sub(now)
		if k.young.Load() {
			next = Tick
		}
		k.due.Store(mono + int64(max(next, Tick)))
	}
	return nil
}
