package subjectindex

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"sort"
	"strconv"
	"testing"
	"time"

	"github.com/carillon-mq/carillon/broker/env"
)

func benchShard(b *testing.B) *Shard {
	b.Helper()
	s, err := Open(context.Background(), Config{FS: env.OS, Dir: filepath.Join(b.TempDir(), "index"), Cache: NewCache(env.OS, 0), Secret: testSecret}, 1, nil)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = s.Close() })
	return s
}

// names returns a function that makes the name of a subject, without allocating.
func names() func(i uint64) []byte {
	buf := make([]byte, 0, 64)
	return func(i uint64) []byte {
		buf = append(buf[:0], "telemetry.device."...)
		buf = strconv.AppendUint(buf, i+1_000_000_0, 10)
		return buf
	}
}

// generated is a log whose record at an offset has a subject that the offset decides.
type generated uint64

func subjectAt(offset, subjects uint64) uint64 { return fold(offset, 0x9e3779b97f4a7c15) % subjects }

// Subjects implements Source.
func (g generated) Subjects(from, to uint64, record func(offset uint64, n int, subject []byte) error, _ func(from, to uint64) error) error {
	name := names()
	for offset := from; offset < to; offset++ {
		if err := record(offset, 1, name(subjectAt(offset, uint64(g)))); err != nil {
			return err
		}
	}
	return nil
}

// BenchmarkAppend is the cost of a record for its publisher, with batches of 64: ns/record.
// Segments of 640,000 records are rolled, sealed and indexed on another goroutine; total-ns/record
// is the time until that has caught up. A rate is how many records come in a second at most;
// without one, more than any broker takes.
func BenchmarkAppend(b *testing.B) {
	for _, c := range []struct {
		subjects uint64
		rate     float64
	}{{1, 0}, {1000, 0}, {10_000_000, 0}, {10_000_000, 400_000}} {
		subjects := c.subjects
		b.Run(fmt.Sprintf("%d-rate-%v", subjects, c.rate), func(b *testing.B) {
			s := benchShard(b)
			s.config.Source = generated(subjects)
			name := names()
			ctx, end := context.WithCancel(context.Background())
			worked := make(chan struct{})
			wake := make(chan struct{}, 1)
			s.config.Wake = func() {
				select {
				case wake <- struct{}{}:
				default:
				}
			}
			go func() {
				defer close(worked)
				for {
					for more := true; more; {
						var err error
						if more, err = s.Work(context.Background()); err != nil {
							b.Error(err)
							return
						}
					}
					select {
					case <-wake:
					case <-ctx.Done():
						return
					}
				}
			}()
			g := Segment{Base: 1}
			s.Roll(g)
			offset, batch := uint64(1), 0
			var spent time.Duration
			ids := make([][]byte, 64)
			began := time.Now()
			b.ReportAllocs()
			b.ResetTimer()
			for offset <= uint64(b.N) {
				for i := range ids {
					ids[i] = append(ids[i][:0], name(subjectAt(offset+uint64(i), subjects))...)
				}
				at := time.Now()
				s.Begin()
				for i := range ids {
					s.Add(offset, 1, ids[i])
					offset++
				}
				s.End()
				spent += time.Since(at)
				if due := time.Duration(float64(offset) / max(c.rate, 1) * 1e9); c.rate > 0 && batch%64 == 0 {
					time.Sleep(due - time.Since(began))
				}
				if batch++; batch%10_000 == 0 {
					old := g
					g = Segment{Base: offset}
					s.Roll(g)
					s.Sealed(old, 0)
				}
			}
			b.StopTimer()
			end()
			<-worked
			b.ReportMetric(float64(spent.Nanoseconds())/float64(offset-1), "ns/record")
			b.ReportMetric(float64(time.Since(began).Nanoseconds())/float64(offset-1), "total-ns/record")
			b.ReportMetric(float64(s.Stats().GivenUp), "given-up")
		})
	}
}

// BenchmarkIndexFile is the size of index files and the time to make them, by how the records of a
// segment are spread over subjects.
func BenchmarkIndexFile(b *testing.B) {
	const records = 640_000
	zipf := rand.NewZipf(rand.New(rand.NewPCG(1, 1)), 1.1, 1, 1_000_000)
	random := rand.New(rand.NewPCG(1, 1))
	for _, c := range []struct {
		name string
		id   func(i uint64) uint64
	}{
		{"one", func(uint64) uint64 { return 0 }},
		{"1000-in-turn", func(i uint64) uint64 { return i % 1000 }},
		{"1000-random", func(uint64) uint64 { return random.Uint64N(1000) }},
		{"1M-zipf", func(uint64) uint64 { return zipf.Uint64() }},
		{"10M-random", func(uint64) uint64 { return random.Uint64N(10_000_000) }},
	} {
		b.Run(c.name, func(b *testing.B) {
			name := names()
			var size int64
			var subjects uint64
			for range b.N {
				s := benchShard(b)
				build := s.NewBuilder(Segment{Base: 1}, 1, 0)
				for i := range uint64(records) {
					if err := build.Add(b.Context(), i+1, 1, name(c.id(i))); err != nil {
						b.Fatal(err)
					}
				}
				built, err := build.Finish(b.Context(), records+1)
				if err != nil {
					b.Fatal(err)
				}
				info, err := os.Stat(built.run.path)
				if err != nil {
					b.Fatal(err)
				}
				size, subjects = info.Size(), built.run.subjects
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*records), "ns/record")
			b.ReportMetric(float64(size)/records, "bytes/record")
			b.ReportMetric(float64(size)/float64(subjects), "bytes/subject")
		})
	}
}

// BenchmarkTenMillion makes an index of 10 M subjects, one record each, in 16 segments, and
// measures what it takes: memory, lookups, counts.
func BenchmarkTenMillion(b *testing.B) {
	const subjects, segments = 10_000_000, 16
	ctx := b.Context()
	heap := func() uint64 {
		runtime.GC()
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	before := heap()
	s := benchShard(b)
	name := names()
	// A permutation without memory: steps that have no factor in common with the number.
	offset, id := uint64(1), uint64(0)
	peak := uint64(0)
	var m runtime.MemStats
	began := time.Now()
	for i := range segments {
		g := Segment{Base: offset}
		s.Roll(g)
		for n := range subjects / segments {
			s.Begin()
			s.Add(offset, 1, name(id))
			s.End()
			offset++
			id = (id + 7_654_321) % subjects
			if n%50_000 == 0 {
				for more := true; more; {
					var err error
					if more, err = s.Work(ctx); err != nil {
						b.Fatal(err)
					}
				}
				runtime.ReadMemStats(&m)
				peak = max(peak, m.HeapInuse)
			}
		}
		if i < segments-1 {
			s.Sealed(g, 0)
			if err := s.drain(ctx); err != nil {
				b.Fatal(err)
			}
		}
	}
	made := time.Since(began)
	all := Range{1, offset}
	rng := rand.New(rand.NewPCG(9, 9))
	filter, _ := NewFilter("telemetry.device.>")
	some, _ := NewFilter("telemetry.*.12345678", "telemetry.device.1000000*")
	lookup := func(n int, of func() []byte) (median, p99 time.Duration) {
		times := make([]time.Duration, n)
		for i := range times {
			s1 := of()
			at := time.Now()
			if _, err := s.Last(context.Background(), s1, all); err != nil {
				b.Fatal(err)
			}
			times[i] = time.Since(at)
		}
		sort.Slice(times, func(i, k int) bool { return times[i] < times[k] })
		return times[n/2], times[n*99/100]
	}
	present := func() []byte { return name(rng.Uint64N(subjects)) }
	cold, coldTail := lookup(20_000, present) // filters and index blocks come into the cache
	next, nextTail := lookup(200_000, present)
	absent, absentTail := lookup(100_000, func() []byte { return append(name(rng.Uint64N(subjects)), 'x') })
	hot := [1000][]byte{}
	for i := range hot {
		hot[i] = append([]byte(nil), present()...)
	}
	lookup(20_000, func() []byte { return hot[rng.IntN(len(hot))] })
	cached, cachedTail := lookup(200_000, func() []byte { return hot[rng.IntN(len(hot))] })
	after := heap()

	at := time.Now()
	n, err := s.Count(ctx, filter, Range{1, offset - 1})
	counted := time.Since(at)
	if err != nil || n != offset-2 {
		b.Fatal(n, err)
	}
	at = time.Now()
	if _, err = s.Count(ctx, some, all); err != nil {
		b.Fatal(err)
	}
	countedSome := time.Since(at)
	c := s.NewCounter(filter)
	if _, err := c.Count(ctx, Range{1, offset - 100}); err != nil {
		b.Fatal(err)
	}
	at = time.Now()
	if _, err := c.Count(ctx, all); err != nil {
		b.Fatal(err)
	}
	kept := time.Since(at)
	at = time.Now()
	distinct, err := s.NumSubjects(ctx, all)
	if err != nil || distinct != offset-1 {
		b.Fatal(distinct, err)
	}
	numbered := time.Since(at)
	for b.Loop() {
		_, _ = s.Last(context.Background(), present(), all)
	}
	runtime.KeepAlive(s)
	mib := func(n uint64) float64 { return float64(n) / (1 << 20) }
	b.ReportMetric(mib(after-before), "MiB-heap")
	b.ReportMetric(mib(peak-min(before, peak)), "MiB-peak-inuse")
	b.ReportMetric(float64(s.config.Cache.Bytes())/(1<<20), "MiB-cache")
	b.ReportMetric(float64(made.Nanoseconds())/subjects, "make-ns/record")
	for _, r := range []struct {
		name         string
		median, tail time.Duration
	}{{"cold", cold, coldTail}, {"random", next, nextTail}, {"absent", absent, absentTail}, {"cached", cached, cachedTail}} {
		b.Logf("last of a subject, %s: median %v, p99 %v", r.name, r.median, r.tail)
	}
	b.Logf("count of all by a filter %v, of few %v; kept count %v; number of subjects %v", counted, countedSome, kept, numbered)
}
