package jetstream

import (
	"testing"
	"time"

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

// TestSourcesOfAllShards: what is left of a source counts once, and each shard of a mirror has
// records of its own left.
func TestSourcesOfAllShards(t *testing.T) {
	broken := jsapi.ErrSourceConsumerSetupFailed.With("no")
	info := &jsapi.StreamInfo{Config: jsapi.StreamConfig{Mirror: &jsapi.StreamSource{Name: "a"}}}
	sumSources(info, []*jsapi.StreamInfo{
		{Mirror: &jsapi.SourceInfo{Name: "a--0", Lag: 3, Active: -1}, Sources: []jsapi.SourceInfo{{Name: "b", Lag: 5, Sequence: 9, Active: time.Second, FilterSubject: "x"}, {Name: "c", Active: -1}}},
		{Mirror: &jsapi.SourceInfo{Name: "a--1", Lag: 4, Active: 7}},
		{Mirror: &jsapi.SourceInfo{Name: "a--2", Active: 2, Error: broken}, Sources: []jsapi.SourceInfo{{Name: "b", Lag: 2, Sequence: 12, Active: time.Minute, Error: broken, FilterSubject: "x"}, {Name: "c", Active: -1}}},
	})
	if m := info.Mirror; m.Name != "a" || m.Lag != 7 || m.Active != 7 || m.Error != broken {
		t.Errorf("the mirror is %+v", m)
	}
	if len(info.Sources) != 2 {
		t.Fatalf("the sources are %+v", info.Sources)
	}
	if b, c := info.Sources[0], info.Sources[1]; b.Name != "b" || b.FilterSubject != "x" || b.Lag != 5 || b.Sequence != 12 || b.Active != time.Minute || b.Error != broken || c.Active != -1 || c.Error != nil {
		t.Errorf("the sources are %+v", info.Sources)
	}
}
