package simulation

import (
	"slices"
	"time"

	"github.com/carillon-mq/carillon/broker/coordination"
	"github.com/carillon-mq/carillon/broker/replica"
)

// Mutation takes invariants away; the zero value takes none. It is how the judge is judged.
type Mutation struct {
	FollowOn       bool // R1: a follower goes on copying and acknowledging under an older epoch
	LeadAgain      bool // R1: a leader that died leads on in its next life, under the same epoch
	AckEarly       bool // R2: a record counts where it was appended, not where it is safe
	Minimum        int  // R3: the minimum that leaders go by; 0: what the Topic asks for
	ElectAnyone    bool // R4: whoever holds a replica can lead
	TrustReturned  bool // R4: who came back in another life is taken to have everything
	TruncateToHigh bool // R5: a follower cuts what it doesn't know to be safe
	ReadEarly      bool // R6: readers see what is appended
	ReadAtOnce     bool // R6: a new leader lets read before it knows what was safe
	KeepEpoch      bool // R1: a replica is taken away under the same epoch
	HideDamage     bool // R9: who lost something that was safe doesn't say so
	WriteBlindly   bool // R1, R3: etcd takes what was made from another revision

	// Counts says whom the watermark waits for. has and asked are what the leader's core knows.
	Counts func(c *counting) []coordination.Replica
	Meet   func(leader, follower replica.Lineage) replica.Verdict
}

func (m *Mutation) core(l *replica.Leader, self coordination.Replica, high [replica.Parts]uint64) core {
	if m.Counts == nil {
		return l
	}
	return &counting{Leader: l, self: self, counts: m.Counts, high: high, has: map[string]kept{}}
}

func (m *Mutation) meet(leader, follower replica.Lineage) replica.Verdict {
	if m.Meet != nil {
		return m.Meet(leader, follower)
	}
	return replica.Meet(leader, follower)
}

func (m *Mutation) minimum(right int) int {
	if m.Minimum > 0 {
		return m.Minimum
	}
	return right
}

// kept is what a follower keeps, in which life.
type kept struct {
	life int64
	safe [replica.Parts]uint64
}

// counting is a leader's core that moves the watermark by a rule of its own.
type counting struct {
	*replica.Leader
	self   coordination.Replica
	counts func(*counting) []coordination.Replica
	has    map[string]kept
	high   [replica.Parts]uint64
	local  [replica.Parts]uint64
	asked  []coordination.Replica // the last set that was wanted, until its answer is known
	mute   bool                   // an answer was lost, and nothing was heard since
}

func (c *counting) High(p replica.Part) uint64 { return c.high[p] }

func (c *counting) Safe(p replica.Part, end uint64) bool {
	c.local[p] = max(c.local[p], end)
	return c.advance(c.Leader.Safe(p, end))
}

func (c *counting) Adopt(self coordination.Replica, shard *coordination.Shard, minimum int) bool {
	if shard.Revision > c.Shard().Revision {
		c.asked, c.mute = nil, false
	}
	return c.advance(c.Leader.Adopt(self, shard, minimum))
}

func (c *counting) Join(from coordination.Replica, safe [replica.Parts]uint64, now time.Duration) bool {
	ok := c.Leader.Join(from, safe, now)
	if ok {
		c.has[from.Broker] = kept{from.Incarnation, safe}
		c.advance(false)
	}
	return ok
}

func (c *counting) Copied(from coordination.Replica, p replica.Part, end uint64, now time.Duration) bool {
	moved := c.Leader.Copied(from, p, end, now)
	if k := c.has[from.Broker]; k.life == from.Incarnation {
		k.safe[p] = max(k.safe[p], end)
		c.has[from.Broker] = k
	}
	return c.advance(moved)
}

func (c *counting) Want(now time.Duration) []coordination.Replica {
	set := c.Leader.Want(now)
	if set != nil {
		c.asked = set
	}
	return set
}

func (c *counting) Asked(shard *coordination.Shard, now time.Duration) bool {
	c.mute = shard == nil
	if shard != nil {
		c.asked = nil
	}
	return c.advance(c.Leader.Asked(shard, now))
}

func (c *counting) advance(moved bool) bool {
	if !c.Enough() {
		return false
	}
	for p := range replica.Parts {
		high := c.local[p]
		for _, m := range c.counts(c) {
			if m.Broker == c.self.Broker {
				continue
			}
			if k := c.has[m.Broker]; k.life == m.Incarnation || m.Incarnation == anyLife {
				high = min(high, k.safe[p])
			} else {
				high = 0
			}
		}
		if high > c.high[p] {
			c.high[p], moved = high, true
		}
	}
	return moved
}

// anyLife in a member that counts stands for whichever life was heard of last.
const anyLife = -1

// The rules that leaders may go by; countBoth is the right one.

func countBoth(c *counting) []coordination.Replica { return append(c.Shard().InSync, c.asked...) }

// countLeader: R2, an ack needs nobody else.
func countLeader(*counting) []coordination.Replica { return nil }

// countOld: R3, who was asked for doesn't count before the answer is there.
func countOld(c *counting) []coordination.Replica { return c.Shard().InSync }

// countNew: R3, who is to leave doesn't count from the question on.
func countNew(c *counting) []coordination.Replica {
	if c.asked != nil {
		return c.asked
	}
	return c.Shard().InSync
}

// countForgetful: R3, a swap whose answer was lost is taken for one that wasn't done.
func countForgetful(c *counting) []coordination.Replica {
	if c.mute {
		return c.Shard().InSync
	}
	return countBoth(c)
}

// countMajority: R2, some of the set are enough.
func countMajority(c *counting) []coordination.Replica {
	set := countBoth(c)
	all := slices.Clone(set)
	slices.SortFunc(all, func(a, b coordination.Replica) int {
		return int(c.has[b.Broker].safe[0]) - int(c.has[a.Broker].safe[0])
	})
	return all[:min(len(all), 2)]
}

// meetOnce: R5, KIP-101 without KIP-279. The leader names where its greatest epoch ends that isn't newer than
// the follower's last, whether the follower has that epoch or not.
func meetOnce(leader, follower replica.Lineage) replica.Verdict {
	if len(follower.Epochs) == 0 || len(leader.Epochs) == 0 {
		return replica.Meet(leader, follower)
	}
	last, end := follower.Epochs[len(follower.Epochs)-1].Epoch, leader.Start
	for i, e := range leader.Epochs {
		if e.Epoch <= last {
			end = leader.End
			if i+1 < len(leader.Epochs) {
				end = leader.Epochs[i+1].Start
			}
		}
	}
	if end < follower.Start {
		return replica.Verdict{Verb: replica.Reset, At: leader.Start}
	}
	if end < follower.End {
		return replica.Verdict{Verb: replica.Truncate, At: end}
	}
	return replica.Verdict{Verb: replica.Copy, At: follower.End}
}

// meetNever: R5, a follower keeps what it has.
func meetNever(leader, follower replica.Lineage) replica.Verdict {
	if follower.End > leader.End || follower.End < leader.Start {
		return replica.Meet(leader, follower)
	}
	return replica.Verdict{Verb: replica.Copy, At: follower.End}
}
