package chaos

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

// chain returns swaps of two clients that take turns on one subject.
func chain(n int) (swaps []Swap) {
	last := uint64(0)
	for i := range n {
		s := Swap{Client: i % 2, Subject: "r", Expected: last, Call: time.Duration(10 * i), Back: time.Duration(10*i + 5), Outcome: Done, Stored: uint64(3*i + 1), Description: fmt.Sprintf("swap %d", i)}
		last = s.Stored
		swaps = append(swaps, s)
	}
	return swaps
}

func TestSwapsWithAnOrderPass(t *testing.T) {
	swaps := chain(50)
	other := chain(20) // on another subject
	for i := range other {
		other[i].Subject = "other"
		other[i].Stored++
		if i > 0 {
			other[i].Expected++
		}
	}
	swaps = append(swaps, other...)
	swaps = append(swaps,
		Swap{Subject: "r", Expected: 4, Call: 100, Back: 104, Outcome: Refused},
		Swap{Subject: "r", Expected: swaps[49].Stored, Call: 460, Back: 470, Outcome: Unknown, Stored: 500}, // it was stored late
		Swap{Subject: "r", Expected: 7, Call: 10, Back: 20, Outcome: Unknown},                               // it was never stored
	)
	if err := Linearizable(swaps, time.Minute); err != nil {
		t.Error(err)
	}
}

// TestSwapsWithoutAnOrderAreFound introduces one fault at a time.
func TestSwapsWithoutAnOrderAreFound(t *testing.T) {
	for _, c := range []struct {
		name  string
		fault func([]Swap) []Swap
		want  string
	}{
		{"one that was acknowledged was forgotten", func(s []Swap) []Swap {
			return append(s, Swap{Subject: "r", Expected: s[8].Stored, Call: 300, Back: 305, Outcome: Done, Stored: 1000})
		}, "expected 25"},
		{"two won", func(s []Swap) []Swap {
			return append(s, Swap{Subject: "r", Expected: s[3].Stored, Call: 40, Back: 45, Outcome: Done, Stored: s[4].Stored + 1})
		}, "expected 10"},
		{"refused for nothing", func(s []Swap) []Swap {
			return append(s, Swap{Subject: "r", Expected: s[29].Stored, Call: 500, Back: 505, Outcome: Refused})
		}, "refused"},
		{"back in time", func(s []Swap) []Swap {
			s[20].Call, s[20].Back = 900, 905
			return s
		}, "over when it began"},
		{"both at one place", func(s []Swap) []Swap { s[7].Stored = s[6].Stored; return s }, "both told"},
	} {
		err := Linearizable(c.fault(chain(30)), time.Minute)
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", c.name, err, c.want)
		}
	}
}
