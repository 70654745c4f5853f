package viewing

import (
	"bytes"
	"slices"
	"testing"

	"github.com/carillon-mq/carillon/broker/aggregate"
)

// TestTheLastWholeCheckpointCounts: pieces of others are passed, and advances behind it are kept.
func TestTheLastWholeCheckpointCounts(t *testing.T) {
	piece := func(serial, index uint64, last bool) *entry {
		return &entry{chunk: &chunk{serial: serial, index: index, last: last, removed: serial}}
	}
	to := func(n int64) *entry { return &entry{advance: &advance{7, n}} }
	for name, c := range map[string]struct {
		log        []*entry
		first, end uint64
		advances   []advance
	}{
		"none":                    {log: []*entry{to(1)}, advances: []advance{{7, 1}}},
		"one piece":               {[]*entry{to(1), piece(1, 0, true), to(2)}, 2, 3, []advance{{7, 2}}},
		"three pieces":            {[]*entry{piece(1, 0, false), piece(1, 1, false), piece(1, 2, true)}, 1, 4, nil},
		"the second is not whole": {[]*entry{piece(1, 0, true), to(1), piece(2, 0, false), piece(2, 1, false)}, 1, 2, []advance{{7, 1}}},
		"a piece is missing":      {[]*entry{piece(1, 0, true), piece(2, 0, false), piece(2, 2, true)}, 1, 2, nil},
		"the first is missing":    {[]*entry{piece(1, 0, true), piece(2, 1, true)}, 1, 2, nil},
		"another serial":          {[]*entry{piece(1, 0, true), piece(2, 0, false), piece(3, 1, true)}, 1, 2, nil},
		"it begins anew":          {[]*entry{piece(2, 0, false), piece(3, 0, false), piece(3, 1, true)}, 2, 4, nil},
	} {
		s := &saved{}
		for i, e := range c.log {
			s.take(uint64(i+1), e)
		}
		if s.first != c.first || s.end != c.end || !slices.Equal(s.advances, c.advances) {
			t.Errorf("%s: %d to %d, and advances %v", name, s.first, s.end, s.advances)
		}
	}
}

// TestEntriesAreReadAsTheyWereWritten: also if they are cut anywhere, without a panic.
func TestEntriesAreReadAsTheyWereWritten(t *testing.T) {
	k := key{"hot-rooms", 1 << 40, 1 << 63}
	c := chunk{serial: 300, index: 2, last: true, removed: 5, lost: 1 << 50, data: []byte("abc")}
	b := appendChunk(nil, k, &c)
	e, err := parseEntry(b)
	if err != nil || e.key != k || e.chunk == nil || e.chunk.serial != 300 || e.chunk.index != 2 || !e.chunk.last || e.chunk.removed != 5 || e.chunk.lost != 1<<50 || !bytes.Equal(e.chunk.data, c.data) {
		t.Errorf("%+v %+v %v", e, e.chunk, err)
	}
	a := appendAdvance(nil, k, advance{9, -4})
	if e, err := parseEntry(a); err != nil || e.key != k || e.advance == nil || *e.advance != (advance{9, -4}) {
		t.Errorf("%+v %v", e, err)
	}
	for _, whole := range [][]byte{b[:len(b)-len(c.data)], a} {
		for n := range len(whole) {
			if _, err := parseEntry(whole[:n]); err == nil {
				t.Errorf("%d of %d bytes are an entry", n, len(whole))
			}
		}
	}
}

// TestDifferentKeysHaveDifferentSubjects: and the subjects are ones.
func TestDifferentKeysHaveDifferentSubjects(t *testing.T) {
	text := func(s string) aggregate.Value { return aggregate.Value{Kind: aggregate.Text, Text: s} }
	number := func(n float64) aggregate.Value { return aggregate.Value{Kind: aggregate.Number, Number: n} }
	long := string(bytes.Repeat([]byte("ab."), 400))
	seen := map[string]bool{}
	for _, c := range []struct {
		keys []aggregate.Value
		want string
	}{
		{nil, ""},
		{[]aggregate.Value{text("410")}, ".410"},
		{[]aggregate.Value{number(410)}, ".=410"},
		{[]aggregate.Value{number(1.5)}, ".=1%2E5"},
		{[]aggregate.Value{text("=410")}, ".%3D410"},
		{[]aggregate.Value{text("a=b")}, ".a=b"},
		{[]aggregate.Value{text("")}, ".%"},
		{[]aggregate.Value{text("%")}, ".%25"},
		{[]aggregate.Value{{Kind: aggregate.None}}, ".="},
		{[]aggregate.Value{{Kind: aggregate.Bool, Truth: true}}, ".=true"},
		{[]aggregate.Value{text("true")}, ".true"},
		{[]aggregate.Value{{Kind: aggregate.Time, Time: 1e9}}, ".=1970-01-01T00:00:01Z"},
		{[]aggregate.Value{text("a.b"), text("*>")}, ".a%2Eb.%2A%3E"},
		{[]aggregate.Value{text("a"), text("b")}, ".a.b"},
		{[]aggregate.Value{text("a b\r\n\x00\x7f")}, ".a%20b%0D%0A%00%7F"},
		{[]aggregate.Value{text("küche")}, ".küche"},
		{[]aggregate.Value{text("\xff")}, ".%FF"},
		{[]aggregate.Value{text(long)}, keyTokens([]aggregate.Value{text(long)})},
		{[]aggregate.Value{text(long + "c")}, keyTokens([]aggregate.Value{text(long + "c")})},
	} {
		got := keyTokens(c.keys)
		if got != c.want || len(got) > keyBytes || seen[got] {
			t.Errorf("%v is %q, want %q (seen before: %v)", c.keys, got, c.want, seen[got])
		}
		seen[got] = true
	}
}
