package bench

// A gapWatch knows for how long each publisher went without an ack. It is pure: the caller brings
// the times, in order. One goroutine at a time.
type gapWatch struct {
	phase   gapPhase
	since   int64   // when the phase began
	last    []int64 // when each publisher was acknowledged last; 0 is never
	longest []int64 // of each publisher since the fault began
	steady  int64   // the longest of all while nothing was wrong
}

type gapPhase int

const (
	gapIdle   gapPhase = iota // what is seen does not count: publishers go back to their brokers
	gapSteady                 // nothing is wrong
	gapFault                  // from the fault on until all is as before
)

func newGapWatch(publishers int) *gapWatch {
	return &gapWatch{last: make([]int64, publishers), longest: make([]int64, publishers)}
}

func (g *gapWatch) enter(phase gapPhase, at int64) {
	g.phase, g.since = phase, at
	clear(g.longest)
}

// ack enters an ack of a publisher. A gap that began before a fault, and ended in it, is the
// fault's; one that reaches into undisturbed times from before is not theirs.
func (g *gapWatch) ack(publisher int, at int64) {
	last := g.last[publisher]
	g.last[publisher] = at
	switch {
	case last == 0:
	case g.phase == gapFault:
		g.longest[publisher] = max(g.longest[publisher], at-last)
	case g.phase == gapSteady && last >= g.since:
		g.steady = max(g.steady, at-last)
	}
}

// allSince tells whether every publisher was acknowledged at that time or later.
func (g *gapWatch) allSince(at int64) bool {
	for _, last := range g.last {
		if last < at {
			return false
		}
	}
	return true
}

// gaps are the longest since the fault began: of those publishers that were not at the victim, and
// of all. Who waits still has waited until now.
func (g *gapWatch) gaps(atVictim []bool, at int64) (others, all int64, n int) {
	for p, gap := range g.longest {
		gap = max(gap, at-g.last[p])
		all = max(all, gap)
		if !atVictim[p] {
			others = max(others, gap)
			n++
		}
	}
	return others, all, n
}
