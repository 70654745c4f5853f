package replica

import "github.com/carillon-mq/carillon/broker/log"

// Part says which of a shard's logs.
type Part uint8

// The parts.
const (
	Data  Part = iota // records
	State             // cursors
	Parts             // how many there are
)

func (p Part) String() string { return [...]string{"data", "state"}[p] }

// MaxLineage is how many epochs a follower tells its leader at once, the newest. A log that shares none of so many
// with its leader is fetched anew.
const MaxLineage = 256

// Lineage is what a log says of itself when two are compared: its range, and where the epochs begin
// of which it retains batches, oldest first. The first may begin before Start.
type Lineage struct {
	Start, End uint64
	Epochs     []log.Epoch
}

// LineageOf is that of a log as it is now.
func LineageOf(l *log.Log) Lineage {
	start, end, _ := l.Offsets()
	epochs := l.Epochs() // after the end: one that came meanwhile begins there or later, and is left out
	for len(epochs) > 0 && epochs[len(epochs)-1].Start >= end {
		epochs = epochs[:len(epochs)-1]
	}
	if len(epochs) > MaxLineage {
		epochs = epochs[len(epochs)-MaxLineage:]
	}
	return Lineage{Start: start, End: end, Epochs: epochs}
}

// endOf is where the batches of the i-th epoch end.
func (l *Lineage) endOf(i int) uint64 {
	if i+1 < len(l.Epochs) {
		return l.Epochs[i+1].Start
	}
	return l.End
}

// Verb is what a follower is to do with its log before it copies.
type Verb uint8

// The verbs.
const (
	Copy     Verb = iota // from At, where its log ends
	Truncate             // to At, and copy from there
	Reset                // begin anew at At
)

func (v Verb) String() string { return [...]string{"copy", "truncate", "reset"}[v] }

// Verdict is a leader's answer to a follower's lineage.
type Verdict struct {
	Verb Verb
	At   uint64
}

// Meet says how a follower comes to be a copy of its leader.
//
// Batches of one epoch come from one leader, and whoever appends one has everything before it in
// common with that leader. So two logs that have batches of the same epoch are equal up to where
// the first of them ends it; and the greatest epoch that both have says how far (KIP-101, KIP-279).
func Meet(leader, follower Lineage) Verdict {
	shared, found := follower.End, len(follower.Epochs) == 0
	for i := len(follower.Epochs) - 1; i >= 0 && !found; i-- {
		for j := len(leader.Epochs) - 1; j >= 0 && leader.Epochs[j].Epoch >= follower.Epochs[i].Epoch; j-- {
			if leader.Epochs[j].Epoch == follower.Epochs[i].Epoch {
				shared, found = min(follower.endOf(i), leader.endOf(j)), true
			}
		}
	}
	switch {
	// What the follower has is gone from the leader, or it has nothing that the leader had: a hole
	// must not come to be.
	case !found || shared < leader.Start || shared > leader.End:
		return Verdict{Reset, leader.Start}
	case shared < follower.Start || follower.Start == follower.End && follower.Start != leader.Start:
		return Verdict{Reset, leader.Start}
	case shared < follower.End:
		return Verdict{Truncate, shared}
	}
	return Verdict{Copy, shared}
}
