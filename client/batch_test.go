package client

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"testing"

	"github.com/nats-io/nats.go"
)

func answer(count, offset, next int, data string) *nats.Msg {
	return &nats.Msg{Data: []byte(data), Header: nats.Header{"Carillon-Records": {strconv.Itoa(count)}, "Carillon-Offset": {strconv.Itoa(offset)},
		"Carillon-Next": {strconv.Itoa(next)}, "Carillon-High": {"9"}, "Carillon-Time": {"5"}}}
}

func TestInconsistentAnswersAreRejected(t *testing.T) {
	for _, good := range []*nats.Msg{answer(2, 1, 3, "\x01a\x00"), answer(0, 4, 4, ""), answer(1, 1, 5, "\x80\x01"+string(make([]byte, 128)))} {
		if _, _, ok, err := parseBatch(good, &ReaderOptions{}); !ok || err != nil {
			t.Errorf("%q: %v", good.Data, err)
		}
	}
	for _, bad := range []*nats.Msg{
		answer(1, 1, 3, "\x01a\x00"), answer(3, 1, 4, "\x01a\x00"), answer(1, 1, 2, "\x02a"), answer(1, 1, 2, "\x80"), answer(1, 1, 1, "\x01a"),
		answer(70_000, 1, 70_001, string(make([]byte, 70_000))), {Header: nats.Header{"Carillon-Records": {"one"}}},
	} {
		if _, _, ok, err := parseBatch(bad, &ReaderOptions{}); !ok || err == nil {
			t.Errorf("%.20q: it was taken", bad.Data)
		}
	}
	if _, _, _, err := parseBatch(answer(1, 1, 2, "\x01a"), &ReaderOptions{Full: true}); err == nil {
		t.Error("a plain record was taken for a full one")
	}
	if _, _, ok, _ := parseBatch(&nats.Msg{}, &ReaderOptions{}); ok {
		t.Error("what has no header was taken")
	}
}

// TestAnAnswerWithGaps: offsets that compaction has left out stand before the records behind them.
func TestAnAnswerWithGaps(t *testing.T) {
	m := answer(3, 4, 20, "\x00\x01a\x07\x00\x00\x02bc")
	m.Header.Set("Carillon-Gaps", "1")
	b, next, ok, err := parseBatch(m, &ReaderOptions{})
	if !ok || err != nil || next != 20 || b.Next() != 14 {
		t.Fatalf("%+v goes on at %d, then %d: %v", b, b.Next(), next, err)
	}
	var got string
	for offset, data := range b.Data() {
		got += fmt.Sprintf("%d:%s ", offset, data)
	}
	for r := range b.Records() {
		got += fmt.Sprintf("%d:%s ", r.Offset, r.Data)
	}
	if got != "4:a 12: 13:bc 4:a 12: 13:bc " {
		t.Error(got)
	}
	for _, bad := range []string{"\x01\x01a", "\x00\x01a\x07", "\x00\x01a\x80", "\x00\x01a\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01\x00"} {
		m := answer(2, 4, 20, bad)
		m.Header.Set("Carillon-Gaps", "1")
		if _, _, ok, err := parseBatch(m, &ReaderOptions{}); !ok || err == nil {
			t.Errorf("%q: it was taken", bad)
		}
	}
}

// FuzzBatch: an accepted answer can be read to its end, whatever its bytes.
func FuzzBatch(f *testing.F) {
	f.Add("\x01a\x00", 2, false, false)
	f.Add("\x0f\x00\x09orders.eu\x00two", 1, true, false)
	f.Add("\x00\x01a\x02\x00", 2, false, true)
	f.Add("\x09\x04\x03a.b\x02hhx\x04\x06\x00\x00y\x84\x01\x00\x00\x80\x01"+string(make([]byte, 128)), 3, true, false)
	f.Add("\x00\x06\x04\x01a\x00xy\x03\x05\x00\x01b\x00z", 2, true, true)
	f.Fuzz(func(t *testing.T, data string, count int, full, gapped bool) {
		m := answer(count, 1, math.MaxInt, data)
		if gapped {
			m.Header.Set("Carillon-Gaps", "1")
		}
		b, _, ok, err := parseBatch(m, &ReaderOptions{Full: full})
		if !ok || err != nil {
			return
		}
		var walked, again []uint64
		var records, views []string
		for offset := range b.Data() {
			walked = append(walked, offset)
		}
		for r := range b.Records() {
			again = append(again, r.Offset)
			records = append(records, fmt.Sprintf("%d %q %q %q", r.Offset, r.Subject, r.Header, r.Data))
			if full {
				records[len(records)-1] += fmt.Sprint(r.Time.UnixNano())
			}
		}
		for v := range b.Views() {
			views = append(views, fmt.Sprintf("%d %q %q %q", v.Offset, v.Subject, v.Header, v.Data))
			if full {
				views[len(views)-1] += fmt.Sprint(v.Time)
			}
		}
		if !slices.Equal(records, views) {
			t.Errorf("the records are %q, and the views %q", records, views)
		}
		if len(walked) != count || !slices.Equal(walked, again) || count > 0 && (walked[0] != 1 || walked[count-1] != b.Next()-1) {
			t.Errorf("%v and %v of %d records, behind which is %d", walked, again, count, b.Next())
		}
		if !gapped && b.Next() != uint64(count)+1 {
			t.Errorf("%d records without a gap end at %d", count, b.Next())
		}
	})
}

func TestWalkingABatchAllocatesNothing(t *testing.T) {
	b, _, _, err := parseBatch(answer(1000, 1, 1001, string(make([]byte, 1000))), &ReaderOptions{})
	if err != nil {
		t.Fatal(err)
	}
	sum := 0
	if n := testing.AllocsPerRun(100, func() {
		for _, data := range b.Data() {
			sum += len(data)
		}
		for r := range b.Records() {
			sum += len(r.Data)
		}
		for v := range b.Views() {
			sum += len(v.Data)
		}
	}); n > 0 {
		t.Errorf("%.0f allocations", n)
	}
}
