package testutil

import "testing"

// allocSeries is how many series LeastAllocs measures at most.
const allocSeries = 5

// LeastAllocs returns the least average number of allocations of f among some series of so many
// runs, and stops at a series that is within the bound. What f itself allocates is in every series.
// A garbage collection that empties a pool, and goroutines in the background, which run more often
// during a series the busier the machine is, are not.
func LeastAllocs(runs int, bound float64, f func()) (least float64) {
	for i := range allocSeries {
		got := testing.AllocsPerRun(runs, f)
		if i == 0 || got < least {
			least = got
		}
		if least <= bound {
			break
		}
	}
	return least
}
