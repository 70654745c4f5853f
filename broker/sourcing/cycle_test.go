package sourcing

import (
	"fmt"
	"strings"
	"testing"

	"github.com/carillon-mq/carillon/broker/coordination"
	"github.com/carillon-mq/carillon/broker/removal"
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
		{"a:b--1 b:a", "a--3", true}, // the shards of a Topic are the Topic
		{"a:a--1", "a--0", true},
		{"a:b--1 b:c--0", "a--0", false},
	} {
		sources := map[string][]coordination.StreamSource{}
		for stream := range strings.FieldsSeq(test.streams) {
			name, of, _ := strings.Cut(stream, ":")
			for source := range strings.SplitSeq(of, ",") {
				sources[name] = append(sources[name], coordination.StreamSource{Name: source, Filter: "filter.>"})
			}
		}
		copies := func(stream string) []coordination.StreamSource { return sources[stream] }
		if got := coordination.Cyclic(test.of, sources[test.of[:1]], copies); got != test.want {
			t.Errorf("%s: %s is in a cycle: %v", test.streams, test.of, got)
		}
		// The leader reports the sources of a cycle, which two streams made at once may have.
		failed := false
		s := New(Config[*shard]{Copies: copies})
		for _, source := range sources[test.of[:1]] {
			failed = failed || s.cycle(&run[*shard]{shard: &shard{name: test.of}, source: source}) != nil
		}
		if failed != test.want {
			t.Errorf("%s: the leader of %s copies: %v", test.streams, test.of, !failed)
		}
	}
}

// TestSourcesAreCopiedByTheShard: each shard of an origin is a stream of its own, once, and as many
// as a progress has room for. A mirror has one.
func TestSourcesAreCopiedByTheShard(t *testing.T) {
	shards := map[string]int{"orders": 3, "wide": 64}
	streams := Streams(func(name string) (all []string) {
		for n := range shards[name] {
			all = append(all, fmt.Sprint(name, "--", n))
		}
		if all == nil {
			all = []string{name}
		}
		return all
	})
	named := func(names ...string) (all []coordination.StreamSource) {
		for _, name := range names {
			all = append(all, coordination.StreamSource{Name: name})
		}
		return all
	}
	for _, test := range []struct {
		streams Streams
		sources []coordination.StreamSource
		want    string
	}{
		{streams, named("bills", "orders"), "bills/bills orders/orders--0 orders/orders--1 orders/orders--2"},
		{streams, named("orders--1", "orders"), "orders--1/orders--1 orders/orders--0 orders/orders--2"},
		{streams, []coordination.StreamSource{{Name: "orders", Mirrored: true}}, "orders/orders"},
		{nil, named("orders"), "orders/orders"},
	} {
		var got []string
		for _, s := range test.streams.of(test.sources, Place{}) {
			got = append(got, s.source.Name+"/"+s.named.Name)
		}
		if strings.Join(got, " ") != test.want {
			t.Errorf("of %v: %v, want %s", test.sources, got, test.want)
		}
	}
	all := named("wide", "orders", "bills")
	for i := range 3 {
		all = append(all, coordination.StreamSource{Name: "wide", Filter: fmt.Sprint("x.", i)})
	}
	if got := streams.of(all, Place{}); len(got) != maxStreams {
		t.Errorf("%d streams are copied", len(got))
	}
	b := &Batch{Streams: streams}
	b.OneOf(named("bills", "orders"))
	for name, want := range map[string]bool{"bills > >": true, "orders--2 > >": true, "orders > >": false, "orders--3 > >": false} {
		if got := b.Configured(removal.KeyOf(name)); got != want {
			t.Errorf("%s is configured: %v", name, got)
		}
	}
}
