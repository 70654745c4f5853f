package jetstream

import (
	"testing"

	"github.com/carillon-mq/carillon/broker/jsapi"
)

// TestCyclesAreRefusedWhateverTheSubjects: the first stream of a cycle may have no subjects, and is
// there before the second one.
func TestCyclesAreRefusedWhateverTheSubjects(t *testing.T) {
	w := newWorld(t, 1)
	n := w.nodes[0]
	for _, made := range []string{
		`{"name":"B","sources":[{"name":"A","filter_subject":"b.>"},{"name":"D"}]}`,
		`{"name":"D","subjects":["d.>"]}`,
		`{"name":"C","subjects":["c.>"],"sources":[{"name":"D"},{"name":"B"}]}`, // no cycle: D by two ways
	} {
		if got := ask[jsapi.StreamResponse](n, "STREAM.CREATE."+made[9:10], made); got.Error != nil {
			t.Fatalf("%s: %+v", made, got.Error)
		}
	}
	expect(t, "a cycle", n, "STREAM.CREATE.A", `{"name":"A","subjects":["b.>"],"sources":[{"name":"B","filter_subject":"b.>"}]}`, jsapi.ErrStreamInvalidConfig.ErrCode, "cycle")
	expect(t, "a longer one", n, "STREAM.CREATE.A", `{"name":"A","subjects":["b.>"],"sources":[{"name":"C","filter_subject":"x"}]}`, jsapi.ErrStreamInvalidConfig.ErrCode, "cycle")
}
