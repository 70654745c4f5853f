package simulation

import (
	"github.com/carillon-mq/carillon/broker/replica"
)

// Mutation takes invariants away; the zero value takes none.
type Mutation struct {
	AckEarly      bool // R2: a record counts where it was appended, not where it is safe
	ReadEarly     bool // R6: readers see what is appended
	FollowOn      bool // R1: a follower goes on copying and acknowledging under an older epoch
	TrustReturned bool // R4: who lost what wasn't synced is elected like who didn't

	Core func(*replica.Leader, [replica.Parts]uint64) core
	Meet func(leader, follower replica.Lineage) replica.Verdict
}

func (m *Mutation) core(l *replica.Leader, ends [replica.Parts]uint64) core {
	if m.Core != nil {
		return m.Core(l, ends)
	}
	return l
}

func (m *Mutation) meet(leader, follower replica.Lineage) replica.Verdict {
	if m.Meet != nil {
		return m.Meet(leader, follower)
	}
	return replica.Meet(leader, follower)
}
