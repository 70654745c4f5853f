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

// TestJudgingByAStampAllocatesNothing: unless cel-go judges, or a text has escapes.
func TestJudgingByAStampAllocatesNothing(t *testing.T) {
	f := mustStore(`attributes.room == "410" && attributes.floor > 3 && has(attributes.tags) && "b" in attributes.tags && json.n == 1`)
	var stamp Stamp
	text, r := []byte(`{"floor":4,"room":"410","tags":["a","b"]}`), &Record{Subject: []byte("s"), Data: []byte(`{"n":1}`)}
	if n := testing.AllocsPerRun(100, func() {
		if r.SetAttributes(&stamp, text); f.Judge(r) != Yes {
			t.Fatal("it does not match")
		}
	}); n > 0 {
		t.Errorf("%v allocations", n)
	}
}
