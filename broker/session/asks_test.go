package session

import "testing"

// Answers come to the question that is open, as many as were expected; others are dropped, and nobody waits.
func TestAnswersFindTheirQuestion(t *testing.T) {
	var asks Asks[string]
	one, first := asks.Begin(1)
	two, second := asks.Begin(2)
	for _, answer := range []string{"a", "b", "c"} {
		asks.Tell(two, answer)
	}
	asks.Tell(one, "d")
	asks.Tell(two+1, "to nobody")
	asks.End(two)
	asks.Tell(two, "too late")
	if a, b, d := <-second, <-second, <-first; a != "a" || b != "b" || d != "d" || len(second) > 0 {
		t.Errorf("%s, %s and %s came, and %d more", a, b, d, len(second))
	}
}
