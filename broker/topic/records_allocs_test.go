//go:build !race

package topic

import (
	"slices"
	"strings"
	"testing"

	"github.com/carillon-mq/carillon/broker/coordination"
	"github.com/carillon-mq/carillon/broker/protocol"
	"github.com/carillon-mq/carillon/broker/publish"
	"github.com/carillon-mq/carillon/broker/records"
	"github.com/carillon-mq/carillon/internal/testutil"
)

// TestRecordsAllocateNothing: 16,384 records cost as many allocations as one message does, on their
// way in and out. In memory: the machine's disk would only make it slower.
func TestRecordsAllocateNothing(t *testing.T) {
	_, hub, topic := benchSite(t, 1, func(s *coordination.TopicSpec) { s.Durability = coordination.Memory })
	read := []protocol.Message{message("orders.eu", "0", prefixed(slices.Repeat([]string{strings.Repeat("x", 64)}, 16384)...), "Records: 16384")}
	send := func() {
		(*taker)(topic).Take(read, nil, false)
		<-hub.waiting[0]
	}
	// A chunk of memory for each batch is the log's, and a cursor the reader's.
	if got := testutil.LeastAllocs(20, 19, send); got >= 20 {
		t.Errorf("%.0f allocations for a message of 16,384 records", got)
	}
	var r records.BulkReader
	memory := make([]byte, 0, 2<<20)
	for _, full := range []bool{false, true} {
		got := testutil.LeastAllocs(20, 9, func() {
			data, got, err := r.Read(&topic.Shard().Reader, records.Query{Offset: 7, Records: publish.MaxRecords, Bytes: 1 << 20, Most: 2 << 20, Full: full}, memory)
			if err != nil || got.Count < 10_000 || len(data) == 0 {
				t.Fatal(got, err)
			}
		})
		if got >= 10 {
			t.Errorf("full %t: %.0f allocations for an answer", full, got)
		}
	}
}
