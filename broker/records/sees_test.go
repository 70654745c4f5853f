package records

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/carillon-mq/carillon/broker/filter"
	"github.com/carillon-mq/carillon/broker/log"
	"github.com/carillon-mq/carillon/internal/testutil"
)

// TestHiddenRecordsAreInNoAnswer: of random logs, with and without removed records, answers have
// the records of the subjects that the query sees, in order, and no others; those of Read up to the
// first hidden one.
func TestHiddenRecordsAreInNoAnswer(t *testing.T) {
	f, err := filter.CompileStored("json.total > 100.0")
	testutil.Must(t, err)
	for seed := range uint64(30) {
		rng := rand.New(rand.NewPCG(seed, 3))
		s := newShard(t, orders(rng, 300)...)
		if seed%2 == 0 {
			for range 40 {
				at := s.start + rng.Uint64N(s.high-s.start)
				s.gone.Add(at, at+1)
			}
		}
		hidden := []string{fmt.Sprint("orders.", rng.IntN(3)), fmt.Sprint("bills.orders.", rng.IntN(3))}
		sees := func(subject []byte) bool { return !slices.Contains(hidden, string(subject)) }
		var all, visible []string // offset and payload
		_, err := s.Scan(s.start, s.high, 1<<40, func(r *log.Record) bool {
			is := fmt.Sprintf("%d %q", r.Offset, r.Data[r.Header:])
			if all = append(all, is); sees(r.Subject) {
				visible = append(visible, is)
			}
			return true
		})
		testutil.Must(t, err)
		for _, c := range []struct {
			gaps   bool
			judged bool
		}{{false, false}, {true, false}, {false, true}, {true, true}} {
			var reader BulkReader
			var got []string
			for from := s.start; from < s.high; {
				q := Query{Offset: from, Records: 1 + rng.IntN(100), Bytes: 1 + rng.IntN(4000), Most: 1 << 20, Gaps: c.gaps, Sees: sees}
				var data []byte
				var is Range
				if c.judged {
					var of Judged
					data, of, err = reader.ReadJudged(&s.Reader, q, Selection{Dense: true}, nil)
					is = of.Range
					if of.Examined != of.Count {
						t.Fatalf("%d were looked at for %d", of.Examined, of.Count)
					}
				} else {
					data, is, err = reader.Read(&s.Reader, q, nil)
				}
				if err != nil || is.Gapped && !c.gaps {
					t.Fatalf("%+v: %+v, %v", q, is, err)
				}
				got = append(got, plain(data, is)...)
				if from = is.Next; is.Hidden {
					from++
				}
			}
			if !slices.Equal(got, visible) {
				t.Errorf("seed %d, %+v: %d records of %d visible ones of %d", seed, c, len(got), len(visible), len(all))
			}
		}
		patterns := [][]byte{[]byte("orders.*"), []byte("bills.>")}
		var reader BulkReader
		_, got, err := reader.ReadJudged(&s.Reader, Query{Records: 1 << 16, Bytes: 1 << 20, Most: 1 << 20, Sees: sees}, Selection{Judge: ByFilter(f), Subjects: patterns}, nil)
		testutil.Must(t, err)
		if got.Next == s.high && got.Examined != len(visible) {
			t.Errorf("seed %d: %d were looked at, of %d visible ones", seed, got.Examined, len(visible))
		}
	}
}

// plain are the records of an answer in the plain form.
func plain(data []byte, of Range) (all []string) {
	for offset := of.First; len(data) > 0; offset++ {
		if of.Gapped {
			gap, n := binary.Uvarint(data)
			offset, data = offset+gap, data[n:]
		}
		size, n := binary.Uvarint(data)
		all = append(all, fmt.Sprintf("%d %q", offset, data[n:n+int(size)]))
		data = data[n+int(size):]
	}
	return all
}

// TestSubjectsThatAreOverwrittenAreJudgedBefore: records are read into the answer's own memory, and
// taken to its front, which may overwrite the subject that the following ones share. All of a user
// who sees that come in one answer, whatever the records say.
func TestSubjectsThatAreOverwrittenAreJudgedBefore(t *testing.T) {
	var batches []log.Append
	for n := range 200 {
		var a log.Append
		for i := range 20 {
			name := "orders.eu"
			if i >= 10 {
				name = fmt.Sprint("orders.", n)
			}
			a.Records = append(a.Records, log.Record{Time: int64(n), Subject: []byte(name), Data: fmt.Appendf(nil, "%0400d", 20*n+i)})
		}
		batches = append(batches, a)
	}
	s := newShardOn(t, log.Options{TailBytes: 1}, batches...)
	sees := func(subject []byte) bool { return strings.HasPrefix(string(subject), "orders.") }
	for _, full := range []bool{false, true} {
		for _, gaps := range []bool{false, true} {
			var reader BulkReader
			q := Query{Offset: s.start, Records: 1 << 16, Bytes: 2 << 20, Most: 4 << 20, Full: full, Gaps: gaps, Sees: sees}
			_, got, err := reader.Read(&s.Reader, q, make([]byte, 0, q.Bytes+ReadRoom))
			if err != nil || got.Hidden || got.Next != s.high || got.Count != 4000 {
				t.Errorf("full %v, gaps %v: %+v, %v", full, gaps, got, err)
			}
		}
	}
}
