package chaos

import (
	"fmt"
	"slices"
	"testing"
	"time"
)

func TestAPlanIsTheSameFromTheSameSeed(t *testing.T) {
	one, other, third := NewPlanner(7, Kinds), NewPlanner(7, Kinds), NewPlanner(8, Kinds)
	differs := false
	for range 200 {
		a := one.Next().String()
		if b := other.Next().String(); a != b {
			t.Fatalf("the same seed planned\n%s\nand\n%s", a, b)
		}
		differs = differs || a != third.Next().String()
	}
	if !differs {
		t.Error("another seed plans the same")
	}
}

// TestFaultsOfARoundGoTogether: two faults of a round do not affect one process at a time, nor a
// broker that is away, and faults of each kind overlap with those of others.
func TestFaultsOfARoundGoTogether(t *testing.T) {
	p := NewPlanner(1, Kinds)
	seen, shapes, with := map[Kind]int{}, map[string]int{}, map[Kind]map[Kind]int{}
	leaps := map[time.Duration]bool{}
	flipped, several := map[int]bool{}, false
	scaled, damaged := map[string]int{}, map[string]int{}
	for range 20_000 {
		members := slices.Clone(p.members)
		round := p.Next()
		met := map[int]int{}
		flips := 0
		for i, s := range round {
			seen[s.Kind]++
			if s.Shape != "" {
				shapes[s.Shape]++
			}
			if s.Kind == Flip {
				flips++
				flipped[s.Nodes[0]] = true
			}
			for i, by := range s.Shifts {
				if by.Abs() > mostShift {
					leaps[by] = true
					if s.Nodes[i] != p.Leaper || p.Leaper == p.Faulty {
						t.Fatalf("%s leaps, and not only %s may: %s", nodeName(s.Nodes[i]), nodeName(p.Leaper), round)
					}
				}
			}
			if s.alone() {
				for _, n := range s.Nodes {
					met[n]++
				}
			}
			for _, n := range s.Nodes {
				if n < brokers && slices.Contains(members, n) == s.Joins {
					t.Fatalf("%s, of the brokers %v: %s", nodeName(n), members, round)
				}
			}
			for _, cut := range s.Cuts {
				for _, n := range []int{cut.From, cut.To} {
					if n < brokers && !slices.Contains(members, n) {
						t.Fatalf("%s is cut off, of the brokers %v: %s", nodeName(n), members, round)
					}
				}
			}
			if s.Kind == Scale {
				scaled[fmt.Sprint(s.Joins, s.Fresh, s.Killed)]++
				if slices.ContainsFunc(round, func(other Step) bool { return other.Kind == Flip }) {
					switch {
					case s.Joins:
						damaged["joins"]++
					case s.Killed:
						damaged["is drained and killed"]++
					default:
						damaged["is drained"]++
					}
				}
			}
			for _, other := range append(slices.Clone(round[:i]), round[i+1:]...) {
				if with[s.Kind] == nil {
					with[s.Kind] = map[Kind]int{}
				}
				with[s.Kind][other.Kind]++
			}
		}
		for n, times := range met {
			if times > 1 {
				t.Fatalf("%s is met twice at a time: %s", nodeName(n), round)
			}
		}
		several = several || flips > 1
		if len(p.members) < founders || len(p.members) > brokers {
			t.Fatalf("the brokers are %v after %s", p.members, round)
		}
	}
	for _, k := range Kinds {
		if seen[k] < 200 {
			t.Errorf("only %d faults of kind %s in 20,000 rounds", seen[k], k)
		}
	}
	for _, k := range []Kind{Kill, Pause, Partition, Etcd, Full, Clock} {
		if with[Scale][k] < 20 || with[Roll][k] < 20 {
			t.Errorf("%s goes with a broker that comes or goes %d times, and with a rolling change %d times", k, with[Scale][k], with[Roll][k])
		}
	}
	if len(flipped) != brokers || !several {
		t.Errorf("bits flip on the brokers %v, on several in one round: %v", flipped, several)
	}
	for _, k := range Kinds {
		if with[Flip][k] < 10 && k != Rollback { // each record is whole somewhere
			t.Errorf("a bit flips beside %s %d times", k, with[Flip][k])
		}
	}
	for _, how := range []string{"joins", "is drained", "is drained and killed"} {
		if damaged[how] < 10 {
			t.Errorf("a bit flips while a broker %s %d times", how, damaged[how])
		}
	}
	if len(leaps) != 2 || !leaps[leap] || !leaps[-leap] {
		t.Errorf("clocks leap by %v only", leaps)
	}
	if len(scaled) != 4 {
		t.Errorf("brokers come and go in these ways only: %v", scaled)
	}
	if len(shapes) < 13 || slices.Contains(Kinds, "") {
		t.Errorf("only these shapes of partitions: %v", shapes)
	}
}

// TestBesideARollbackAnotherMemberVouches: while a volume is rolled back, faults take one other
// broker at most, and no coordinator. So of the three replicas of each shard one is left alone, and
// docs/architecture.md promises that nothing is lost.
func TestBesideARollbackAnotherMemberVouches(t *testing.T) {
	beside := map[Kind]int{}
	for seed := range uint64(200) {
		p := NewPlanner(seed, Kinds)
		for range 200 {
			members := slices.Clone(p.members)
			round := p.Next()
			at := slices.IndexFunc(round, func(s Step) bool { return s.Kind == Rollback })
			if at < 0 {
				continue
			}
			// apart are the nodes between which something is dropped, and met those that a fault
			// names.
			met, apart := map[int]bool{}, map[Cut]bool{}
			for i, s := range round {
				if i == at {
					continue
				}
				beside[s.Kind]++
				for _, n := range s.Nodes {
					met[n] = met[n] || s.Kind != Clock
				}
				for _, c := range s.Cuts {
					apart[c] = true
				}
			}
			// whole says whether nothing takes these brokers, nor their ways to each other, to the
			// broker that is rolled back and to etcd.
			whole := func(left []int) bool {
				those := append(append(slices.Clone(left), round[at].Nodes...), from(brokers, clients)...)
				for _, a := range those {
					for _, b := range those {
						if met[a] || apart[Cut{a, b}] {
							return false
						}
					}
				}
				return true
			}
			others := without(members, round[at].Nodes[0])
			if !whole(others) && !slices.ContainsFunc(others, func(taken int) bool { return whole(without(others, taken)) }) {
				t.Fatalf("seed %d: beside a rollback more than one of the brokers %v is taken: %s", seed, others, round)
			}
		}
	}
	for _, k := range []Kind{Kill, Pause, Partition, Power, Full, Failing, Recover, Hang, Slow, Narrow, Clock} {
		if beside[k] < 10 {
			t.Errorf("only %d faults of kind %s are beside a rollback, of %v", beside[k], k, beside)
		}
	}
}

// TestARollbackExcludesFaultsOfAllOtherMembers: of these rounds, some may lose records that the
// rolled back volume lacks, and are left out.
func TestARollbackExcludesFaultsOfAllOtherMembers(t *testing.T) {
	back := Step{Kind: Rollback, Nodes: []int{0}}
	pair := func(a, b int) Step { return Step{Kind: Partition, Cuts: []Cut{{a, b}, {b, a}}} }
	for _, c := range []struct {
		name  string
		round Round
		holds bool
	}{
		{"alone", Round{back}, true},
		{"a kill of all others", Round{back, {Kind: Kill, Nodes: []int{1, 2}}}, false},
		{"a kill of one", Round{back, {Kind: Kill, Nodes: []int{1}}}, true},
		{"a kill of one, and a pause of it", Round{back, {Kind: Kill, Nodes: []int{1}}, {Kind: Pause, Nodes: []int{1}}}, true},
		{"a kill of one, and a pause of another", Round{back, {Kind: Kill, Nodes: []int{1}}, {Kind: Pause, Nodes: []int{2}}}, false},
		{"one that is cut off, and is killed", Round{back, pair(1, 2), {Kind: Kill, Nodes: []int{1}}}, true},
		{"one that its leader doesn't hear, and a kill of another", Round{back, pair(0, 1), {Kind: Kill, Nodes: []int{2}}}, false},
		{"one that etcd doesn't hear, and a kill of another", Round{back, pair(1, brokers), {Kind: Kill, Nodes: []int{2}}}, false},
		{"one that clients don't reach, and a kill of another", Round{back, pair(1, clients), {Kind: Kill, Nodes: []int{2}}}, true},
		{"a coordinator that stands still", Round{back, {Kind: Etcd, Nodes: []int{brokers}, Still: true}}, false},
		{"clocks", Round{back, {Kind: Clock, Nodes: []int{0, 1, 2}}}, true},
		{"a kill of all without a rollback", Round{{Kind: Kill, Nodes: []int{0, 1, 2}}}, true},
	} {
		if anotherMemberVouches(c.round) != c.holds {
			t.Errorf("%s: somebody vouches %v, want %v", c.name, !c.holds, c.holds)
		}
	}
}
