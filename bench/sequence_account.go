package bench

// maxGaps is how many gaps of one publisher a sequenceAccount keeps; a server that drops messages
// here and there makes more.
const maxGaps = 1024

// A sequenceAccount follows one publisher at one subscriber, however many messages it sends, in
// bounded memory: it keeps the ranges that were skipped. Beyond maxGaps of them the oldest one
// counts as lost for good, so what still comes of it counts as duplicated.
type sequenceAccount struct {
	next       uint64 // behind the highest sequence seen
	distinct   uint64
	duplicates int64
	reordered  int64 // first deliveries behind a later message
	gaps       []sequenceGap
}

// A sequenceGap is the sequences from first up to and without end.
type sequenceGap struct{ first, end uint64 }

// observe enters one delivery.
func (a *sequenceAccount) observe(sequence uint64) {
	if sequence == a.next {
		a.next++
		a.distinct++
		return
	}
	if sequence > a.next {
		if len(a.gaps) == maxGaps {
			a.gaps = append(a.gaps[:0], a.gaps[1:]...)
		}
		a.gaps = append(a.gaps, sequenceGap{a.next, sequence})
		a.next = sequence + 1
		a.distinct++
		return
	}
	for i, g := range a.gaps {
		if sequence < g.first || sequence >= g.end {
			continue
		}
		a.distinct++
		a.reordered++
		rest := append([]sequenceGap{}, a.gaps[:i]...)
		if g.first < sequence {
			rest = append(rest, sequenceGap{g.first, sequence})
		}
		if sequence+1 < g.end {
			rest = append(rest, sequenceGap{sequence + 1, g.end})
		}
		a.gaps = append(rest, a.gaps[i+1:]...)
		return
	}
	a.duplicates++
}

// settle compares it with what was published.
func (a *sequenceAccount) settle(published uint64) Deliveries {
	return Deliveries{
		Expected: int64(published), Received: int64(a.distinct), Lost: max(0, int64(published)-int64(a.distinct)),
		Duplicated: a.duplicates, OutOfOrder: a.reordered,
	}
}
