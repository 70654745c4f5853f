//go:build !race

package view

import (
	"testing"
	"time"

	"github.com/carillon-mq/carillon/internal/testutil"
)

// TestAddingARecordAllocatesNothing: once its window is there.
func TestAddingARecordAllocatesNothing(t *testing.T) {
	for _, w := range []Window{{}, {Tumbling: time.Second}, {Session: time.Second, Time: "json.t"}, {Sliding: &Sliding{time.Second, 100 * time.Millisecond}}} {
		spec := counting()
		spec.Window = w
		spec.Filter = Filter{Subjects: []string{"r", "s"}, Where: "json.t > 0.0"}
		spec.Values["mean"] = "mean(json.t)"
		s := compiled(t, spec).NewShard()
		r := at(1.5, "x")
		add(t, s, r)
		if n := testutil.LeastAllocs(1000, 0, func() { _ = s.Add(s.Next(), r) }); n > 0 {
			t.Errorf("%+v: %v allocations", w, n)
		}
	}
}
