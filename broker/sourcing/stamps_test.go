package sourcing

import (
	"fmt"
	"testing"

	"github.com/carillon-mq/carillon/broker/coordination"
	"github.com/carillon-mq/carillon/broker/log"
	"github.com/carillon-mq/carillon/broker/removal"
)

// stamped is an origin whose records have attributes.
type stamped struct {
	sized
	stamps []string
	large  int
}

func (s *stamped) Offsets() (start, end uint64) { return 1, uint64(len(s.stamps)) + 1 }

func (s *stamped) Scan(from, _ uint64, _ int64, f func(r *log.Record) bool) (done bool, err error) {
	for i := from; i <= uint64(len(s.stamps)); i++ {
		if !f(&log.Record{Offset: i, Subject: []byte("a"), Data: make([]byte, s.large), Stamp: []byte(s.stamps[i-1])}) {
			return false, nil
		}
	}
	return true, nil
}

// TestAnswersHaveTheAttributesOfRecords: if they are asked for, and in any case the records.
func TestAnswersHaveTheAttributesOfRecords(t *testing.T) {
	o := &stamped{stamps: []string{"", `{"a":1}`, `{"a":1}`, "", `{"a":1}`, `{"b":2}`}}
	f := newFetcher(coordination.StreamSource{})
	q := f.ask(removal.Source{}, "id")
	for _, asks := range []bool{true, false} {
		q.Stamps = asks
		a, err := parseAnswer(read(o, &q, 1<<20).encode())
		if err != nil {
			t.Fatal(err)
		}
		b, err := f.answered(a)
		if err != nil || len(b.Messages) != len(o.stamps) {
			t.Fatal(b, err)
		}
		if !asks {
			if b.Stamps != nil {
				t.Errorf("they are said to be %q", b.Stamps)
			}
			continue
		}
		if got := fmt.Sprintf("%q", b.Stamps); got != fmt.Sprintf("%q", o.stamps) {
			t.Errorf("they are %s, want %q", got, o.stamps)
		}
	}
	// One of the largest size goes without.
	q.Stamps, q.Bytes = true, 1<<20
	large := &stamped{stamps: []string{`{"a":1}`}, large: 1<<16 - 60}
	a := read(large, &q, 1<<16)
	if b, err := f.answered(a); err != nil || len(b.Messages) != 1 || len(b.Stamps[0]) > 0 {
		t.Errorf("%d skipped, %v", a.Skipped, err)
	}
	for n := range a.records { // what is cut short is no answer
		cut := &answer{Stamped: true, records: a.records[:n]}
		if err := cut.each(func(*log.Record) {}); n > 0 && err == nil {
			t.Fatalf("%d of %d bytes are an answer", n, len(a.records))
		}
	}
}
