package chaos

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"
)

// Kind is one of the faults that a cluster is put through.
type Kind string

const (
	Kill      Kind = "kill"      // kill -9 of brokers; they start again afterwards
	Pause     Kind = "pause"     // brokers stand still
	Partition Kind = "partition" // messages from some nodes to some others are dropped
	Etcd      Kind = "etcd"      // coordinators are killed or stand still, perhaps so many that no quorum is left
	Power     Kind = "power"     // the power of brokers fails, what was not synced is gone; perhaps that of coordinators, too
	Full      Kind = "full"      // disks of brokers are full
	Failing   Kind = "failing"   // a broker's disk fails; it is mended and the broker started again afterwards
	Flip      Kind = "flip"      // a bit of a file of one broker flips while it is down
	Clock     Kind = "clock"     // wall clocks of brokers jump, and stay where they are
)

// Kinds are all faults.
var Kinds = []Kind{Kill, Pause, Partition, Etcd, Power, Full, Failing, Flip, Clock}

// The nodes of a cluster by number: brokers, coordinators, and the clients together.
const (
	brokers      = 3
	coordinators = 3
	clients      = brokers + coordinators
	nodes        = clients + 1
)

func nodeName(n int) string {
	switch {
	case n < brokers:
		return fmt.Sprintf("b%d", n)
	case n < clients:
		return fmt.Sprintf("c%d", n-brokers)
	}
	return "clients"
}

// Cut is one direction in which nothing arrives.
type Cut struct{ From, To int }

// Step is one fault: what happens when, counted from when its round began, to whom, and for how long.
type Step struct {
	Kind    Kind
	At, For time.Duration
	Nodes   []int           // whom it meets
	Still   bool            // of coordinators: they stand still, and are not killed
	Cuts    []Cut           // of a partition
	Shifts  []time.Duration // of clocks, in the order of Nodes
	Shape   string          // of a partition, for people
	Moment  uint64          // of chance that is left for when it happens: which bit
}

func (s Step) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s at %v for %v", s.Kind, s.At, s.For)
	for i, n := range s.Nodes {
		fmt.Fprintf(&b, " %s", nodeName(n))
		if len(s.Shifts) > 0 {
			fmt.Fprintf(&b, " by %v", s.Shifts[i])
		}
	}
	if s.Still {
		b.WriteString(" (still)")
	}
	if s.Shape != "" {
		fmt.Fprintf(&b, " (%s:", s.Shape)
		for _, c := range s.Cuts {
			fmt.Fprintf(&b, " %s>%s", nodeName(c.From), nodeName(c.To))
		}
		b.WriteString(")")
	}
	return b.String()
}

// Round is faults that overlap. After each the cluster is whole again before the next begins, so that faults that may
// meet only a minority do.
type Round []Step

func (r Round) String() string {
	var all []string
	for _, s := range r {
		all = append(all, s.String())
	}
	return strings.Join(all, "; ")
}

const (
	// mostShift is how far a clock may be off: less than half of the window in which messages are deduplicated, which is
	// counted in wall time.
	mostShift = 40 * time.Minute
	// quorumless is how long etcd may be without a quorum.
	quorumless = time.Minute
)

// chance is a source of decisions.
type chance struct{ *rand.Rand }

func (c chance) between(from, to time.Duration) time.Duration {
	return (from + time.Duration(c.Int64N(int64(to-from)))).Truncate(time.Millisecond)
}

// some are at least one and at most so many of the nodes from first on.
func (c chance) some(first, of, most int) []int {
	all := c.Perm(of)[:1+c.IntN(most)]
	for i := range all {
		all[i] += first
	}
	slices.Sort(all)
	return all
}

// Planner makes rounds of faults, the same from the same seed.
type Planner struct {
	chance chance
	kinds  []Kind
	// Victim is the broker whose files bits flip in: damage of what nobody reads is found in an hour, so a second broker could
	// have damage at the same time.
	Victim int
	// Long lets faults last longer than a round of a few seconds.
	Long bool
}

// NewPlanner plans with faults of these kinds.
func NewPlanner(seed uint64, kinds []Kind) *Planner {
	c := chance{rand.New(rand.NewPCG(seed, 0x9e3779b97f4a7c15))}
	return &Planner{chance: c, kinds: kinds, Victim: c.IntN(brokers)}
}

// Next is the next round.
func (p *Planner) Next() Round {
	c := p.chance
	var round Round
	busy := map[int]bool{} // whose process something happens to already
	cut := false
	for n := 1 + c.IntN(3); len(round) < n; {
		s := p.step(p.kinds[c.IntN(len(p.kinds))])
		s.At = c.between(0, 2*time.Second)
		switch {
		case s.Kind == Partition && cut, s.Kind == Flip && len(busy) > 0, s.Kind != Clock && s.Kind != Partition && slices.ContainsFunc(s.Nodes, func(n int) bool { return busy[n] }):
			n-- // one less, so that this ends
			continue
		}
		cut = cut || s.Kind == Partition
		for _, node := range s.Nodes {
			busy[node] = busy[node] || s.Kind != Clock && s.Kind != Partition
		}
		if s.Kind == Flip {
			for b := range brokers { // of a minority: no other copy is at risk
				busy[b] = true
			}
		}
		round = append(round, s)
	}
	if len(round) == 0 {
		return p.Next()
	}
	slices.SortStableFunc(round, func(a, b Step) int { return int(a.At - b.At) })
	return round
}

func (p *Planner) step(kind Kind) Step {
	c := p.chance
	s := Step{Kind: kind, For: c.between(time.Second, 8*time.Second), Moment: c.Uint64()}
	switch kind {
	case Kill:
		s.For = c.between(100*time.Millisecond, 5*time.Second)
		s.Nodes = c.some(0, brokers, brokers)
	case Pause:
		s.Nodes = c.some(0, brokers, brokers)
	case Partition:
		s.Shape, s.Cuts = p.partition()
	case Etcd:
		s.Nodes = c.some(brokers, coordinators, coordinators)
		s.Still = c.IntN(2) == 0
		if p.Long && c.IntN(4) == 0 {
			s.For = c.between(20*time.Second, quorumless)
		}
	case Power:
		s.For = c.between(100*time.Millisecond, 3*time.Second)
		switch c.IntN(3) {
		case 0:
			s.Nodes = c.some(0, brokers, brokers)
		case 1:
			s.Nodes = []int{0, 1, 2}
		default:
			s.Nodes = []int{0, 1, 2, 3, 4, 5}
		}
	case Full:
		s.Nodes = c.some(0, brokers, brokers)
	case Failing:
		s.Nodes = c.some(0, brokers, 1)
	case Flip:
		s.For = c.between(100*time.Millisecond, 3*time.Second)
		s.Nodes = []int{p.Victim}
	case Clock:
		s.Nodes = c.some(0, brokers, brokers)
		for range s.Nodes {
			s.Shifts = append(s.Shifts, c.between(-mostShift, mostShift))
		}
	}
	return s
}

// partition is a shape, and what doesn't arrive where.
func (p *Planner) partition() (shape string, cuts []Cut) {
	c := p.chance
	between := func(from, to []int, bothWays bool) {
		for _, a := range from {
			for _, b := range to {
				cuts = append(cuts, Cut{a, b})
				if bothWays {
					cuts = append(cuts, Cut{b, a})
				}
			}
		}
	}
	all := func(from, to int) (out []int) {
		for n := from; n < to; n++ {
			out = append(out, n)
		}
		return out
	}
	without := func(of []int, n int) []int {
		return slices.DeleteFunc(slices.Clone(of), func(m int) bool { return m == n })
	}
	broker := c.IntN(brokers)
	both := c.IntN(2) == 0
	way := map[bool]string{true: "", false: ", one way"}[both]
	switch c.IntN(9) {
	case 0:
		between([]int{broker}, without(all(0, nodes), broker), true)
		return "a broker from everything", cuts
	case 1:
		between([]int{broker}, without(all(0, clients), broker), true)
		return "a broker from all but clients", cuts
	case 2:
		between([]int{broker}, all(brokers, clients), both)
		return "a broker from etcd alone" + way, cuts
	case 3:
		between([]int{broker}, without(all(0, brokers), broker), both)
		return "a broker from the brokers, not from etcd" + way, cuts
	case 4:
		between(without(all(0, nodes), broker), []int{broker}, false)
		return "a broker hears nothing", cuts
	case 5:
		between([]int{broker}, []int{(broker + 1) % brokers}, both)
		return "a pair of brokers" + way, cuts
	case 6:
		one, other := []int{}, []int{}
		for n := range clients {
			if c.IntN(2) == 0 {
				one = append(one, n)
			} else {
				other = append(other, n)
			}
		}
		between(one, other, true)
		return "two sides", cuts
	case 7:
		coordinator := brokers + c.IntN(coordinators)
		between([]int{coordinator}, without(all(0, nodes), coordinator), both)
		return "a coordinator from everything" + way, cuts
	default:
		for a := range nodes {
			for b := range nodes {
				if a != b && c.IntN(3) == 0 {
					cuts = append(cuts, Cut{a, b})
				}
			}
		}
		return "any", cuts
	}
}
