//go:build !race

package aggregate

import (
	"testing"

	"github.com/carillon-mq/carillon/internal/testutil"
)

// TestAddingARecordAllocatesNothing: once its window is there.
func TestAddingARecordAllocatesNothing(t *testing.T) {
	for n := range shapes {
		q := shape(t, n)
		r := at(1, `{"t": 1, "n": 1.5, "user": "u", "region": "eu"}`)
		p := added(t, q, r)
		if n := testutil.LeastAllocs(1000, 0, func() { _ = p.Add(r) }); n > 0 {
			t.Errorf("shape %+v: %v allocations", q.options, n)
		}
	}
}
