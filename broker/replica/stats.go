package replica

import "sync/atomic"

// Stats are counters of an Exchange since it began, and what there is now.
type Stats struct {
	OutBytes, OutBatches uint64 // to followers
	CatchUpBytes         uint64 // of them, what a follower lacked when it asked
	InBytes, InBatches   uint64 // from leaders
	OutAcks, InAcks      uint64
	OutAsks, InAsks      uint64
	Rounds               uint64 // of barriers, for answers that only a leader may give
	Refused              uint64 // asks of others that were refused here
	Truncations, Resets  uint64 // of logs here
	SetAside             uint64 // of them, those by which records went that were safe on all members
	Repaired             uint64 // segments here that were damaged or missing
	InRepairBytes        uint64 // that came for them
	OutRepairBytes       uint64 // that went to others for theirs
	Swaps                uint64 // in-sync sets that were written
	SwapsFailed          uint64 // or couldn't be, or it isn't known whether they were

	Leads       int // shards with followers that are led here
	Short       int // of these, those whose in-sync set lacks a replica
	Streams     int // of shards that followers copy from here
	Follows     int // shards that are followed here
	Copying     int // of these, those that are in step or catching up
	Connections int // to and from other brokers
}

type counters struct {
	outBytes, outBatches, catchUpBytes atomic.Uint64
	inBytes, inBatches                 atomic.Uint64
	outAcks, inAcks, outAsks, inAsks   atomic.Uint64
	refused, truncations, resets       atomic.Uint64
	setAside                           atomic.Uint64
	rounds                             atomic.Uint64
	swaps, swapsFailed                 atomic.Uint64
	repaired                           atomic.Uint64
	inRepairBytes, outRepairBytes      atomic.Uint64
}

// Stats returns the counters.
func (x *Exchange) Stats() Stats {
	c := &x.counters
	s := Stats{
		OutBytes: c.outBytes.Load(), OutBatches: c.outBatches.Load(), CatchUpBytes: c.catchUpBytes.Load(),
		InBytes: c.inBytes.Load(), InBatches: c.inBatches.Load(),
		OutAcks: c.outAcks.Load(), InAcks: c.inAcks.Load(), OutAsks: c.outAsks.Load(), InAsks: c.inAsks.Load(),
		Rounds: c.rounds.Load(), Refused: c.refused.Load(), Truncations: c.truncations.Load(), Resets: c.resets.Load(), SetAside: c.setAside.Load(),
		Repaired: c.repaired.Load(), InRepairBytes: c.inRepairBytes.Load(), OutRepairBytes: c.outRepairBytes.Load(),
		Swaps: c.swaps.Load(), SwapsFailed: c.swapsFailed.Load(),
	}
	x.mu.Lock()
	s.Leads, s.Connections = len(x.leads), len(x.outlets)
	leads := make([]*Leading, 0, len(x.leads))
	for _, l := range x.leads {
		leads = append(leads, l)
	}
	var follows []*Following
	for _, fd := range x.feeds {
		if fd.intake != nil {
			s.Connections++
		}
		for f := range fd.shards {
			follows = append(follows, f)
		}
	}
	x.mu.Unlock()
	for _, l := range leads {
		l.mu.Lock()
		s.Streams += len(l.streams)
		if l.leader.short() {
			s.Short++
		}
		l.mu.Unlock()
	}
	s.Follows = len(follows)
	for _, f := range follows {
		if copying, _ := f.State(); copying {
			s.Copying++
		}
	}
	return s
}

// short says whether a replica is not in sync in the life that it is in.
func (l *Leader) short() bool {
	if len(l.shard.InSync) < len(l.shard.Replicas) {
		return true
	}
	for _, m := range l.shard.InSync {
		if f := l.followers[m.Broker]; m.Broker == l.self.Broker && m != l.self || f != nil && f.Replica != m {
			return true
		}
	}
	return false
}
