package viewing

import (
	"fmt"
	"math/rand/v2"
	"testing"
)

// TestShardsAreViewedInTheirOrder: leaders are known in the order of a map with pointers as keys.
// Which of their views wait for room does not depend on that, and neither does when parts begin.
func TestShardsAreViewedInTheirOrder(t *testing.T) {
	led, places := []*leader{}, map[*leader]Place{}
	for n := range 12 {
		l := &leader{}
		led, places[l] = append(led, l), Place{Topic: string(rune('a' + n/4)), Number: n % 4}
	}
	s := New(Config[*leader]{
		Led: func() []*leader {
			rand.Shuffle(len(led), func(i, j int) { led[i], led[j] = led[j], led[i] })
			return led
		},
		Of: func(l *leader) (Place, []*Declared) {
			if is := places[l]; is.Topic == "b" { // it has no views
				return is, nil
			}
			return places[l], []*Declared{{Name: "v"}}
		},
	})
	defer s.Close()
	for range 20 {
		got := ""
		for _, is := range s.viewed() {
			got += fmt.Sprintf(" %s%d", is.place.Topic, is.place.Number)
		}
		if want := " a0 a1 a2 a3 c0 c1 c2 c3"; got != want {
			t.Fatalf("the shards with views are%s, want%s", got, want)
		}
	}
}
