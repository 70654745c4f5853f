//go:build !race

package records

import (
	"testing"

	"github.com/carillon-mq/carillon/broker/filter"
	"github.com/carillon-mq/carillon/internal/testutil"
)

// TestJudgingARecordAllocatesNothing: what a read allocates does not depend on how many records it
// looks at.
func TestJudgingARecordAllocatesNothing(t *testing.T) {
	s := longShard(t)
	f, err := filter.Compile("json.total > 100.0 && json.region == 'eu'")
	testutil.Must(t, err)
	var r BulkReader
	memory := make([]byte, 0, 2<<20)
	q := Query{Offset: s.start, Records: 1 << 16, Bytes: 1 << 20, Most: 1 << 20, Full: true}
	of := Selection{Judge: ByFilter(f), Subjects: [][]byte{[]byte("orders.>")}}
	least := 1 << 30
	n := testutil.LeastAllocs(20, 0, func() {
		_, got, err := r.ReadJudged(&s.Reader, q, of, memory)
		testutil.Must(t, err)
		least = min(least, got.Examined)
	})
	if least < 100 || n > 8 { // the clock is looked at after more records than that
		t.Errorf("reading %d records allocates %v times", least, n)
	}
}
