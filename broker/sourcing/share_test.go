package sourcing

import (
	"encoding/json"
	"fmt"
	"slices"
	"testing"

	"github.com/carillon-mq/carillon/broker/coordination"
	"github.com/carillon-mq/carillon/broker/publish"
	"github.com/carillon-mq/carillon/broker/removal"
)

// ofMany returns the fetcher of one of several shards.
func ofMany(source coordination.StreamSource, at Place) *fetcher {
	f := newFetcher(source)
	f.share = newShare(&source, at)
	return f
}

// shareOf has the shard in a place copy a stream, over the wire. earlier: the origin knows no
// shares.
func shareOf(t *testing.T, f *fetcher, o *stream, come *removal.Source, earlier bool) (stored []uint64, bytes int) {
	t.Helper()
	for range 1000 {
		asked, err := json.Marshal(f.ask(*come, "id"))
		if err != nil {
			t.Fatal(err)
		}
		q := question{}
		if err := json.Unmarshal(asked, &q); err != nil {
			t.Fatal(err)
		}
		if q.Bytes = 150; earlier {
			q.Share = nil
		}
		a, err := parseAnswer(read(o, &q, 1<<20).encode())
		if err != nil {
			t.Fatal(err)
		}
		bytes += len(a.records)
		b, err := f.answered(a)
		if err != nil {
			t.Fatal(err)
		}
		if b != nil {
			stored = append(stored, b.Sequences...)
			*come = removal.Source{Key: f.key, Sequence: stored[len(stored)-1], Origin: "id"}
			f.taken(a)
		}
		if !a.More {
			return stored, bytes
		}
	}
	t.Fatal("it does not come to an end")
	return nil, 0
}

// TestEachRecordIsInTheShareOfOneShard: that to which a message of the copy's subject would go,
// whatever the origin's broker knows, and through changes of the leader.
func TestEachRecordIsInTheShareOfOneShard(t *testing.T) {
	o := &stream{}
	for i := range 300 {
		name := fmt.Sprint("orders.", i%7, ".", i%13)
		if i%11 == 0 {
			name = "" // it was removed
		}
		o.subjects = append(o.subjects, name)
	}
	to := func(source, destination string) []coordination.SubjectMapping {
		return []coordination.SubjectMapping{{Source: "none"}, {Source: source, Destination: destination}}
	}
	for _, test := range []struct {
		of     coordination.TopicSpec
		source coordination.StreamSource
		copied func(a, b int) string // under which subject orders.a.b is copied
	}{
		{coordination.TopicSpec{Shards: 4}, coordination.StreamSource{}, func(a, b int) string { return fmt.Sprint("orders.", a, ".", b) }},
		{coordination.TopicSpec{Shards: 3, PartitionBy: coordination.ByTokens, PartitionTokens: []int{3}}, coordination.StreamSource{}, func(a, b int) string { return fmt.Sprint("orders.", a, ".", b) }},
		{coordination.TopicSpec{Shards: 4}, coordination.StreamSource{Transforms: to("orders.*.*", "o.{{wildcard(2)}}")}, func(_, b int) string { return fmt.Sprint("o.", b) }},
		{coordination.TopicSpec{Shards: 2}, coordination.StreamSource{Transforms: to("", "all.{{partition(5)}}.>")}, nil},
		{coordination.TopicSpec{Shards: 2}, coordination.StreamSource{Filter: "orders.3.*"}, func(a, b int) string { return fmt.Sprint("orders.", a, ".", b) }},
		{coordination.TopicSpec{Shards: 64}, coordination.StreamSource{StartSequence: 50}, func(a, b int) string { return fmt.Sprint("orders.", a, ".", b) }},
	} {
		for _, earlier := range []bool{false, true} {
			var got []uint64
			for n := range test.of.Shards {
				come := removal.Source{}
				f := ofMany(test.source, Place{n, &test.of})
				mine, _ := shareOf(t, f, o, &come, earlier)
				if !slices.IsSorted(mine) {
					t.Errorf("shard %d copies %v", n, mine)
				}
				for _, seq := range mine {
					name := o.subjects[seq-1]
					if test.copied != nil {
						var a, b int
						_, _ = fmt.Sscanf(name, "orders.%d.%d", &a, &b)
						name = test.copied(a, b)
					} else {
						name = string(f.by.of([]byte(name)))
					}
					if want := publish.Partition([]byte(name), &test.of); want != n {
						t.Errorf("%+v: %d, which is %s in the copy, is in shard %d, want %d", test.source, seq, name, n, want)
					}
				}
				if again, _ := shareOf(t, ofMany(test.source, Place{n, &test.of}), o, &come, earlier); len(again) > 0 && len(mine) > 0 {
					t.Errorf("the next leader of shard %d copies %v again", n, again)
				}
				got = append(got, mine...)
			}
			slices.Sort(got)
			var want []uint64
			for i, name := range o.subjects {
				if seq := uint64(i + 1); name != "" && seq >= test.source.StartSequence && (test.source.Filter == "" || matches([]string{test.source.Filter}, []byte(name))) {
					want = append(want, seq)
				}
			}
			if !slices.Equal(got, want) {
				t.Errorf("%+v of %d shards, earlier %v: all shards together copy %v, want %v", test.source, test.of.Shards, earlier, got, want)
			}
		}
	}
}

// TestRecordsOfOtherShardsAreNotAnswered: they cross no link, and move what a shard has seen along,
// so nothing is read again and nothing is left in the end.
func TestRecordsOfOtherShardsAreNotAnswered(t *testing.T) {
	o := &stream{}
	for i := range 1000 {
		o.subjects = append(o.subjects, fmt.Sprint("orders.", i))
	}
	of, total := coordination.TopicSpec{Shards: 8}, 0
	for n := range of.Shards {
		f, come := ofMany(coordination.StreamSource{}, Place{n, &of}), removal.Source{}
		stored, bytes := shareOf(t, f, o, &come, false)
		before := o.scanned
		if _, more := shareOf(t, f, o, &come, false); more > 0 || o.scanned > before || f.lag > 0 || f.next != 1001 || len(stored) == 0 {
			t.Errorf("shard %d: %d bytes come again, %d records are read again, %d are left, up to %d", n, more, o.scanned-before, f.lag, f.next)
		}
		total += bytes
	}
	all, _ := shareOf(t, newFetcher(coordination.StreamSource{}), o, &removal.Source{}, false)
	_, once := shareOf(t, newFetcher(coordination.StreamSource{}), o, &removal.Source{}, false)
	if len(all) != 1000 || total != once {
		t.Errorf("the answers to all shards have %d bytes, those to a single one %d", total, once)
	}
}

// TestOneShardAndMirrorsHaveAllRecords: a mirror has the offsets of one stream.
func TestOneShardAndMirrorsHaveAllRecords(t *testing.T) {
	four := &coordination.TopicSpec{Shards: 4}
	for _, test := range []struct {
		source coordination.StreamSource
		at     Place
		stream string
	}{
		{coordination.StreamSource{Name: "orders"}, Place{}, "orders"},
		{coordination.StreamSource{Name: "orders"}, Place{0, &coordination.TopicSpec{Shards: 1}}, "orders"},
		{coordination.StreamSource{Name: "orders", Mirrored: true}, Place{3, four}, "orders--3"},
		{coordination.StreamSource{Name: "orders--1", Mirrored: true}, Place{}, "orders--1"},
	} {
		if newShare(&test.source, test.at) != nil {
			t.Errorf("%+v has a share of %+v", test.at, test.source)
		}
		if got := Streams(nil).of([]coordination.StreamSource{test.source}, test.at); len(got) != 1 || got[0].named.Name != test.stream || got[0].source.Name != test.source.Name {
			t.Errorf("%+v copies %+v, want %s", test.at, got, test.stream)
		}
	}
}
