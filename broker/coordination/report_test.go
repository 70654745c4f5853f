package coordination

import (
	"testing"

	"go.etcd.io/etcd/api/v3/mvccpb"
)

// TestAReportThatDoesNotFit: a broker has more copies of restored shards than one report holds.
// Those of the first Topics are reported. Nobody takes the others for missing, and they follow when
// the first ones have leaders.
func TestAReportThatDoesNotFit(t *testing.T) {
	const copies, topics = 30_000, 10_000
	id := func(i int) string {
		return "t" + string(rune('a'+i/26/26%26)) + string(rune('a'+i/26%26)) + string(rune('a'+i%26))
	}
	left := make([]Suspect, copies)
	for i := range left {
		left[i] = Suspect{Topic: id(i / (copies / topics)), Shard: i % (copies / topics), Epoch: 1 << 33, End: 1 << 40, State: 1 << 30, Whole: true, Known: 1 << 33, StateEpoch: 1 << 33}
	}
	reports := 0
	for len(left) > 0 {
		if reports++; reports > copies {
			t.Fatal("no report brings the next ones")
		}
		value, err := encodeReport(3, left)
		if err != nil || len(value) > maxReport {
			t.Fatalf("a report of %d bytes, error %v", len(value), err)
		}
		r, err := decodeReport(&mvccpb.KeyValue{Key: []byte("reports/a"), Value: []byte(value)})
		if err != nil {
			t.Fatal(err)
		}
		s := &State{reports: map[string]report{"a": r}}
		in := 0
		for ; in < len(left) && s.ReportedIn("a", left[in].Topic) == 3; in++ {
			if said, ok := s.Reported("a", left[in].Topic, left[in].Shard); !ok || said != left[in] {
				t.Fatalf("copy %d of %d is said to be reported, and is not: %+v", in, len(left), said)
			}
		}
		for i := in; i < len(left); i++ {
			if s.ReportedIn("a", left[i].Topic) != 0 {
				t.Fatalf("copy %d is said to be reported, and %d is not", i, in)
			}
		}
		left = left[in:]
	}
	if reports < 2 || reports > 10 {
		t.Errorf("%d reports", reports)
	}
}
