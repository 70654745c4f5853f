package subjectindex

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/carillon-mq/carillon/broker/env/crashfs"
)

func openEmpty(t testing.TB, partBytes int) *Shard {
	t.Helper()
	fs := crashfs.New()
	s, err := Open(context.Background(), Config{FS: fs, Dir: "index", Cache: NewCache(fs, 0), Secret: testSecret, PartBytes: partBytes}, 1, nil)
	if err != nil {
		t.Fatal(err)
	}
	s.Roll(Segment{Base: 1})
	return s
}

// Adding records of known subjects, and lookups of what is in memory, allocate nothing.
func TestHotPathAllocatesNothing(t *testing.T) {
	s := openEmpty(t, 0)
	subjects := make([][]byte, 1000)
	for i := range subjects {
		subjects[i] = fmt.Appendf(nil, "orders.eu.%d", i)
	}
	offset := uint64(1)
	add := func() {
		s.Begin()
		for range 100 {
			s.Add(offset, 1, subjects[int(offset*7)%len(subjects)])
			offset++
		}
		s.End()
	}
	for range 200 {
		add()
	}
	// A chunk of 4,096 records is an allocation; 30 times 100 records need none on average.
	if n := testing.AllocsPerRun(30, add); n >= 1 {
		t.Errorf("%v allocations per 100 records", n)
	}
	if n := testing.AllocsPerRun(100, func() {
		if last, err := s.Last(context.Background(), subjects[5], Range{1, offset}); err != nil || last == 0 {
			t.Fatal(last, err)
		}
		if last, ok := s.Known(subjects[6]); !ok || last == 0 {
			t.Fatal(last, ok)
		}
	}); n > 0 {
		t.Errorf("%v allocations per lookup", n)
	}
}

// A part that can't be flushed in time is given up. Appends go on, and the memory is bounded.
func TestMemoryIsBoundedWithoutAnyWork(t *testing.T) {
	const most = 64 << 10
	s := openEmpty(t, most)
	for offset := uint64(1); offset < 50_000; offset++ {
		s.Begin()
		s.Add(offset, 1, fmt.Appendf(nil, "subject.%d", offset))
		s.End()
		if got := s.Bytes(); got > (1+partGivenUp)*most+most {
			t.Fatalf("after %d records the parts take %d bytes; they may take three times %d", offset, got, most)
		}
	}
	if s.Stats().GivenUp == 0 {
		t.Error("nothing was given up")
	}
	if last, err := s.Last(context.Background(), []byte("subject.49999"), Range{1, 50_000}); err != nil || last != 49999 {
		t.Errorf("the last record is at %d, %v", last, err)
	}
	if _, err := s.Last(context.Background(), []byte("subject.1"), Range{1, 50_000}); err == nil {
		t.Error("an answer about a range that was given up")
	}
}

// Batches of many records of one subject take memory by batch, in a part and in the index file.
func TestBatchesOfOneSubjectTakeLittle(t *testing.T) {
	s := openEmpty(t, 0)
	const batches, batch = 2000, 16_384
	const records = batches * batch
	add := func(from uint64, subject string) {
		s.Begin()
		for i := range uint64(batches) {
			s.Add(from+i*batch, batch, fmt.Appendf(nil, "%s.%d", subject, i%1000))
		}
		s.End()
	}
	check := func() {
		t.Helper()
		if got := s.Bytes(); got > 256<<10 {
			t.Errorf("the parts take %d bytes", got)
		}
		info, err := s.Info(context.Background(), []byte("one.7"), Range{8, records - 1})
		if err != nil || info != (Info{Count: 2 * batch, First: 7*batch + 1, Last: 1008 * batch}) {
			t.Errorf("it has %v, %v", info, err)
		}
		filter, err := NewFilter("*.3")
		if err != nil {
			t.Fatal(err)
		}
		if n, err := s.Count(context.Background(), filter, Range{3*batch + 11, 1003*batch + 6}); n != batch-10+5 || err != nil {
			t.Errorf("%d records match, %v", n, err)
		}
	}
	add(1, "one")
	check()
	s.Sealed(Segment{Base: 1}, 1)
	if err := s.drain(t.Context()); err != nil || s.Stats().Written != 1 || s.Stats().GivenUp > 0 {
		t.Fatal(err, s.Stats())
	}
	check()
}

// A view of a part stays as it was while the part is truncated and filled again.
func TestViewStaysAsItWas(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 1))
	p := newPart(testSecret, 1, 0)
	add := func(subject string) {
		gap := uint64(0)
		if rng.IntN(50) == 0 {
			gap = rng.Uint64N(10)
		}
		n := 1
		if rng.IntN(20) == 0 {
			n += rng.IntN(20)
		}
		p.add(p.end+gap, n, []byte(subject), hash(testSecret, []byte(subject)))
	}
	for range 200 {
		for range rng.IntN(6000) {
			add(fmt.Sprintf("s.%d", rng.IntN(5000)))
		}
		v := p.view()
		content := func() (out string) {
			h := uint64(0)
			for i := range v.records.n {
				from, to := offsetsAt(v.stretches, i)
				h = hash(h, v.subject(v.records.at(i).subject)) + from + to<<32
			}
			return fmt.Sprint(h, v.records.n, v.names.n)
		}
		before := content()
		p.truncate(1 + rng.Uint64N(p.end))
		for range rng.IntN(3000) {
			add(fmt.Sprintf("other.%d", rng.IntN(5000)))
		}
		if after := content(); after != before {
			t.Fatalf("the view was %s and is %s", before, after)
		}
	}
}

// Of absent subjects, the filter passes few.
func TestFilterPassesFewAbsentSubjects(t *testing.T) {
	for _, n := range []int{1, 10, 1000, 100_000} {
		f := newBloom(uint64(4 * n)) // it is folded
		for i := range n {
			f.add(hash(testSecret, fmt.Appendf(nil, "present.%d", i)))
		}
		f.fold(uint64(n))
		has := func(s string) bool {
			h := hash(testSecret, []byte(s))
			return bloomHas(f.bits[bloomPlace(h, f.blocks())*bloomBlock:][:bloomBlock], h)
		}
		for i := range n {
			if !has(fmt.Sprintf("present.%d", i)) {
				t.Fatalf("of %d subjects number %d is not found", n, i)
			}
		}
		passed := 0
		const tries = 100_000
		for i := range tries {
			if has(fmt.Sprintf("absent.%d", i)) {
				passed++
			}
		}
		if passed > tries/100 {
			t.Errorf("of %d subjects the filter has %d bits each, and passes %d of %d others", n, len(f.bits)*8/n, passed, tries)
		}
	}
}

// drain does all work.
func (s *Shard) drain(ctx context.Context) error {
	for {
		if more, err := s.Work(ctx); !more || err != nil {
			return err
		}
	}
}
