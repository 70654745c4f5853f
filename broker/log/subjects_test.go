package log

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
)

// Runs of one subject that SubjectIter returns have the records that RecordIter returns, whatever
// form the batch has.
func TestSubjectsAreThoseOfTheRecords(t *testing.T) {
	rng := rand.New(rand.NewPCG(7, 7))
	for round := range 300 {
		var records []Record
		for range 1 + rng.IntN(40) {
			r := Record{Time: int64(rng.IntN(1000)), Subject: fmt.Appendf(nil, "s.%d", rng.IntN(3)), Data: make([]byte, rng.IntN(200))}
			r.Header = rng.IntN(len(r.Data) + 1)
			if rng.IntN(4) == 0 {
				r.Attributes = []byte("attributes")
			}
			records = append(records, r)
		}
		size, err := batchSize(records, nil)
		if err != nil {
			t.Fatal(err)
		}
		batch := Batch(appendBatch(make([]byte, 0, size), 1, 100, records, nil))
		type at struct {
			offset  uint64
			subject string
		}
		var want, got []at
		it := batch.Records()
		for r := (Record{}); it.Next(&r); {
			want = append(want, at{r.Offset, string(r.Subject)})
		}
		runs, before := batch.Subjects(), ""
		for offset, n, subject := runs.Next(); n > 0; offset, n, subject = runs.Next() {
			if string(subject) == before {
				t.Errorf("round %d: the records of %s are not returned at once", round, subject)
			}
			before = string(subject)
			for range n {
				got = append(got, at{offset, string(subject)})
				offset++
			}
		}
		if runs.Err() != nil || it.Err() != nil || !slices.Equal(got, want) {
			t.Fatalf("round %d: %v, %v: it has %v, want %v", round, runs.Err(), it.Err(), got, want)
		}
		if cut := batch[:len(batch)-1-rng.IntN(len(batch)-batchHeader-1)]; len(records) > 0 {
			it := Batch(cut).Subjects()
			for _, n, _ := it.Next(); n > 0; _, n, _ = it.Next() {
			}
			if it.Err() == nil {
				t.Fatalf("round %d: a batch that is cut after %d of %d bytes has all subjects", round, len(cut), len(batch))
			}
		}
	}
}
