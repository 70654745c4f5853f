package replica

import "github.com/carillon-mq/carillon/broker/log"

// Part is one of a shard's logs.
type Part uint8

// The parts.
const (
	Data  Part = iota // records
	State             // cursors
	Parts             // number of parts
)

func (p Part) String() string { return [...]string{"data", "state"}[p] }

// MaxLineage is how many epochs a follower sends to its leader, the newest ones. A log that shares
// none of them with its leader is fetched anew.
const MaxLineage = 256

// Lineage describes a log for a comparison: its range, and where the epochs of its retained batches
// begin, oldest first. The first may begin before Start.
type Lineage struct {
	Start, End uint64
	Epochs     []log.Epoch
}

// LineageOf returns the lineage of a log as it is now.
func LineageOf(l *log.Log) Lineage {
	start, end, _ := l.Offsets()
	epochs := l.Epochs() // read after the end: a newer epoch begins there or later, and is left out
	for len(epochs) > 0 && epochs[len(epochs)-1].Start >= end {
		epochs = epochs[:len(epochs)-1]
	}
	if len(epochs) > MaxLineage {
		epochs = epochs[len(epochs)-MaxLineage:]
	}
	return Lineage{Start: start, End: end, Epochs: epochs}
}

// endOf returns the end of the i-th epoch's batches.
func (l *Lineage) endOf(i int) uint64 {
	if i+1 < len(l.Epochs) {
		return l.Epochs[i+1].Start
	}
	return l.End
}

// earlier returns the epochs of both logs that begin earlier in the other one, there.
func (l *Lineage) earlier(other Lineage) (begins []log.Epoch) {
	for _, e := range l.Epochs {
		for _, o := range other.Epochs {
			if o.Epoch == e.Epoch && o.Start < e.Start && o.Start >= l.Start {
				begins = append(begins, o)
			}
		}
	}
	return begins
}

// Verb is what a follower has to do with its log before it copies.
type Verb uint8

// The verbs.
const (
	Copy     Verb = iota // from the end of its log, which is At for Compare; see frameType for answers
	Truncate             // to At, then copy from there
	Reset                // the log starts over at At
)

func (v Verb) String() string { return [...]string{"copy", "truncate", "reset"}[v] }

// Verdict is a leader's answer to a follower's lineage.
type Verdict struct {
	Verb Verb
	At   uint64
}

// Compare returns how a follower becomes a copy of its leader.
//
// All batches of an epoch are from one leader, and a replica that appends one has everything before
// it in common with that leader. So two logs with batches of the same epoch are equal up to where
// the first of them ends it. The greatest common epoch says how far (KIP-101, KIP-279).
func Compare(leader, follower Lineage) Verdict {
	shared, found := follower.End, len(follower.Epochs) == 0
	for i := len(follower.Epochs) - 1; i >= 0 && !found; i-- {
		epoch := follower.Epochs[i].Epoch
		for j := len(leader.Epochs) - 1; j >= 0 && leader.Epochs[j].Epoch >= epoch; j-- {
			if leader.Epochs[j].Epoch == epoch {
				shared, found = min(follower.endOf(i), leader.endOf(j)), true
			}
		}
	}
	switch {
	// The leader has deleted what the follower has, or they share nothing. There must be no gap.
	case !found || shared < leader.Start || shared > leader.End:
		return Verdict{Reset, leader.Start}
	case shared < follower.Start || follower.Start == follower.End && follower.Start != leader.Start:
		return Verdict{Reset, leader.Start}
	case shared < follower.End:
		return Verdict{Truncate, shared}
	}
	return Verdict{Copy, shared}
}
