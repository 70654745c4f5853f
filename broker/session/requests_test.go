package session

import (
	"context"
	"slices"
	"testing"
)

// TestAnswersFindTheirQuestion: answers reach the open request, up to the expected number. Others
// are dropped, and Answer never blocks.
func TestAnswersFindTheirQuestion(t *testing.T) {
	var asks Requests[string]
	one, first := asks.Begin(1)
	two, second := asks.Begin(2)
	for _, answer := range []string{"a", "b", "c"} {
		asks.Answer(two, answer)
	}
	asks.Answer(one, "d")
	asks.Answer(two+1, "to nobody")
	asks.End(two)
	asks.Answer(two, "too late")
	if a, b, d := <-second, <-second, <-first; a != "a" || b != "b" || d != "d" || len(second) > 0 {
		t.Errorf("%s, %s and %s came, and %d more", a, b, d, len(second))
	}
}

// TestDoReturnsTheAnswersThatArriveInTime: Do returns when all answers have arrived or ctx is done,
// and closes the request.
func TestDoReturnsTheAnswersThatArriveInTime(t *testing.T) {
	var asks Requests[string]
	for _, missing := range []int{0, 1} {
		ctx, cancel := context.WithCancel(t.Context())
		var got []string
		var asked uint64
		asks.Do(ctx, 3, func(number uint64) int {
			asked = number
			asks.Answer(number, "a")
			asks.Answer(number, "b")
			return 2 + missing
		}, func(answer string) {
			if got = append(got, answer); missing > 0 && len(got) == 2 {
				cancel()
			}
		})
		cancel()
		if !slices.Equal(got, []string{"a", "b"}) || asks.open[asked] != nil {
			t.Errorf("%d missing: %q came, and the question is open: %v", missing, got, asks.open[asked] != nil)
		}
	}
}
