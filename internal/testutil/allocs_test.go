package testutil

import "testing"

var kept []byte

func TestLeastAllocs(t *testing.T) {
	calls, pool := 0, 0
	sometimes := func() { // in the first series only, as after a garbage collection
		if calls++; calls <= 5 {
			pool++
			kept = make([]byte, 1000)
		}
	}
	if got := LeastAllocs(2, 0, sometimes); got != 0 || pool != 5 {
		t.Errorf("%v allocations of one that allocates sometimes, %d times", got, pool)
	}
	always := func() { kept = make([]byte, 1000) }
	if got := LeastAllocs(2, 0, always); got != 1 {
		t.Errorf("%v allocations of one that allocates once each time", got)
	}
}
