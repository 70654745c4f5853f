package chaos

import (
	"slices"
	"testing"
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

// A flipped bit may take one copy of what was acknowledged, so nothing may be done to the others meanwhile; and nothing
// happens to one process twice at a time.
func TestFaultsOfARoundGoTogether(t *testing.T) {
	p := NewPlanner(1, Kinds)
	seen, shapes := map[Kind]int{}, map[string]int{}
	for range 3000 {
		round := p.Next()
		met := map[int]int{}
		flips := 0
		for _, s := range round {
			seen[s.Kind]++
			if s.Shape != "" {
				shapes[s.Shape]++
			}
			if s.Kind == Flip {
				flips++
			}
			if s.Kind != Clock && s.Kind != Partition {
				for _, n := range s.Nodes {
					met[n]++
				}
			}
		}
		brokersMet := 0
		for n, times := range met {
			if times > 1 {
				t.Fatalf("%s is met twice at a time: %s", nodeName(n), round)
			}
			if n < brokers {
				brokersMet++
			}
		}
		if flips > 0 && brokersMet > 1 {
			t.Fatalf("a bit flips, and more copies are at risk: %s", round)
		}
	}
	for _, k := range Kinds {
		if seen[k] < 100 {
			t.Errorf("only %d faults of kind %s in 3000 rounds", seen[k], k)
		}
	}
	if len(shapes) < 13 || slices.Contains(Kinds, "") {
		t.Errorf("only these shapes of partitions: %v", shapes)
	}
}
