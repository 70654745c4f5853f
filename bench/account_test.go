package bench

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"
)

func TestAStampIsReadBackAndADamagedOneIsRejected(t *testing.T) {
	want := stamp{kind: kindMessage, run: 1<<63 + 5, publisher: 77, sequence: 1<<32 - 1, due: -3}
	p := make([]byte, 50)
	want.put(p)
	if got, ok := readStamp(p); !ok || got != want {
		t.Fatalf("got %+v, %v", got, ok)
	}
	for bit := range len(p) * 8 {
		p[bit/8] ^= 1 << (bit % 8)
		if _, ok := readStamp(p); ok {
			t.Errorf("a payload with bit %d flipped passes", bit)
		}
		p[bit/8] ^= 1 << (bit % 8)
	}
	for n := range headerBytes {
		if _, ok := readStamp(p[:n]); ok {
			t.Errorf("a payload cut to %d bytes passes", n)
		}
	}
}

func TestTheAccountDistinguishesLossDuplicatesAndOrder(t *testing.T) {
	a := account{bits: make([]uint64, 2), highest: -1}
	for _, step := range []struct {
		sequence uint32
		want     verdict
	}{
		{0, verdictNew}, {1, verdictNew}, {3, verdictNew}, {2, verdictReordered}, {3, verdictDuplicate}, {1, verdictDuplicate},
		{127, verdictNew}, {64, verdictReordered}, {127, verdictDuplicate}, {128, verdictUnexpected}, {1<<32 - 1, verdictUnexpected},
	} {
		if got := a.observe(step.sequence); got != step.want {
			t.Errorf("sequence %d is judged %v, want %v", step.sequence, got, step.want)
		}
	}
	ledgers := []ledger{{sources: []int{4}, accounts: []account{a}}}
	want := Deliveries{Expected: 128, Received: 6, Lost: 122, Duplicated: 3, OutOfOrder: 2}
	if got := settleAccounts(ledgers, []int{0, 0, 0, 0, 128}); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
}

func TestSummaryOfKnownSamples(t *testing.T) {
	r := newRecorder()
	for i := int64(1); i <= 10_000; i++ {
		r.record(i * 1000)
	}
	s := r.summary()
	if s.Count != 10_000 || s.Min != 1000 || s.Max != 10_000_000 || s.Mean != 5_000_500 {
		t.Errorf("count, extremes and mean are not exact: %+v", s)
	}
	if want := 1000 * math.Sqrt((1e8-1)/12); math.Abs(s.SD-want) > 1e-3 {
		t.Errorf("sd %v, want %v", s.SD, want)
	}
	for _, p := range []struct {
		got  int64
		want float64
	}{{s.P50, 5e6}, {s.P95, 9.5e6}, {s.P99, 9.9e6}, {s.P999, 9.99e6}} {
		if math.Abs(float64(p.got)-p.want) > p.want/1000 {
			t.Errorf("percentile %d, want %v to a thousandth", p.got, p.want)
		}
	}
}

func TestMergedRecordersEqualOneRecorder(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	whole, merged := newRecorder(), newRecorder()
	for range 8 {
		part := newRecorder()
		for range random.IntN(2000) {
			v := int64(math.Exp(random.NormFloat64()*3 + 12))
			whole.record(v)
			part.record(v)
		}
		merged.merge(part)
	}
	merged.merge(newRecorder())
	a, b := whole.summary(), merged.summary()
	if math.Abs(a.Mean-b.Mean) > a.Mean*1e-9 || math.Abs(a.SD-b.SD) > a.SD*1e-9 {
		t.Errorf("mean and sd: %v %v, merged %v %v", a.Mean, a.SD, b.Mean, b.SD)
	}
	a.Mean, a.SD, b.Mean, b.SD = 0, 0, 0, 0
	if a != b {
		t.Errorf("one recorder says %+v\nmerged ones say %+v", a, b)
	}
}

func TestRecorderTakesEveryValue(t *testing.T) {
	r := newRecorder()
	r.record(-5)
	r.record(0)
	r.record(int64(3 * time.Hour))
	if s := r.summary(); s.Count != 3 || s.Min != 0 || s.Max != int64(3*time.Hour) {
		t.Errorf("%+v", s)
	}
	if (newRecorder().summary() != Latency{}) {
		t.Error("an empty recorder has a summary")
	}
}

func TestPercentilesNeedSamplesAboveThem(t *testing.T) {
	for _, c := range []struct {
		count int64
		q     float64
		want  bool
	}{{199, .95, false}, {200, .95, true}, {999, .99, false}, {1000, .99, true}, {9999, .999, false}, {10_000, .999, true}} {
		if got := supported(c.count, c.q); got != c.want {
			t.Errorf("%d samples for %v: %v", c.count, c.q, got)
		}
	}
}

// TestDeliverAllocatesNothing: accounting a delivery is on the measured path, so it must not
// allocate.
func TestDeliverAllocatesNothing(t *testing.T) {
	w, err := Fanout{Subscribers: []int{2}, MessagesPerTopic: 1000, PayloadBytes: 50, Rounds: 10, Duration: time.Second, Client: ClientLight}.Workloads()
	if err != nil {
		t.Fatal(err)
	}
	c := newCollector(1, w[0])
	p := make([]byte, 50)
	sequence := uint32(0)
	if n := testing.AllocsPerRun(1000, func() {
		stamp{run: 1, publisher: 0, sequence: sequence}.put(p)
		sequence++
		c.deliver(0, p, 1000)
	}); n != 0 {
		t.Errorf("%v allocations per delivery", n)
	}
}
