package aggregate

import (
	"math"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// gateAt closes windows that end so many seconds after 12:00.
func gateAt(seconds float64) *Gate {
	return &Gate{Watermark: at(seconds, "").Time, Latest: math.MaxInt64, Windows: 3, Bytes: 1 << 20}
}

// TestRecordsAreAddedToOpenWindows: the closed windows of a record are counted, and nothing is
// added beyond a bound, nor counted.
func TestRecordsAreAddedToOpenWindows(t *testing.T) {
	q := compiled(t, Options{Functions: "count()", By: "json", Window: 10 * time.Second, Slide: 5 * time.Second})
	p := q.NewPartial()
	for _, c := range []struct {
		at, watermark float64
		key           string
		want          Outcome
	}{
		{7, 0, "1", Outcome{}},
		{7, 10, "1", Outcome{Late: 1}},
		{7, 9.999, "1", Outcome{}},
		{7, 15, "1", Outcome{Late: 2}},
		{7, 0, "2", Outcome{Refused: true}}, // two more windows
		{7, 10, "2", Outcome{Late: 1}},      // one more
		{7, 10, "3", Outcome{Refused: true}},
		{7, 15, "3", Outcome{Late: 2}},
		{7, 10, "1", Outcome{Late: 1}},
	} {
		if got := p.AddOpen(at(c.at, "%s", c.key), gateAt(c.watermark)); got != c.want {
			t.Errorf("%+v: %+v", c, got)
		}
	}
	if got := printed(p.Rows()); got != "0-10 1 2\n5-15 1 4\n5-15 2 1" {
		t.Errorf("\n%s", got)
	}
	if p.Totals().Records != 7 {
		t.Errorf("%+v", p.Totals())
	}
	early := gateAt(0)
	early.Latest = at(20, "").Time
	if o := p.AddOpen(at(20.001, "1"), early); o != (Outcome{}) || p.Totals().NoTime != 1 {
		t.Errorf("a later time than the latest: %+v, %+v", o, p.Totals())
	}
	full := gateAt(0)
	full.Bytes = p.Size()
	if o := p.AddOpen(at(7, "1"), full); !o.Refused {
		t.Errorf("beyond the bytes: %+v", o)
	}
}

// TestALateRecordOfSessions: a session that is open takes what it holds, and nothing else that is
// before the watermark.
func TestALateRecordOfSessions(t *testing.T) {
	q := compiled(t, Options{Functions: "count()", Session: 10 * time.Second})
	p := q.NewPartial()
	for _, c := range []struct {
		at, watermark float64
		late          int
	}{{20, 0, 0}, {25, 24, 0}, {22, 24, 0}, {19, 24, 1}, {12, 24, 1}, {22, 34.999, 0}, {22, 35, 1}, {35, 35, 0}, {26, 35, 1}} {
		if got := p.AddOpen(at(c.at, ""), gateAt(c.watermark)); got != (Outcome{Late: c.late}) {
			t.Errorf("%+v: %+v", c, got)
		}
	}
	if got := printed(p.Rows()); got != "20-35 4\n35-45 1" {
		t.Errorf("\n%s", got)
	}
}

// TestWindowsMoveAndPage: pages of any size have all windows in the order of their ends and keys,
// and moving windows to another partial and merging both again changes nothing.
func TestWindowsMoveAndPage(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		q := shape(t, rapid.SampledFrom([]int{1, 2, 3}).Draw(t, "shape"))
		p := added(t, q, records(t, "records")...)
		var last *Window
		from, size, pages := Position{End: math.MinInt64}, rapid.IntRange(0, 3000).Draw(t, "bytes"), q.NewPartial()
		for more := true; more; {
			var page *Partial
			var next Position
			page, next, more = p.Page(from, size)
			for w := range page.Windows() {
				if w.Position().Compare(from) < 0 || more && w.Position().Compare(next) >= 0 {
					t.Fatalf("%v in the page from %v to %v", w, from, next)
				}
				last = &w
			}
			if more && next.Compare(from) <= 0 {
				t.Fatal("a page is empty")
			}
			if err := pages.Merge(page); err != nil {
				t.Fatal(err)
			}
			from = next
		}
		if got, want := printed(pages.Rows()), printed(p.Rows()); got != want || pages.Size() != p.Size() {
			t.Fatalf("paged\n%s\nof\n%s", got, want)
		}
		if last == nil {
			return
		}
		before, rest := encoded(t, p), q.NewPartial()
		p.Move(rest, func(w Window) bool { return w.Position().Compare(last.Position()) < 0 })
		for w := range p.Windows() {
			if w.End < p.First() || w.Position().Compare(last.Position()) < 0 {
				t.Fatalf("%v stays", w)
			}
		}
		if err := p.Merge(rest); err != nil {
			t.Fatal(err)
		}
		if string(encoded(t, p)) != string(before) {
			t.Fatal("moved and merged")
		}
		decoded, err := q.Decode(before)
		if err != nil || decoded.Size() != p.Size() {
			t.Fatalf("%d bytes, and decoded %d: %v", p.Size(), decoded.Size(), err)
		}
		if len(before) > p.Size()+64 {
			t.Fatalf("encoded %d bytes of a size of %d", len(before), p.Size())
		}
	})
}

// TestSessionsAreJoined: what is between them belongs to the one that they become.
func TestSessionsAreJoined(t *testing.T) {
	q := compiled(t, Options{Functions: "sum(json)", Session: time.Second})
	p := added(t, q, at(0, "1"), at(5, "2"), at(10, "4"), at(20, "8"))
	p.Join("", func(w Window) bool { return w.End < at(15, "").Time })
	if got := printed(p.Rows()); got != "0-11 7\n20-21 8" || p.Len() != 2 {
		t.Errorf("\n%s", got)
	}
	if b, err := p.Encode(); err != nil {
		t.Error(err)
	} else if again, err := q.Decode(b); err != nil || again.Size() != p.Size() {
		t.Error(err)
	}
}
