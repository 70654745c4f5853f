package records

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/carillon-mq/carillon/broker/filter"
	"github.com/carillon-mq/carillon/broker/log"
	"github.com/carillon-mq/carillon/broker/stamping"
	"github.com/carillon-mq/carillon/broker/statistics"
	"github.com/carillon-mq/carillon/broker/subject"
	"github.com/carillon-mq/carillon/internal/testutil"
)

// orders returns batches of random orders in JSON, of which some can't be judged: packed or not,
// with and without headers, of several subjects.
func orders(r *rand.Rand, most int) (batches []log.Append) {
	for n := 0; n < most; {
		some, packed := 1+r.IntN(30), []byte(nil)
		var each []log.Record
		name := fmt.Sprintf("orders.%d", r.IntN(3))
		for range some {
			data := fmt.Appendf(nil, `{"id":%d,"region":%q,"total":%d.5}`, n, []string{"eu", "us"}[r.IntN(2)], r.IntN(200))
			switch r.IntN(12) {
			case 0:
				data = []byte("no JSON")
			case 1:
				data = []byte(`{"region":"eu"}`)
			case 2:
				data = nil
			}
			packed = append(binary.AppendUvarint(packed, uint64(len(data))), data...)
			record := log.Record{Time: int64(1_000_000_000 + n), Subject: []byte(name), Data: data}
			if r.IntN(3) > 0 {
				record.Stamp = fmt.Appendf(nil, `{"room":"%d"}`, r.IntN(4))
			}
			if r.IntN(3) == 0 {
				header := "NATS/1.0\r\nPriority: 1\r\n\r\n"
				record.Header, record.Data = len(header), append([]byte(header), data...)
			}
			if r.IntN(4) == 0 {
				record.Subject = []byte("bills." + name)
			}
			each = append(each, record)
			n++
		}
		if r.IntN(2) == 0 {
			batches = append(batches, log.Append{Records: each})
		} else {
			batch := log.Append{Packed: log.Packed{Subject: []byte(name), Time: int64(1_000_000_000 + n), Count: some, Records: packed}}
			if r.IntN(3) > 0 {
				var stamps stamping.Writer // it says how far from the base a run is
				stamps.AddRun(0, uint64(some), fmt.Sprintf(`{"room":"%d"}`, r.IntN(4)))
				batch.Extensions = []log.Extension{{Type: stamping.ExtensionType, Data: stamps.Data()}}
			}
			batches = append(batches, batch)
		}
	}
	return batches
}

// sum is what judged reads of a range say in all.
type sum struct {
	found            []string
	examined, failed int
	why              string
	latest           int64
}

// scanned is what reading all records, and judging each, says of a range.
func scanned(t *testing.T, s *shard, from, end uint64, patterns [][]byte, f *filter.Filter) (want sum) {
	t.Helper()
	_, err := s.Scan(from, end, math.MaxInt64, func(r *log.Record) bool {
		want.examined++
		want.latest = max(want.latest, r.Time)
		if len(patterns) > 0 && !slices.ContainsFunc(patterns, func(p []byte) bool { return subject.Matches(p, r.Subject) }) {
			return true
		}
		is := filter.Record{Subject: r.Subject, Header: r.Data[:r.Header], Data: r.Data[r.Header:], Time: r.Time}
		is.SetAttributes(&filter.Stamp{}, r.Stamp)
		if f != nil {
			switch f.Judge(&is) {
			case filter.No:
				return true
			case filter.Failed:
				if want.failed++; want.why == "" {
					want.why = f.Why(&is).Error()
				}
				return true
			}
		}
		want.found = append(want.found, fmt.Sprintf("%d %d %s %q %q", r.Offset, r.Time, r.Subject, is.Header, is.Data))
		return true
	})
	testutil.Must(t, err)
	return want
}

// judged reads a range in answers of random sizes.
func judged(t *testing.T, rng *rand.Rand, s *shard, from, end uint64, of Selection) (got sum) {
	t.Helper()
	var r BulkReader
	of.End = end
	for from < end {
		q := Query{Offset: from, Records: 1 + rng.IntN(40), Bytes: 1 + rng.IntN(4000), Most: 1 << 20, Full: true}
		data, is, err := r.ReadJudged(&s.Reader, q, of, make([]byte, 0, 100))
		if err != nil || is.Next <= from || is.Next > end || is.Count > q.Records || len(data) > max(q.Bytes, 200) {
			t.Fatalf("%+v: %+v, %v", q, is, err)
		}
		got.found = append(got.found, entries(t, data, is.Range)...)
		got.examined, got.failed = got.examined+is.Examined, got.failed+is.Failed
		got.latest = max(got.latest, is.Latest)
		if got.why == "" && is.Why != nil {
			got.why = is.Why.Error()
		}
		from = is.Next
	}
	return got
}

// entries are the records of an answer in the full form, whose gaps are marked.
func entries(t *testing.T, data []byte, of Range) (all []string) {
	t.Helper()
	uvarint := func() uint64 {
		v, n := binary.Uvarint(data)
		data = data[n:]
		return v
	}
	piece := func() (p []byte) {
		size := uvarint()
		p, data = data[:size], data[size:]
		return p
	}
	offset, name := of.First, ""
	for range of.Count {
		offset += uvarint()
		entry := piece()
		rest := data
		after, n := binary.Varint(entry)
		data = entry[n:]
		if is := piece(); len(is) > 0 {
			name = string(is)
		}
		header := piece()
		all = append(all, fmt.Sprintf("%d %d %s %q %q", offset, of.Time+after, name, header, data))
		data = rest
		offset++
	}
	if len(data) > 0 || offset > of.Next || !of.Gapped {
		t.Fatalf("%+v: %d bytes are left at %d", of, len(data), offset)
	}
	return all
}

// TestSegmentsThatCanMatchNothingAreNotRead: what was collected of a segment by the second scan
// saves later ones to read it, unless it may have what they look for, or has records without it.
// Whatever is removed, or compacted, scans say the same as if they read all.
func TestSegmentsThatCanMatchNothingAreNotRead(t *testing.T) {
	s := shardOfDays(t)
	table, rng := &statistics.Table{}, rand.New(rand.NewPCG(1, 2))
	scan := func(where string) (judgedRecords int) {
		t.Helper()
		f, err := filter.CompileStored(where)
		testutil.Must(t, err)
		is := &counts{by: ByFilter(f)}
		of := Selection{Judge: is, Statistics: table, Probe: f.NewProbe()}
		got, want := judged(t, rng, s, s.start, s.high, of), scanned(t, s, s.start, s.high, nil, f)
		if !slices.Equal(got.found, want.found) || got.examined != want.examined || got.failed != want.failed || got.why != want.why || got.latest != want.latest {
			t.Fatalf("%s:\n%+v\nwant\n%+v", where, got, want)
		}
		return is.n
	}
	for range 2 {
		if n := scan("json.day == 'd3'"); n < 400 {
			t.Fatalf("%d of 400 were judged, and nothing was known", n)
		}
	}
	for range 2 {
		scan("attributes.day == 'a3' && json.n >= 0.0")
	}
	if n := scan("attributes.day == 'a3'"); n < 50 || n > 300 {
		t.Fatalf("%d of 400 were judged by an attribute", n)
	}
	few := scan("json.day == 'd3'")
	if few < 50 || few > 300 {
		t.Fatalf("%d of 400 were judged", few)
	}
	if n := scan("json.n > 10.0 && json.day in ['d1', 'd3', 4]"); n <= few || n > 350 {
		t.Errorf("%d of 400 were judged", n)
	}
	if n := scan("json.day == 'd3' || json.n == 5.0"); n < 400 {
		t.Errorf("%d of 400 were judged", n)
	}
	s.gone.Add(5, 9)
	s.gone.Add(100, 120)
	if n := scan("json.day == 'nowhen'"); n > 200 {
		t.Errorf("%d of 400 were judged", n)
	}
	s.gone.Add(160, 170)
	_, err := s.data.Compact(t.Context(), log.CompactOptions{Below: s.high, Before: time.Now()})
	testutil.Must(t, err)
	for range 4 {
		scan("json.day == 'd3'")
		scan("json.day == 'nowhen'")
		s.gone.Add(200, 210)
	}

	// Compacted segments lack records.
	s, table = shardOfDays(t), &statistics.Table{}
	_, err = s.data.Compact(t.Context(), log.CompactOptions{Below: s.high, Before: time.Now()})
	testutil.Must(t, err)
	if s.Messages(s.start, s.high) > 300 {
		t.Fatal("nothing was compacted")
	}
	for range 4 {
		scan("json.day == 'nowhen'")
	}
}

// shardOfDays has 400 records in segments of one day each, or two. All but the newest are sealed.
func shardOfDays(t *testing.T) *shard {
	t.Helper()
	var batches []log.Append
	for n := range 400 {
		name := fmt.Sprint("orders.", n)
		if n%2 == 0 {
			name = "orders"
		}
		batches = append(batches, log.Append{Records: []log.Record{{
			Time: int64(1_000 + n), Subject: []byte(name), Data: fmt.Appendf(nil, `{"n":%d,"day":"d%d","note":"%080d"}`, n, n/50, n), Stamp: fmt.Appendf(nil, `{"day":"a%d"}`, n/50),
		}}})
	}
	batches[390].Records[0].Data = []byte("no JSON")
	s := newShardOn(t, log.Options{SegmentSmallest: 4 << 10, SegmentLargest: 4 << 10, TailBytes: 1}, batches...)
	s.data.Roll()
	testutil.EventuallyTrue(t, "segments are sealed", func() bool {
		_, states := s.data.SegmentStates()
		sealed := 0
		for _, is := range states {
			if is.Sealed {
				sealed++
			}
		}
		return sealed >= len(states)-1 && sealed >= 6
	})
	return s
}

// counts counts what it judges.
type counts struct {
	by Judge
	n  int
}

func (c *counts) Judge(r *log.Record) filter.Verdict { c.n++; return c.by.Judge(r) }
func (c *counts) Why(r *log.Record) error            { return c.by.Why(r) }

// TestJudgedReadsSayWhatReadingAllSays: matches, counts, reasons and times are those of judging
// each record that a reader of all gets, also if records were removed, or compacted.
func TestJudgedReadsSayWhatReadingAllSays(t *testing.T) {
	for seed := range uint64(30) {
		r := rand.New(rand.NewPCG(seed, 13))
		s := newShardOn(t, log.Options{SegmentSmallest: 4 << 10, SegmentLargest: 4 << 10, TailBytes: 1 + r.Int64N(4<<10)}, orders(r, 400)...)
		table := &statistics.Table{}
		for round := range 4 {
			for _, where := range []string{"", "json.total > 100.0 && json.region == 'eu'", "headers.Priority == '1'", "size(json.region) > 1", "false", "attributes.room == '1'", "has(attributes.room) && json.total < 100.0"} {
				from := s.start + r.Uint64N(s.high-s.start)
				end := from + 1 + r.Uint64N(s.high-from)
				var of Selection
				var f *filter.Filter
				if where != "" {
					var err error
					f, err = filter.CompileStored(where)
					testutil.Must(t, err)
					of.Judge, of.Slow = ByFilter(f), !f.IsQuick()
					of.Statistics, of.Probe = table, f.NewProbe()
				}
				if r.IntN(2) == 0 {
					of.Subjects = [][]byte{[]byte("orders.1"), []byte("bills.>")}
				}
				want := scanned(t, s, from, end, of.Subjects, f)
				got := judged(t, r, s, from, end, of)
				if !slices.Equal(got.found, want.found) || got.examined != want.examined || got.failed != want.failed || got.why != want.why || got.latest != want.latest {
					t.Fatalf("seed %d, round %d, %q of %s from %d to %d:\n%+v\nwant\n%+v", seed, round, where, of.Subjects, from, end, got, want)
				}
			}
			for range r.IntN(8) {
				from := s.start + r.Uint64N(s.high-s.start)
				s.gone.Add(from, min(from+1+r.Uint64N(20), s.high))
			}
			if round == 1 {
				s.data.Roll()
				_, err := s.data.Compact(t.Context(), log.CompactOptions{Below: s.high, Before: time.Now()})
				testutil.Must(t, err)
			}
		}
	}
}

// TestAJudgedReadEndsWhenItsTimeIsOver: what matches nothing comes further with each read.
func TestAJudgedReadEndsWhenItsTimeIsOver(t *testing.T) {
	s := newShard(t, log.Append{Records: lines("orders", 0, 20)})
	var r BulkReader
	q := Query{Offset: 1, Records: 100, Bytes: 1 << 20, Most: 1 << 20}
	for examined := 0; q.Offset < s.high; {
		_, got, err := r.ReadJudged(&s.Reader, q, Selection{Judge: slow{}, Slow: true}, nil)
		testutil.Must(t, err)
		if got.Count != 0 || got.Examined != 1 {
			t.Fatalf("%+v", got)
		}
		if q.Offset, examined = got.Next, examined+got.Examined; q.Offset != 1+uint64(examined) {
			t.Fatalf("%+v after %d", got, examined)
		}
	}
}

// slow takes as long for a record as a read may take for all, and accepts none.
type slow struct{}

func (slow) Judge(*log.Record) filter.Verdict {
	for begun := time.Now(); time.Since(begun) <= judgeTime; {
	}
	return filter.No
}
func (slow) Why(*log.Record) error { return nil }

// nothing accepts no record.
type nothing struct{ slow }

func (nothing) Judge(*log.Record) filter.Verdict { return filter.No }

// TestAJudgedReadEndsAtARecordThatFitsNoAnswer: the records before it are returned first, also if
// none of them matches, and whatever a condition says of the large one.
func TestAJudgedReadEndsAtARecordThatFitsNoAnswer(t *testing.T) {
	large := lines("orders", 2, 1)
	large[0].Data = make([]byte, 5000)
	s := newShard(t, log.Append{Records: lines("orders", 0, 2)}, log.Append{Records: large}, log.Append{Records: lines("orders", 3, 1)})
	var r BulkReader
	q := Query{Offset: 1, Records: 10, Bytes: 4000, Most: 4000, Full: true}
	of := Selection{Judge: nothing{}}
	_, got, err := r.ReadJudged(&s.Reader, q, of, nil)
	if err != nil || got.Next != 3 || got.Examined != 2 {
		t.Fatalf("%+v, %v", got, err)
	}
	q.Offset = 3
	_, got, err = r.ReadJudged(&s.Reader, q, of, nil)
	if e, ok := errors.AsType[*SizeError](err); !ok || e.Offset != 3 || e.Topic != "orders" || got.Examined != 0 {
		t.Fatalf("%+v, %v", got, err)
	}
	_, _, unjudged := r.Read(&s.Reader, q, nil)
	if unjudged == nil || unjudged.Error() != err.Error() {
		t.Errorf("%v, and without a condition %v", err, unjudged)
	}
	others := Selection{Subjects: [][]byte{[]byte("bills")}}
	_, got, err = r.ReadJudged(&s.Reader, q, others, nil)
	if err != nil || got.Next != s.high || got.Examined != 2 {
		t.Errorf("of another subject: %+v, %v", got, err)
	}
	q.Offset = 4
	if _, got, err = r.ReadJudged(&s.Reader, q, of, nil); err != nil || got.Next != s.high || got.Examined != 1 {
		t.Fatalf("%+v, %v", got, err)
	}
	q.Offset = s.high + 1
	if _, _, err = r.ReadJudged(&s.Reader, q, of, nil); !errorIs[*OffsetError](err) {
		t.Errorf("%v", err)
	}
}

func errorIs[E error](err error) bool {
	_, ok := errors.AsType[E](err)
	return ok
}

// BenchmarkJudgedScan reads orders of 200 bytes in JSON of which 1 % match; and, beside, all of
// them unjudged.
func BenchmarkJudgedScan(b *testing.B) {
	s := longShard(b)
	f, err := filter.Compile("json.total > 100.0 && json.region == 'eu'")
	testutil.Must(b, err)
	for name, of := range map[string]*Selection{
		"judged": {Judge: ByFilter(f)}, "statistics": {Judge: ByFilter(f), Statistics: &statistics.Table{}, Probe: f.NewProbe()},
		"subjects": {Subjects: [][]byte{[]byte("bills.>")}}, "unjudged": nil,
	} {
		b.Run(name, func(b *testing.B) {
			var r BulkReader
			memory := make([]byte, 0, 2<<20)
			q := Query{Offset: s.start, Records: 1 << 16, Bytes: 1 << 20, Most: 1 << 20, Full: true}
			b.ReportAllocs()
			for n := 0; n < b.N; {
				if of == nil {
					_, got, err := r.Read(&s.Reader, q, memory)
					testutil.Must(b, err)
					n, q.Offset = n+got.Count, got.Next
				} else {
					_, got, err := r.ReadJudged(&s.Reader, q, *of, memory)
					testutil.Must(b, err)
					n, q.Offset = n+got.Examined, got.Next
				}
				if q.Offset >= s.high {
					q.Offset = s.start
				}
			}
		})
	}
}

// longShard has 100,000 orders in files.
func longShard(t testing.TB) *shard {
	var batches []log.Append
	for n := 0; n < 100_000; {
		var packed []byte
		for range 1000 {
			region, total := "us", n%200
			if n%50 == 0 {
				region = "eu"
			}
			data := fmt.Appendf(nil, `{"id":"%030d","shop":"paris-%d","customer":{"id":%d,"vip":true},"region":%q,"total":%d.5,"currency":"EUR","note":%q}`,
				n, n%17, n*7919%1_000_000, region, total, strings.Repeat("x", 65))
			packed = append(binary.AppendUvarint(packed, uint64(len(data))), data...)
			n++
		}
		batches = append(batches, log.Append{Packed: log.Packed{Subject: []byte("orders.eu"), Time: int64(n), Count: 1000, Records: packed}})
	}
	return newShardOn(t, log.Options{TailBytes: 1}, batches...)
}
