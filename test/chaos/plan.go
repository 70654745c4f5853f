package chaos

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/carillon-mq/carillon/broker/limits"
)

// Kind is a kind of fault.
type Kind string

const (
	Kill      Kind = "kill"      // kill -9 of brokers; they start again afterwards
	Pause     Kind = "pause"     // brokers are stopped and resumed (SIGSTOP, SIGCONT)
	Partition Kind = "partition" // messages from some nodes to some others are dropped
	Etcd      Kind = "etcd"      // coordinators are killed or paused, perhaps down to no quorum
	Power     Kind = "power"     // the power of brokers, and perhaps of coordinators, fails; unsynced data is lost
	Full      Kind = "full"      // disks of brokers are full
	Failing   Kind = "failing"   // a broker's disk fails; it is repaired and the broker started again afterwards
	Hang      Kind = "hang"      // operations on a broker's disk hang, perhaps for so long that the broker has to give up
	Recover   Kind = "recover"   // syncs of a broker's disk fail for a while and lose their writes; the disk stays mounted, and the broker is started again
	Narrow    Kind = "narrow"    // packets to some nodes are delayed, and dropped above a rate
	Slow      Kind = "slow"      // every operation on a broker's disk takes longer
	Flip      Kind = "flip"      // a bit of a file of a broker flips while it is down
	Clock     Kind = "clock"     // wall clocks of brokers jump, one perhaps by a year, and stay where they are

	// Changes that operators of a cluster make while it works.
	Scale Kind = "scale" // one more broker joins; or one is drained, and stopped when it holds nothing
	Roll  Kind = "roll"  // brokers end in order and start again, one after the other, each when all replicas are in sync
)

// Damage to a broker's volume that takes whole copies, or their newest records. Both happen while
// the broker is down.
const (
	Lost     Kind = "lost"     // the folder of a log is deleted
	Rollback Kind = "rollback" // the volume is as it was some seconds before
)

// Kinds are all faults.
var Kinds = []Kind{Kill, Pause, Partition, Etcd, Power, Full, Failing, Recover, Hang, Slow, Narrow, Flip, Clock, Scale, Roll, Lost, Rollback}

// The nodes of a cluster by number: brokers, coordinators, and the clients together. Of the brokers
// all but the last are there from the beginning.
const (
	brokers      = 4
	founders     = brokers - 1
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

// Cut is one direction in which packets are dropped.
type Cut struct{ From, To int }

// Step is one fault: its kind, its time from the beginning of the round, its duration, and its
// nodes.
type Step struct {
	Kind    Kind
	At, For time.Duration
	Nodes   []int           // the affected nodes
	By      time.Duration   // of a slow disk: the delay of each operation; of a narrow link: the longest delay of a packet
	Rate    int             // of a narrow link: kbit/s
	Still   bool            // coordinators are paused instead of killed
	Cuts    []Cut           // of a partition
	Shifts  []time.Duration // of clocks, in the order of Nodes
	Shape   string          // of a partition, for messages
	Joins   bool            // of scaling: the broker joins; otherwise it leaves
	Fresh   bool            // it joins with an empty volume
	Killed  bool            // it leaves, and is killed and started again while it is drained
	Moment  uint64          // random choices at the time of the fault, such as the bit that flips
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
	if s.By > 0 {
		fmt.Fprintf(&b, " by %v", s.By)
	}
	if s.Rate > 0 {
		fmt.Fprintf(&b, " at %d kbit/s", s.Rate)
	}
	switch {
	case s.Kind == Scale && s.Joins && s.Fresh:
		b.WriteString(" joins with an empty volume")
	case s.Kind == Scale && s.Joins:
		b.WriteString(" joins with the volume that it left with")
	case s.Kind == Scale && s.Killed:
		b.WriteString(" is drained, killed meanwhile, and goes")
	case s.Kind == Scale:
		b.WriteString(" is drained and goes")
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

// Round is a set of overlapping faults. The cluster becomes whole before the next round begins, so
// that faults which may affect only a minority do.
type Round []Step

func (r Round) String() string {
	var all []string
	for _, s := range r {
		all = append(all, s.String())
	}
	return strings.Join(all, "; ")
}

const (
	// mostShift is the largest error of a clock: less than half of the deduplication window, which
	// is measured in wall time.
	mostShift = 40 * time.Minute
	// leap is the largest error of one broker's clock: no record of the cluster is that old.
	leap = 365 * 24 * time.Hour
	// longestHang is the longest time that a disk hangs: twice the time after which a broker gives
	// up.
	longestHang = 2 * limits.DiskStallLimit
	// quorumless is the longest time that etcd is without a quorum.
	quorumless = time.Minute
)

// chance is a source of random decisions.
type chance struct{ *rand.Rand }

func (c chance) between(from, to time.Duration) time.Duration {
	return (from + time.Duration(c.Int64N(int64(to-from)))).Truncate(time.Millisecond)
}

// some returns between one and most of the nodes, sorted.
func (c chance) some(of []int, most int) []int {
	some := make([]int, 0, most)
	for _, i := range c.Perm(len(of))[:1+c.IntN(most)] {
		some = append(some, of[i])
	}
	slices.Sort(some)
	return some
}

// any returns one of the nodes.
func (c chance) any(of []int) int { return of[c.IntN(len(of))] }

func from(first, behind int) (all []int) {
	for n := first; n < behind; n++ {
		all = append(all, n)
	}
	return all
}

func without(of []int, n int) []int {
	return slices.DeleteFunc(slices.Clone(of), func(m int) bool { return m == n })
}

// Planner plans rounds of faults. The same seed gives the same rounds.
type Planner struct {
	chance  chance
	kinds   []Kind
	members []int // the present brokers, after the rounds so far
	// Faulty is the broker whose disk can hang, be slow, and recover.
	Faulty int
	// Leaper is the broker whose clock may jump by a year. Its disk is not the faulty one, since
	// that loses the broker's saved clock in a power cut.
	Leaper int
	// Long lets faults last longer than a round of a few seconds.
	Long bool
}

// NewPlanner returns a planner of faults of these kinds.
func NewPlanner(seed uint64, kinds []Kind) *Planner {
	c := chance{rand.New(rand.NewPCG(seed, 0x9e3779b97f4a7c15))}
	faulty := c.IntN(founders)
	return &Planner{chance: c, kinds: kinds, members: from(0, founders), Faulty: faulty, Leaper: (faulty + 1) % founders}
}

// Next returns the next round.
func (p *Planner) Next() Round {
	c := p.chance
	var round Round
	for n := 1 + c.IntN(3); len(round) < n; {
		s := p.step(p.kinds[c.IntN(len(p.kinds))])
		s.At = c.between(0, 2*time.Second)
		away := s.Kind != Scale && slices.ContainsFunc(s.Nodes, func(n int) bool { return n < brokers && !slices.Contains(p.members, n) })
		if away || slices.ContainsFunc(round, func(other Step) bool { return !together(s, other) }) || !anotherMemberVouches(append(round, s)) {
			n-- // one less, so that this ends
			continue
		}
		round = append(round, s)
	}
	if len(round) == 0 {
		return p.Next()
	}
	slices.SortStableFunc(round, func(a, b Step) int { return int(a.At - b.At) })
	for _, s := range round {
		switch {
		case s.Kind == Scale && s.Joins:
			p.members = append(p.members, s.Nodes...)
			slices.Sort(p.members)
		case s.Kind == Scale:
			p.members = without(p.members, s.Nodes[0])
		}
	}
	return round
}

// together reports whether two faults may overlap.
func together(a, b Step) bool {
	for range 2 {
		switch {
		case a.Kind == Roll && (b.Kind == Power || b.Kind == Failing || b.Kind == Recover || b.Kind == Scale): // a disk is repaired while no process uses it, and a broker that leaves is not restarted
			return false
		case a.Kind == Rollback && (b.Kind == Flip || b.Kind == Lost || b.Kind == Rollback || b.Kind == Scale || b.Kind == Roll): // each record is whole somewhere
			return false
		}
		a, b = b, a
	}
	if a.Kind == b.Kind && (a.Kind == Partition || a.Kind == Narrow || a.Kind == Scale || a.Kind == Roll) {
		return false
	}
	return !a.alone() || !b.alone() || !slices.ContainsFunc(a.Nodes, func(n int) bool { return slices.Contains(b.Nodes, n) })
}

// anotherMemberVouches reports whether, beside a rollback, another member of each in-sync set is
// present all the time, and vouches. Otherwise the copy that was rolled back may lead, and
// docs/architecture.md ("Rolled back volumes") promises nothing of the records that it lacks.
//
// So the other faults of the round may affect one more broker, and nothing else. Of the three
// replicas of a shard, which are all in sync when the round begins, one then stays undisturbed.
func anotherMemberVouches(round Round) bool {
	at := slices.IndexFunc(round, func(s Step) bool { return s.Kind == Rollback })
	if at < 0 {
		return true
	}
	return slices.ContainsFunc(without(from(0, brokers), round[at].Nodes[0]), func(one int) bool {
		return !slices.ContainsFunc(round, func(s Step) bool { return !s.takesOnly(one) })
	})
}

// takesOnly reports whether a fault beside a rollback affects no other broker than one, and no
// coordinator: leases are short, and any broker may lose its lease with a coordinator.
func (s Step) takesOnly(one int) bool {
	switch s.Kind {
	case Rollback, Clock:
		return true
	case Partition:
		return !slices.ContainsFunc(s.Cuts, func(c Cut) bool {
			return c.From != one && c.To != one && c.From != clients && c.To != clients
		})
	}
	return len(without(s.Nodes, one)) == 0
}

// alone reports whether no other such fault may affect the same processes meanwhile.
func (s Step) alone() bool {
	return s.Kind != Clock && s.Kind != Partition && s.Kind != Narrow && s.Kind != Roll
}

func (p *Planner) step(kind Kind) Step {
	c := p.chance
	s := Step{Kind: kind, For: c.between(time.Second, 8*time.Second), Moment: c.Uint64()}
	switch kind {
	case Kill:
		s.For = c.between(100*time.Millisecond, 5*time.Second)
		s.Nodes = c.some(p.members, len(p.members))
	case Pause:
		s.Nodes = c.some(p.members, len(p.members))
	case Partition:
		s.Shape, s.Cuts = p.partition()
	case Etcd:
		s.Nodes = c.some(from(brokers, clients), coordinators)
		s.Still = c.IntN(2) == 0
		if p.Long && c.IntN(4) == 0 {
			s.For = c.between(20*time.Second, quorumless)
		}
	case Power:
		s.For = c.between(100*time.Millisecond, 3*time.Second)
		switch c.IntN(3) {
		case 0:
			s.Nodes = c.some(p.members, len(p.members))
		case 1:
			s.Nodes = slices.Clone(p.members)
		default:
			s.Nodes = append(slices.Clone(p.members), from(brokers, clients)...)
		}
	case Full:
		s.Nodes = c.some(p.members, len(p.members))
	case Failing:
		s.Nodes = c.some(p.members, 1)
	case Hang:
		s.For = c.between(time.Second, longestHang)
		s.Nodes = []int{p.Faulty}
	case Recover:
		s.Nodes = []int{p.Faulty}
	case Narrow:
		s.Nodes = c.some(append(slices.Clone(p.members), from(brokers, clients)...), 3)
		s.Rate, s.By = 500+c.IntN(4000), c.between(20*time.Millisecond, 300*time.Millisecond)
	case Slow:
		s.By = c.between(5*time.Millisecond, 100*time.Millisecond)
		s.Nodes = []int{p.Faulty}
	case Flip, Lost, Rollback:
		s.For = c.between(100*time.Millisecond, 3*time.Second)
		s.Nodes = c.some(p.members, 1)
	case Clock:
		s.Nodes = c.some(p.members, len(p.members))
		for range s.Nodes {
			s.Shifts = append(s.Shifts, c.between(-mostShift, mostShift))
		}
		if i := slices.Index(s.Nodes, p.Leaper); i >= 0 && s.Moment%3 > 0 {
			s.Shifts[i] = leap * time.Duration(2*(s.Moment%3)-3)
		}
	case Scale:
		s.For = c.between(100*time.Millisecond, 3*time.Second)
		if s.Joins = len(p.members) < brokers; s.Joins {
			s.Nodes = slices.DeleteFunc(from(0, brokers), func(n int) bool { return slices.Contains(p.members, n) })
			s.Fresh = c.IntN(2) == 0
		} else {
			s.Nodes = c.some(p.members, 1)
			s.Killed = c.IntN(2) == 0
		}
	case Roll:
		s.For, s.Nodes = 0, slices.Clone(p.members)
	}
	return s
}

// partition returns the shape of a partition, and its cuts.
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
	etcd := from(brokers, clients)
	servers := append(slices.Clone(p.members), etcd...)
	all := append(slices.Clone(servers), clients)
	broker := c.any(p.members)
	both := c.IntN(2) == 0
	way := map[bool]string{true: "", false: ", one way"}[both]
	switch c.IntN(9) {
	case 0:
		between([]int{broker}, without(all, broker), true)
		return "a broker from everything", cuts
	case 1:
		between([]int{broker}, without(servers, broker), true)
		return "a broker from all but clients", cuts
	case 2:
		between([]int{broker}, etcd, both)
		return "a broker from etcd alone" + way, cuts
	case 3:
		between([]int{broker}, without(p.members, broker), both)
		return "a broker from the brokers, not from etcd" + way, cuts
	case 4:
		between(without(all, broker), []int{broker}, false)
		return "a broker hears nothing", cuts
	case 5:
		between([]int{broker}, []int{c.any(without(p.members, broker))}, both)
		return "a pair of brokers" + way, cuts
	case 6:
		one, other := []int{}, []int{}
		for _, n := range servers {
			if c.IntN(2) == 0 {
				one = append(one, n)
			} else {
				other = append(other, n)
			}
		}
		between(one, other, true)
		return "two sides", cuts
	case 7:
		coordinator := c.any(etcd)
		between([]int{coordinator}, without(all, coordinator), both)
		return "a coordinator from everything" + way, cuts
	default:
		for _, a := range all {
			for _, b := range all {
				if a != b && c.IntN(3) == 0 {
					cuts = append(cuts, Cut{a, b})
				}
			}
		}
		return "any", cuts
	}
}
