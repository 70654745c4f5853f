//go:build !race

package filter

import (
	"testing"

	"github.com/carillon-mq/carillon/internal/testutil"
)

// TestAValueOfAPathAllocatesNothing: aggregates ask for values of each record.
func TestAValueOfAPathAllocatesNothing(t *testing.T) {
	for _, text := range []string{"json.total", "json.region", "subject", "time"} {
		e, err := CompileExpression(text)
		if err != nil {
			t.Fatal(err)
		}
		if n := testutil.LeastAllocs(1000, 0, func() { e.Value(&order) }); n > 0 {
			t.Errorf("%s: %v allocations", text, n)
		}
	}
}
