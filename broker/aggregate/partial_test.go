package aggregate

import (
	"bytes"
	"fmt"
	"math"
	"math/big"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/carillon-mq/carillon/broker/filter"
)

// shapes are queries with windows of each kind.
var shapes = []Options{
	{}, {Window: 10 * time.Second}, {Window: 10 * time.Second, Slide: 4 * time.Second}, {Session: 3 * time.Second}, {Window: 10 * time.Second, Time: "json.t"},
}

func shape(t rapid.TB, n int) *Query {
	o := shapes[n]
	o.Functions = "count(), sum(json.n), mean(json.n), min(json.n), max(json.user), p90(json.n), distinct(json.user)"
	o.By = "json.region"
	return compiled(t, o)
}

// records draws records of which some have no key, time or number.
func records(t *rapid.T, name string) []*filter.Record {
	return rapid.SliceOfN(rapid.Custom(func(t *rapid.T) *filter.Record {
		n := "null"
		switch rapid.IntRange(0, 4).Draw(t, "kind") {
		case 0:
			n = fmt.Sprint(rapid.IntRange(-3, 3).Draw(t, "n"))
		case 1:
			n = `"text"`
		default:
			n = fmt.Sprintf("%g", rapid.Float64().Draw(t, "n"))
		}
		seconds := rapid.Float64Range(-60, 60).Draw(t, "seconds")
		return at(seconds, `{"t": %g, "n": %s, "user": "%d", "region": %s}`, seconds, n, rapid.IntRange(0, 9).Draw(t, "user"),
			rapid.SampledFrom([]string{`"eu"`, `"us"`, "1", "null", "{}"}).Draw(t, "region"))
	}), 0, 40).Draw(t, name)
}

func encoded(t rapid.TB, p *Partial) []byte {
	b, err := p.Encode()
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// TestAPartialIsAFunctionOfItsRecords: in whatever order they are added, and however partials of
// some of them are merged, the bytes are the same, and stay the same when they are decoded.
func TestAPartialIsAFunctionOfItsRecords(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		q := shape(t, rapid.IntRange(0, len(shapes)-1).Draw(t, "shape"))
		all := records(t, "records")
		whole := added(t, q, all...)
		want := encoded(t, whole)

		shuffled := rapid.Permutation(all).Draw(t, "order")
		var parts []*Partial
		for len(shuffled) > 0 {
			n := rapid.IntRange(0, len(shuffled)).Draw(t, "part")
			n = max(n, 1)
			parts = append(parts, added(t, q, shuffled[:n]...))
			shuffled = shuffled[n:]
		}
		parts = append(parts, q.NewPartial())
		for len(parts) > 1 {
			i := rapid.IntRange(0, len(parts)-2).Draw(t, "left")
			left, right := parts[i], parts[i+1]
			if rapid.Bool().Draw(t, "swapped") {
				left, right = right, left
			}
			before := encoded(t, right)
			if err := left.Merge(right); err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(encoded(t, right), before) {
				t.Fatal("merging changed the other partial")
			}
			if rapid.Bool().Draw(t, "decoded") {
				var err error
				if left, err = q.Decode(encoded(t, left)); err != nil {
					t.Fatal(err)
				}
			}
			parts[i] = left
			parts = slices.Delete(parts, i+1, i+2)
		}
		if got := encoded(t, parts[0]); !bytes.Equal(got, want) {
			t.Fatalf("merged:\n%s\nadded:\n%s", printed(parts[0].Rows()), printed(whole.Rows()))
		}
		if got, want := printed(parts[0].Rows()), printed(whole.Rows()); got != want {
			t.Fatalf("merged:\n%s\nadded:\n%s", got, want)
		}
	})
}

// TestSumsAreExact: a sum is the float64 next to the exact one, in any order.
func TestSumsAreExact(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		numbers := rapid.SliceOf(rapid.OneOf(rapid.Float64(), rapid.Float64Range(-1, 1), rapid.SampledFrom([]float64{
			math.MaxFloat64, -math.MaxFloat64, math.SmallestNonzeroFloat64, 1e16, 1, -1e16, 0x1p-1022, 1e308,
		}))).Draw(t, "numbers")
		var s sum
		exact := new(big.Rat)
		for _, n := range numbers {
			s.add(n)
			exact.Add(exact, new(big.Rat).SetFloat64(n))
		}
		want, _ := exact.Float64()
		if got := s.value(); got != want {
			t.Fatalf("the sum is %g, want %g", got, want)
		}
		if len(numbers) == 0 {
			return
		}
		want, _ = exact.Quo(exact, big.NewRat(int64(len(numbers)), 1)).Float64()
		if got := s.mean(); got != want {
			t.Fatalf("the mean is %g, want %g", got, want)
		}
	})
	var s sum
	for range 1000 {
		s.add(math.MaxFloat64)
	}
	if !math.IsInf(s.value(), 1) || s.mean() != math.MaxFloat64 {
		t.Errorf("the sum is %g, and the mean %g", s.value(), s.mean())
	}
}

// TestQuantilesAreAsNearAsTheySay: of numbers of any kind, a quantile is the number at its rank, up
// to the stated error, also when there are more bins than are kept.
func TestQuantilesAreAsNearAsTheySay(t *testing.T) {
	for _, c := range []struct {
		name   string
		number func(i int) float64
		error  float64
	}{
		{"a few", func(i int) float64 { return float64(i%10) - 4 }, 0.004},
		{"latencies", func(i int) float64 { return 0.001 * math.Exp(float64(i%1000)/200) }, 0.004},
		{"both signs", func(i int) float64 { return math.Pow(-1, float64(i)) * float64(i) }, 0.008},
		{"of all sizes", func(i int) float64 { return math.Pow(1.5, float64(i%3000-1500)) }, 0.34},
		{"of all sizes and both signs", func(i int) float64 { return math.Pow(-1.5, float64(i%3000-1500)) }, 0.61},
	} {
		var q quantiles
		var all []float64
		for i := range 20_000 {
			x := c.number(i * 7919 % 20_000)
			q.add(x)
			all = append(all, x)
		}
		slices.Sort(all)
		if got := q.relativeError(); got > c.error || len(q.bins) > maxBins {
			t.Errorf("%s: an error of %g, with %d bins", c.name, got, len(q.bins))
		}
		for _, p := range []float64{0.0001, 0.01, 0.25, 0.5, 0.75, 0.9, 0.99, 0.999, 0.99999} {
			want := all[int(math.Ceil(p*float64(len(all))))-1]
			if got := q.value(p); math.Abs(got-want) > q.relativeError()*math.Abs(want)*(1+1e-9) {
				t.Errorf("%s: quantile %g is %g, want %g", c.name, p, got, want)
			}
		}
	}
}

// TestNumbersOfDifferentValues: exact while they are few, and then within four standard deviations.
func TestNumbersOfDifferentValues(t *testing.T) {
	q := compiled(t, Options{Functions: "distinct(json)"})
	p := q.NewPartial()
	next := 1
	for n := 1; n <= 50_000; n++ {
		if err := p.Add(at(0, "%d", n)); err != nil {
			t.Fatal(err)
		}
		if n != next {
			continue
		}
		got := float64(p.Rows()[0].Values[0].Count)
		if off := math.Abs(got-float64(n)) / float64(n); n <= maxHashes && off > 0 || off > 4*0.0081 {
			t.Errorf("%g, want %d", got, n)
		}
		next += max(next/7, 1)
	}
}

// TestWindows: a record is in the windows that its time is in, also before 1970.
func TestWindows(t *testing.T) {
	tumbling := compiled(t, Options{Functions: "count(), sum(json)", Window: 10 * time.Second})
	if got := printed(added(t, tumbling, at(9.999, "1"), at(10, "2"), at(0, "4"), at(25, "8"), at(-0.5, "16")).Rows()); got !=
		"-10-0 1 16\n0-10 2 5\n10-20 1 2\n20-30 1 8" {
		t.Errorf("tumbling:\n%s", got)
	}
	sliding := compiled(t, Options{Functions: "count(), sum(json)", Window: 10 * time.Second, Slide: 5 * time.Second})
	if got := printed(added(t, sliding, at(4, "1"), at(5, "2"), at(14, "4")).Rows()); got != "-5-5 1 1\n0-10 2 3\n5-15 2 6\n10-20 1 4" {
		t.Errorf("sliding:\n%s", got)
	}
	session := compiled(t, Options{Functions: "count(), sum(json.n)", By: "json.k", Session: 5 * time.Second})
	p := added(t, session, at(0, `{"k":"a","n":1}`), at(4, `{"k":"b","n":2}`), at(8, `{"k":"a","n":4}`), at(13, `{"k":"a","n":8}`))
	if got := printed(p.Rows()); got != "0-5 a 1 1\n4-9 b 1 2\n8-13 a 1 4\n13-18 a 1 8" {
		t.Errorf("sessions:\n%s", got)
	}
	bridge := added(t, session, at(9, `{"k":"a","n":16}`), at(4, `{"k":"a","n":32}`), at(12, `{"k":"a","n":64}`))
	if err := p.Merge(bridge); err != nil {
		t.Fatal(err)
	}
	if got := printed(p.Rows()); got != "0-18 a 6 125\n4-9 b 1 2" {
		t.Errorf("bridged sessions:\n%s", got)
	}
	named := compiled(t, Options{Functions: "count()", Window: time.Second, Time: "json.t"})
	p = added(t, named, at(0, `{"t":"2026-03-01T12:00:07.5Z"}`), at(0, `{"t":%d.25}`, at(0, "").Time/1e9+3), at(0, `{"t":-1.5}`), at(0, `{"t":1e300}`), at(0, `{"t":"x"}`), at(0, `{}`),
		at(0, `{"t":"9999-01-01T00:00:00Z"}`))
	rows := p.Rows()
	if got := printed(rows[1:]); got != "3-4 1\n7-8 1" || rows[0].Start != -2e9 || p.Totals().NoTime != 4 {
		t.Errorf("by a field: %d rows, the later ones\n%s\n%+v", len(rows), got, p.Totals())
	}
	if err := named.Why(at(0, `{"t":"x"}`)); err == nil || !strings.Contains(err.Error(), "json.t: it is no time") {
		t.Error(err)
	}
}

// TestWindowsCloseAtTheWatermark: each is reported once, in order. What comes later is counted,
// once for each window; a session that is open takes it.
func TestWindowsCloseAtTheWatermark(t *testing.T) {
	q := compiled(t, Options{Functions: "count()", By: "json", Window: 10 * time.Second, Slide: 5 * time.Second})
	m := q.NewMerger()
	merge := func(records ...*filter.Record) {
		t.Helper()
		if err := m.Merge(added(t, q, records...)); err != nil {
			t.Fatal(err)
		}
	}
	closes := func(seconds float64, want string) {
		t.Helper()
		if got := printed(m.Close(at(seconds, "").Time)); got != want {
			t.Errorf("at %g it closed\n%s\nwant\n%s", seconds, got, want)
		}
	}
	merge(at(2, "1"), at(7, "2"))
	closes(4.9, "")
	closes(5, "-5-5 1 1")
	closes(5, "")
	merge(at(1, "1"), at(11, "1")) // -5-5 is closed, 0-10 is not
	closes(15, "0-10 1 2\n0-10 2 1\n5-15 1 1\n5-15 2 1")
	closes(3, "") // back in time
	merge(at(2, "3"))
	closes(15, "")
	if m.Late() != 3 || m.Totals().Records != 5 {
		t.Errorf("%d late of %+v", m.Late(), m.Totals())
	}
	if got := printed(m.Close(Everything)); got != "10-20 1 1" {
		t.Errorf("at the end it closed\n%s", got)
	}
	if len(m.partial.series) != 0 || m.partial.groups != 0 || m.partial.bytes != 0 {
		t.Errorf("%d keys, %d windows and %d bytes are left", len(m.partial.series), m.partial.groups, m.partial.bytes)
	}

	q = compiled(t, Options{Functions: "count()", Session: 5 * time.Second})
	m = q.NewMerger()
	merge(at(8, ""), at(11, ""))
	closes(12, "")
	merge(at(4, "")) // ends before, but belongs to one that is open
	merge(at(-3, ""))
	closes(15.9, "")
	closes(16, "4-16 3")
	if m.Late() != 1 {
		t.Errorf("%d late", m.Late())
	}

	q = compiled(t, Options{Functions: "count()"})
	m = q.NewMerger()
	merge(at(1, ""), at(3, ""))
	closes(100, "")
	if got := printed(m.Close(Everything)); got != "1-3 2" {
		t.Errorf("without windows\n%s", got)
	}
}

// TestBounds: a partial beyond a bound says so, and has no result from then on.
func TestBounds(t *testing.T) {
	q := compiled(t, Options{Functions: "count()", By: "json"})
	p := q.NewPartial()
	var err error
	n := 0
	for ; err == nil && n <= 2*maxGroups; n++ {
		err = p.Add(at(0, "%d", n))
	}
	if err == nil || n != maxGroups+1 || err.Error() != "aggregate: more than 100000 windows and keys: choose keys with fewer values, longer windows, or fewer records" {
		t.Errorf("after %d keys: %v", n, err)
	}
	if p.Add(at(0, "0")) != err || q.NewPartial().Merge(p) != err {
		t.Error("the partial goes on")
	}
	if _, e := p.Encode(); e != err {
		t.Error(e)
	}
	half := q.NewPartial()
	for i := range maxGroups/2 + 1 {
		if err := half.Add(at(0, "%d.5", i)); err != nil {
			t.Fatal(err)
		}
	}
	p.Reset()
	for i := range maxGroups / 2 {
		if err := p.Add(at(0, "%d", i)); err != nil {
			t.Fatal(err)
		}
	}
	if err := p.Merge(half); err == nil || !strings.Contains(err.Error(), "windows and keys") {
		t.Error(err)
	}

	q = compiled(t, Options{Functions: "distinct(json.v)", By: "json.k"})
	p, err = added(t, q, at(0, `{"k":0,"v":0}`)), nil
	p.bytes = maxBytes - groupBytes - 4*maxHashes // as of many keys
	for n = 1; err == nil && n <= maxHashes; n++ {
		err = p.Add(at(0, `{"k":0,"v":%d}`, n))
	}
	if err == nil || n < maxHashes/4 || !strings.Contains(err.Error(), "more than 268435456 bytes in windows and keys") {
		t.Errorf("after %d values: %v", n, err)
	}

	other := compiled(t, Options{Functions: "count()", By: "json.k"})
	if err := q.NewPartial().Merge(other.NewPartial()); err != errOtherQuery {
		t.Error(err)
	}
}

// BenchmarkAddFields is BenchmarkAdd of four fields, the last one behind the rest.
func BenchmarkAddFields(b *testing.B) {
	q := compiled(b, Options{
		Functions: "count(), sum(json.n), max(json.t), p99(json.last)", By: "json.region",
	})
	p := q.NewPartial()
	r := at(1, `{"t": 1, "n": 1.5, "user": "u", "region": "eu", "rest": %q, "last": 2}`,
		strings.Repeat("x", 140))
	for b.Loop() {
		if err := p.Add(r); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkAdd(b *testing.B) {
	q := shape(b, 1)
	p := q.NewPartial()
	r := at(1, `{"t": 1, "n": 1.5, "user": "u", "region": "eu", "rest": %q}`, strings.Repeat("x", 140))
	for b.Loop() {
		if err := p.Add(r); err != nil {
			b.Fatal(err)
		}
	}
}
