package replica

import "sync/atomic"

// Stats are counters since the Exchange began, and gauges.
type Stats struct {
	OutBytes, OutBatches uint64 // to followers
	CatchUpBytes         uint64 // of OutBytes, what followers lacked at their asks
	InBytes, InBatches   uint64 // from leaders
	OutAcks, InAcks      uint64
	OutAsks, InAsks      uint64
	Rounds               uint64 // barrier rounds, for answers that only a leader may give
	Refused              uint64 // other brokers' asks that were refused
	Truncations, Resets  uint64 // of logs on this broker
	SetAside             uint64 // of these, with records that were safe on all members
	Repaired             uint64 // damaged or missing segments on this broker
	InRepairBytes        uint64 // received for them
	OutRepairBytes       uint64 // sent for those of other brokers
	GivenUp              uint64 // damaged records that no replica had
	Swaps                uint64 // of in-sync sets that were written
	SwapsFailed          uint64 // that failed, or whose result is unknown

	Leads           int // shards with followers that are led here
	UnderReplicated int // of Leads, with a replica that is not in sync
	Streams         int // shards that followers copy from here
	Follows         int // shards that are followed here
	Copying         int // of Follows, in step or catching up
	Connections     int // to and from other brokers
}

type counters struct {
	outBytes, outBatches, catchUpBytes atomic.Uint64
	inBytes, inBatches                 atomic.Uint64
	outAcks, inAcks, outAsks, inAsks   atomic.Uint64
	refused, truncations, resets       atomic.Uint64
	setAside                           atomic.Uint64
	rounds                             atomic.Uint64
	swaps, swapsFailed                 atomic.Uint64
	repaired, givenUp                  atomic.Uint64
	inRepairBytes, outRepairBytes      atomic.Uint64
}

// Stats returns the counters and gauges.
func (x *Exchange) Stats() Stats {
	c := &x.counters
	s := Stats{
		OutBytes: c.outBytes.Load(), OutBatches: c.outBatches.Load(), CatchUpBytes: c.catchUpBytes.Load(),
		InBytes: c.inBytes.Load(), InBatches: c.inBatches.Load(),
		OutAcks: c.outAcks.Load(), InAcks: c.inAcks.Load(), OutAsks: c.outAsks.Load(), InAsks: c.inAsks.Load(),
		Rounds: c.rounds.Load(), Refused: c.refused.Load(), Truncations: c.truncations.Load(), Resets: c.resets.Load(), SetAside: c.setAside.Load(),
		Repaired: c.repaired.Load(), GivenUp: c.givenUp.Load(), InRepairBytes: c.inRepairBytes.Load(), OutRepairBytes: c.outRepairBytes.Load(),
		Swaps: c.swaps.Load(), SwapsFailed: c.swapsFailed.Load(),
	}
	x.mu.Lock()
	s.Leads, s.Connections = len(x.leads), len(x.followerConns)
	leads := make([]*Leading, 0, len(x.leads))
	for _, l := range x.leads {
		leads = append(leads, l)
	}
	var follows []*Following
	for _, fd := range x.dialers {
		if fd.conn != nil {
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
		if l.leader.underReplicated() {
			s.UnderReplicated++
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

// underReplicated reports whether a replica is not in sync in its current incarnation.
func (l *Leader) underReplicated() bool {
	if len(l.shard.InSync) < len(l.shard.Replicas) {
		return true
	}
	for _, m := range l.shard.InSync {
		if f := l.followers[m.Broker]; m.Broker == l.self.Broker && m != l.self ||
			f != nil && f.Replica != m {
			return true
		}
	}
	return false
}
