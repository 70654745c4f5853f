package sourcing

import (
	"strings"
	"testing"

	"github.com/carillon-mq/carillon/broker/coordination"
)

func TestCycles(t *testing.T) {
	for _, test := range []struct {
		streams string // each with its sources
		of      string
		want    bool
	}{
		{"a:b b:a", "a", true},
		{"a:a", "a", true},
		{"a:b b:c c:d d:a", "a", true},
		{"a:d,b b:d", "a", false},
		{"a:b b:c c:b", "a", false}, // others have one
		{"a:b", "a", false},
	} {
		sources := map[string][]coordination.StreamSource{}
		for stream := range strings.FieldsSeq(test.streams) {
			name, of, _ := strings.Cut(stream, ":")
			for source := range strings.SplitSeq(of, ",") {
				sources[name] = append(sources[name], coordination.StreamSource{Name: source, Filter: "filter.>"})
			}
		}
		copies := func(stream string) []coordination.StreamSource { return sources[stream] }
		if got := coordination.Cyclic(test.of, sources[test.of], copies); got != test.want {
			t.Errorf("%s: %s is in a cycle: %v", test.streams, test.of, got)
		}
		// The leader reports the sources of a cycle, which two streams made at once may have.
		failed := false
		s := New(Config[*shard]{Copies: copies})
		for _, source := range sources[test.of] {
			failed = failed || s.cycle(&run[*shard]{shard: &shard{name: test.of}, source: source}) != nil
		}
		if failed != test.want {
			t.Errorf("%s: the leader of %s copies: %v", test.streams, test.of, !failed)
		}
	}
}
