package records

import (
	"encoding/binary"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/carillon-mq/carillon/broker/log"
	"github.com/carillon-mq/carillon/broker/subject"
)

// live is the model of a shard: the subjects of the records that are left, by offset.
type live map[uint64]string

// inFiles returns what the files have below an offset.
func inFiles(t *testing.T, data *log.Log, end uint64) live {
	t.Helper()
	m := live{}
	if _, err := ScanBatches(data, 1, end, math.MaxInt64, func(b log.Batch, _ uint64) (bool, error) {
		it := b.Records()
		for r := (log.Record{}); it.Next(&r); {
			if r.Offset < end {
				m[r.Offset] = string(r.Subject)
			}
		}
		return true, it.Err()
	}); err != nil {
		t.Fatal(err)
	}
	return m
}

// removeSome removes records at random, one by one and in runs, and from the model.
func removeSome(r *rand.Rand, s *shard, m live) {
	for range 1 + r.IntN(12) {
		from := s.start + r.Uint64N(s.high-s.start)
		next := min(from+1+r.Uint64N(1+r.Uint64N(40)), s.high)
		s.gone.Add(from, next)
		maps.DeleteFunc(m, func(offset uint64, _ string) bool { return from <= offset && offset < next })
	}
}

// check compares all that a Reader says with the model.
func (m live) check(t *testing.T, r *rand.Rand, s *shard) {
	t.Helper()
	var offsets []uint64
	for offset := range m {
		if offset >= s.start && offset < s.high {
			offsets = append(offsets, offset)
		}
	}
	slices.Sort(offsets)
	first := s.high
	if len(offsets) > 0 {
		first = offsets[0]
	}
	info := s.Info()
	if info.Messages != uint64(len(offsets)) || info.First != first || info.Last != s.high-1 || info.LastTime.IsZero() || info.FirstTime.IsZero() != (len(offsets) == 0) {
		t.Fatalf("readers see %+v, want %d messages from %d on, up to %d", info, len(offsets), first, s.high-1)
	}
	var deleted []uint64
	for offset := first; offset < s.high; offset++ {
		if _, ok := m[offset]; !ok {
			deleted = append(deleted, offset)
		}
	}
	if got := s.Deleted(math.MaxInt); !slices.Equal(got, deleted) {
		t.Fatalf("offsets %v have no record, want %v", got, deleted)
	}
	for offset := s.start; offset < s.high; offset++ {
		got, err := s.Get(offset)
		if want, ok := m[offset]; ok != (err == nil) || string(got.Subject) != want {
			t.Fatalf("offset %d has %q, %v; want %q", offset, got.Subject, err, want)
		}
	}
	for _, pattern := range []string{"orders.1", "orders.*", ">", "bills.>"} {
		from := s.start + r.Uint64N(s.high-s.start)
		next, last := uint64(0), uint64(0)
		for _, offset := range offsets {
			if !subject.Matches([]byte(pattern), []byte(m[offset])) {
				continue
			}
			if last = offset; next == 0 && offset >= from {
				next = offset
			}
		}
		if got, err := s.NextFor(pattern, from); got.Offset != next || (err == nil) != (next > 0) {
			t.Fatalf("the next of %s from %d on is at %d, %v; want %d", pattern, from, got.Offset, err, next)
		}
		if got, err := s.LastFor(pattern); got.Offset != last || (err == nil) != (last > 0) {
			t.Fatalf("the last of %s is at %d, %v; want %d", pattern, got.Offset, err, last)
		}
	}
	for _, q := range []Query{{}, {Full: true}, {Gaps: true}, {Full: true, Gaps: true}} {
		if got := readAll(t, r, s, q); !slices.Equal(got, offsets) {
			t.Fatalf("%+v reads %v, want %v", q, got, offsets)
		}
	}
}

// readAll reads all records in answers of random sizes, and returns their offsets.
func readAll(t *testing.T, rng *rand.Rand, s *shard, q Query) (offsets []uint64) {
	t.Helper()
	var r BulkReader
	memory := make([]byte, 0, 1<<20)
	for q.Offset = s.start; q.Offset < s.high; {
		q.Records, q.Bytes, q.Most = 1+rng.IntN(60), 1+rng.IntN(4000), 1<<20
		if rng.IntN(2) == 0 {
			q.Bytes = 200 << 10 // files are read into the answer's memory
		}
		data, got, err := r.Read(&s.Reader, q, memory)
		if err != nil || got.Next <= q.Offset {
			t.Fatalf("%+v: %+v, %v", q, got, err)
		}
		at := got.First
		for range got.Count {
			if got.Gapped {
				gap, n := binary.Uvarint(data)
				data, at = data[n:], at+gap
			}
			size, n := binary.Uvarint(data)
			record := data[n:][:size]
			data = data[n+int(size):]
			if want := fmt.Sprint("record ", at-1); len(record) < len(want) || string(record[len(record)-len(want):]) != want {
				t.Fatalf("%+v: offset %d is %q", q, at, record)
			}
			offsets = append(offsets, at)
			at++
		}
		if len(data) > 0 || at > got.Next {
			t.Fatalf("%+v: %+v, and %d bytes are left at %d", q, got, len(data), at)
		}
		q.Offset = got.Next
	}
	return offsets
}

// TestRemovedRecordsAreNotRead removes records at random, before and after compaction takes some of
// them, and compares all reads with a map.
func TestRemovedRecordsAreNotRead(t *testing.T) {
	for seed := range uint64(40) {
		r := rand.New(rand.NewPCG(seed, 1))
		s := newShardOn(t, log.Options{SegmentSmallest: 2 << 10, SegmentLargest: 2 << 10, TailBytes: 1}, randomBatches(r)...)
		if r.IntN(2) == 0 {
			s.high -= r.Uint64N(3)
		}
		m := inFiles(t, s.data, s.high)
		m.check(t, r, s)
		for range 4 {
			removeSome(r, s, m)
			m.check(t, r, s)
			if r.IntN(3) > 0 {
				continue
			}
			s.data.Roll()
			if _, err := s.data.Compact(t.Context(), log.CompactOptions{Below: s.high, Before: time.Now()}); err != nil {
				t.Fatal(err)
			}
			left := inFiles(t, s.data, s.high)
			maps.DeleteFunc(m, func(offset uint64, _ string) bool { _, ok := left[offset]; return !ok })
			m.check(t, r, s)
		}
		s.gone.Add(s.start, s.high)
		clear(m)
		m.check(t, r, s)
	}
}

// randomBatches returns batches of a few hundred records of some subjects.
func randomBatches(r *rand.Rand) (batches []log.Append) {
	for n := 0; n < 300; {
		name, some := fmt.Sprint("orders.", r.IntN(5)), 1+r.IntN(30)
		if r.IntN(6) == 0 {
			name = "bills." + name
		}
		if r.IntN(2) == 0 {
			batches = append(batches, log.Append{Records: lines(name, n, some)})
		} else {
			var packed []byte
			for _, one := range lines("", n, some) {
				packed = append(binary.AppendUvarint(packed, uint64(len(one.Data))), one.Data...)
			}
			batches = append(batches, log.Append{Packed: log.Packed{Subject: []byte(name), Time: int64(1_000_000_000 + n), Count: some, Records: packed}})
		}
		n += some
	}
	return batches
}

// TestWithoutRemovalsReadsAllocateAsBefore: a shard without removals pays a load of one number.
func TestWithoutRemovalsReadsAllocateAsBefore(t *testing.T) {
	s := newShardOn(t, log.Options{}, log.Append{Records: lines("orders.1", 0, 100)})
	if n := testing.AllocsPerRun(100, func() { _ = s.Messages(s.start, s.high) }); n > 0 {
		t.Errorf("counting messages allocates %v times", n)
	}
}
