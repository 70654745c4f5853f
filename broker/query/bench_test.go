package query

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/carillon-mq/carillon/broker/attribute"
)

// BenchmarkApply has the targets of the design: microseconds with 10,000 queries for a value each,
// and less than 0.1 ms with 500 distinct queries that each match a tenth of 1,000 subjects.
func BenchmarkApply(b *testing.B) {
	b.Run("10000 equalities", func(b *testing.B) {
		s := NewSet(large())
		for n := range 10_000 {
			must(b, s.Add(ID(n), 1, compiled(b, fmt.Sprintf(`attributes.k == "v%d"`, n), CEL), nil))
		}
		changes(b, s, 1000, func(n int) attribute.Set {
			return attribute.Set{"k": attribute.String(fmt.Sprint("v", n%10_000)), "room": attribute.String("410")}
		})
	})
	b.Run("500 of a tenth", func(b *testing.B) {
		s := NewSet(large())
		for n := range 500 {
			must(b, s.Add(ID(n), 1, compiled(b, tenth(n), CEL), nil))
		}
		changes(b, s, 1000, func(n int) attribute.Set { return attribute.Set{"bucket": attribute.Number(float64(n * 7 % 997))} })
	})
	b.Run("500 of a tenth by cel-go", func(b *testing.B) {
		s := NewSet(large())
		for n := range 500 {
			must(b, s.Add(ID(n), 1, compiled(b, tenth(n)+" && size(attributes) > 0", CEL), nil))
		}
		changes(b, s, 1000, func(n int) attribute.Set { return attribute.Set{"bucket": attribute.Number(float64(n * 7 % 997))} })
	})
	b.Run("an unrelated attribute", func(b *testing.B) {
		s := NewSet(large())
		for n := range 10_000 {
			must(b, s.Add(ID(n), 1, compiled(b, fmt.Sprintf(`attributes.room == "410" && attributes.floor > %d`, n), CEL), nil))
		}
		changes(b, s, 1000, func(n int) attribute.Set {
			return attribute.Set{"room": attribute.String("410"), "x": attribute.Number(float64(n))}
		})
	})
}

// tenth is a query of which each matches another tenth of the buckets.
func tenth(n int) string {
	from := n * 2 % 900
	return fmt.Sprintf(`attributes.bucket >= %d && attributes.bucket < %d && attributes.bucket != %d`, from, from+101, from+n*2/900)
}

// changes gives subjects in turn attributes.
func changes(b *testing.B, s *Set, subjects int, next func(n int) attribute.Set) {
	names := make([]string, subjects)
	sets := make([]attribute.Set, 10*subjects+7)
	for i := range sets {
		sets[i] = next(i)
	}
	n := 0
	var deltas []Delta
	told := 0
	step := func() {
		deltas = s.Apply(names[n%subjects], sets[n%len(sets)], uint64(n+1), deltas[:0])
		told += len(deltas)
		n++
	}
	for i := range names {
		names[i] = fmt.Sprint("s.", i)
		step()
	}
	before := s.Stats().Judged
	told = 0
	b.ReportAllocs()
	count := 0
	for b.Loop() {
		step()
		count++
	}
	b.ReportMetric(float64(s.Stats().Judged-before)/float64(count), "judged/op")
	b.ReportMetric(float64(told)/float64(count), "deltas/op")
}

// BenchmarkAdd opens and closes a query over 100,000 subjects.
func BenchmarkAdd(b *testing.B) {
	s := NewSet(large())
	for n := range 100_000 {
		s.Apply(fmt.Sprint("s.", n), attribute.Set{"n": attribute.Number(float64(n)), "room": attribute.String(fmt.Sprint(n % 1000))}, uint64(n+1), nil)
	}
	for _, text := range []string{`attributes.room == "410"`, `attributes.n > 500`, `true`, `size(attributes) > 1`} {
		q := compiled(b, text, CEL)
		b.Run(text, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				must(b, s.Add(1, 1, q, nil))
				s.Remove(1)
			}
		})
	}
}

// BenchmarkCompile is what opening a distinct query costs before its members are looked for.
func BenchmarkCompile(b *testing.B) {
	b.ReportAllocs()
	n := 0
	for b.Loop() {
		compiled(b, fmt.Sprintf(`Bucket = '%d' and (Room = 'a' or Room = 'b')`, n), CQBS)
		n++
	}
}

// BenchmarkRequery is CQBS' coordinator benchmark without a network: 500 distinct queries that each
// match a tenth of the subjects, of which 1,000 arrive, and then change. It reports percentiles of
// Apply.
func BenchmarkRequery(b *testing.B) {
	for name, form := range map[string]func(n int) string{
		"equality": func(n int) string {
			return fmt.Sprintf(`attributes.bucket == "%d" && attributes.n != %d`, n%10, -n-1)
		},
		"range": tenth,
	} {
		b.Run(name, func(b *testing.B) {
			const queries, subjects = 500, 1000
			r := rand.New(rand.NewPCG(1, 4))
			set := func() attribute.Set {
				n := r.IntN(1000)
				bucket := attribute.String(fmt.Sprint(n % 10))
				if name == "range" {
					bucket = attribute.Number(float64(n))
				}
				return attribute.Set{"bucket": bucket, "n": attribute.Number(float64(n)), "kind": attribute.String("sensor")}
			}
			compiledQueries := make([]*Query, queries)
			for n := range compiledQueries {
				compiledQueries[n] = compiled(b, form(n), CEL)
			}
			var took []time.Duration
			told := 0
			for b.Loop() {
				s := NewSet(large())
				for n, q := range compiledQueries {
					must(b, s.Add(ID(n), 1, q, nil))
				}
				var deltas []Delta
				for n := range 2 * subjects {
					name, attributes := fmt.Sprint("s.", n%subjects), set()
					begun := time.Now()
					deltas = s.Apply(name, attributes, uint64(n+1), deltas[:0])
					took = append(took, time.Since(begun))
					told += len(deltas)
				}
			}
			slices.Sort(took)
			at := func(p float64) float64 { return float64(took[int(p*float64(len(took)-1))].Nanoseconds()) / 1000 }
			b.ReportMetric(at(0.5), "p50-µs")
			b.ReportMetric(at(0.95), "p95-µs")
			b.ReportMetric(at(0.99), "p99-µs")
			b.ReportMetric(at(1), "max-µs")
			b.ReportMetric(float64(told)/float64(len(took)), "deltas/change")
		})
	}
}
