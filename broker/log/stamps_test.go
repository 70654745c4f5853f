package log

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"testing"

	"github.com/carillon-mq/carillon/broker/removal"
	"github.com/carillon-mq/carillon/broker/stamping"
)

// stampsFrom returns the stamps of the records from an offset on.
func stampsFrom(t interface {
	Helper()
	Fatal(...any)
}, l *Log, from uint64) map[uint64]string {
	t.Helper()
	got := map[uint64]string{}
	for c := l.NewCursor(from); ; {
		v, err := c.Read(1 << 20)
		if gone := (*RangeError)(nil); errors.As(err, &gone) || err == nil && v.End == v.From {
			return got
		}
		if err != nil {
			t.Fatal(err)
		}
		for b, ok := v.Next(); ok; b, ok = v.Next() {
			it := b.Records()
			for r := (Record{}); it.Next(&r); {
				if r.Offset >= from {
					got[r.Offset] = string(r.Stamp)
				}
			}
			if it.Err() != nil {
				t.Fatal(it.Err())
			}
		}
		v.Release()
	}
}

// stampOf is the stamp of a record of stampedLog.
func stampOf(offset uint64) string {
	if offset%3 == 0 {
		return ""
	}
	return fmt.Sprintf(`{"n":%d}`, offset/20)
}

// appendStamped appends records in batches of ten, each with a stamp or none.
func appendStamped(t testing.TB, l *Log, epoch uint64, batches int) {
	t.Helper()
	var w stamping.Writer
	for range batches {
		_, end, _ := l.Offsets()
		w.Begin(end)
		records := texts(end, 10)
		for i := range records {
			records[i].Subject = fmt.Appendf(nil, "s.%d", (end+uint64(i))%100)
			w.Add(end+uint64(i), stampOf(end+uint64(i)))
		}
		if _, err := l.Append(&Append{Epoch: epoch, Records: records, Extensions: []Extension{{Type: stamping.ExtensionType, Data: w.Data()}}}); err != nil {
			t.Fatal(err)
		}
	}
	if err := l.Flush(); err != nil {
		t.Fatal(err)
	}
}

func checkStamps(t *testing.T, when string, l *Log, least int) {
	t.Helper()
	start, _, _ := l.Offsets()
	got := stampsFrom(t, l, start)
	for offset, stamp := range got {
		if stamp != stampOf(offset) {
			t.Fatalf("%s: the stamp of offset %d is %q, and was %q", when, offset, stamp, stampOf(offset))
		}
	}
	if len(got) < least {
		t.Fatalf("%s: %d records are left, want at least %d", when, len(got), least)
	}
}

// TestStampsStayWithTheirRecords: whatever rewrites, cuts or copies a log, and in later lives.
func TestStampsStayWithTheirRecords(t *testing.T) {
	fsys, d, l := setup(t, small)
	appendStamped(t, l, 1, 300)
	checkStamps(t, "appended", l, 3000)
	if _, _, err := l.TruncateTo(2985, 0); err != nil { // within a batch
		t.Fatal(err)
	}
	checkStamps(t, "truncated", l, 2900)
	appendStamped(t, l, 2, 10)
	removed := &removal.Set{}
	for o := uint64(1); o < 2000; o++ {
		if o%4 < 2 {
			removed.Add(o, o+1)
		}
	}
	if did := expungeAll(t, l, removed); did.Records == 0 {
		t.Fatal("nothing was expunged")
	}
	checkStamps(t, "expunged", l, 1900)
	if _, err := l.Compress(t.Context(), 1); err != nil {
		t.Fatal(err)
	}
	checkStamps(t, "compressed", l, 1900)
	// A copy takes over from within batches that were merged.
	copied, err := d.Open(Identity{Topic: "copy"}, 1, 1, nil)
	if err != nil {
		t.Fatal(err)
	}
	appendStamped(t, copied, 1, 33)
	if _, _, err := copied.TruncateTo(321, 0); err != nil {
		t.Fatal(err)
	}
	for {
		_, end, _ := copied.Offsets()
		v, err := l.NewCursor(end).Read(4 << 10)
		if err != nil {
			t.Fatal(err)
		}
		if v.End == v.From {
			break
		}
		for b, ok := v.Next(); ok; b, ok = v.Next() {
			_, end, _ := copied.Offsets()
			if b, err = b.From(end); err == nil {
				b, err = ParseBatch(b)
			}
			if err == nil {
				err = copied.AppendBatch(b, Memory, nil)
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		v.Release()
	}
	checkStamps(t, "copied", copied, 2000)
	if out := compact(t, l); out.Records == 0 {
		t.Fatal("nothing was compacted")
	}
	checkStamps(t, "compacted", l, 100)
	_, _, l = cutPower(t, fsys, d, 1, 1, small)
	checkStamps(t, "opened again", l, 100)
}

// TestStampsOfRemovedRecordsGo: what is compacted again and again keeps no text that no record has.
func TestStampsOfRemovedRecordsGo(t *testing.T) {
	_, _, l := setup(t, Options{TailBytes: 1})
	appendStamped(t, l, 1, 100)
	compact(t, l)
	v, err := l.NewCursor(1).Read(math.MaxInt32)
	if err != nil {
		t.Fatal(err)
	}
	defer v.Release()
	texts := map[string]bool{}
	for b, ok := v.Next(); ok; b, ok = v.Next() {
		for it := b.Extensions(); ; {
			e, ok := it.Next()
			if !ok {
				break
			}
			if e.Type != stamping.ExtensionType {
				continue
			}
			r := stamping.NewReader(e.Data, b.Base())
			for o := b.Base(); o < b.End(); o++ {
				text, err := r.At(o)
				if err != nil {
					t.Fatal(err)
				}
				texts[string(text)] = true
			}
		}
	}
	delete(texts, "")
	var want []string
	for n := 45; n <= 50; n++ {
		want = append(want, fmt.Sprintf(`{"n":%d}`, n))
	}
	if got := slices.Sorted(maps.Keys(texts)); !slices.Equal(got, want) {
		t.Errorf("the texts are %v, want %v", got, want)
	}
}
