package client

import (
	"strconv"
	"testing"

	"github.com/nats-io/nats.go"
)

func answer(count, offset, next int, data string) *nats.Msg {
	return &nats.Msg{Data: []byte(data), Header: nats.Header{"Carillon-Records": {strconv.Itoa(count)}, "Carillon-Offset": {strconv.Itoa(offset)},
		"Carillon-Next": {strconv.Itoa(next)}, "Carillon-High": {"9"}, "Carillon-Time": {"5"}}}
}

func TestAnAnswerIsHeldToWhatItAnnounces(t *testing.T) {
	for _, good := range []*nats.Msg{answer(2, 1, 3, "\x01a\x00"), answer(0, 4, 4, ""), answer(1, 1, 5, "\x80\x01"+string(make([]byte, 128)))} {
		if _, _, ok, err := parseBatch(good, false); !ok || err != nil {
			t.Errorf("%q: %v", good.Data, err)
		}
	}
	for _, bad := range []*nats.Msg{
		answer(1, 1, 3, "\x01a\x00"), answer(3, 1, 4, "\x01a\x00"), answer(1, 1, 2, "\x02a"), answer(1, 1, 2, "\x80"), answer(1, 1, 1, "\x01a"),
		answer(70_000, 1, 70_001, string(make([]byte, 70_000))), {Header: nats.Header{"Carillon-Records": {"one"}}},
	} {
		if _, _, ok, err := parseBatch(bad, false); !ok || err == nil {
			t.Errorf("%.20q: it was taken", bad.Data)
		}
	}
	if _, _, _, err := parseBatch(answer(1, 1, 2, "\x01a"), true); err == nil {
		t.Error("a plain record was taken for a full one")
	}
	if _, _, ok, _ := parseBatch(&nats.Msg{}, false); ok {
		t.Error("what has no header was taken")
	}
}

// Whatever comes, what was let through can be walked.
func FuzzBatch(f *testing.F) {
	f.Add("\x01a\x00", 2, false)
	f.Add("\x0f\x00\x09orders.eu\x00two", 1, true)
	f.Fuzz(func(t *testing.T, data string, count int, full bool) {
		b, _, ok, err := parseBatch(answer(count, 1, count+1, data), full)
		if !ok || err != nil {
			return
		}
		n, m := 0, 0
		for offset := range b.Data() {
			if n++; offset != uint64(n) {
				t.Errorf("record %d has offset %d", n, offset)
			}
		}
		for r := range b.Records() {
			if m++; r.Offset != uint64(m) {
				t.Errorf("record %d has offset %d", m, r.Offset)
			}
		}
		if n != count || m != count {
			t.Errorf("%d and %d records of %d", n, m, count)
		}
	})
}

func TestWalkingABatchAllocatesNothing(t *testing.T) {
	b, _, _, err := parseBatch(answer(1000, 1, 1001, string(make([]byte, 1000))), false)
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
	}); n > 0 {
		t.Errorf("%.0f allocations", n)
	}
}
