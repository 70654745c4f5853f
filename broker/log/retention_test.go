package log

import (
	"errors"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func TestRetentionDeletesWholeSegments(t *testing.T) {
	now := time.Unix(1_000_000, 0)
	ago := func(d time.Duration) time.Time { return now.Add(-d) }
	segs := []SegmentInfo{
		{Base: 1, End: 101, Bytes: 1000, First: ago(10 * time.Hour), Last: ago(9 * time.Hour)},
		{Base: 101, End: 201, Bytes: 1000, First: ago(9 * time.Hour), Last: ago(5 * time.Hour)},
		{Base: 201, End: 251, Bytes: 500, First: ago(5 * time.Hour), Last: ago(time.Hour), Active: true},
	}
	for _, c := range []struct {
		name   string
		policy Retention
		hold   uint64
		want   RetentionPlan
	}{
		{"nothing is bounded", Retention{}, 0, RetentionPlan{Start: 1}},
		{"age", Retention{Age: 6 * time.Hour}, 0, RetentionPlan{Start: 101}},
		{"age, and the active one is due to be sealed", Retention{Age: 8 * time.Hour}, 0, RetentionPlan{Start: 101}},
		{"all is old", Retention{Age: 30 * time.Minute}, 0, RetentionPlan{Start: 251, Roll: true}},
		{"bytes: what is left still reaches the bound", Retention{Bytes: 1500}, 0, RetentionPlan{Start: 101}},
		{"bytes: less would be left", Retention{Bytes: 1501}, 0, RetentionPlan{Start: 1}},
		{"bytes never take the active one", Retention{Bytes: 1}, 0, RetentionPlan{Start: 201}},
		{"messages", Retention{Messages: 150}, 0, RetentionPlan{Start: 101}},
		{"messages, one more", Retention{Messages: 151}, 0, RetentionPlan{Start: 1}},
		{"the strictest counts", Retention{Messages: 150, Bytes: 500}, 0, RetentionPlan{Start: 201}},
		{"a hold within", Retention{Bytes: 1}, 150, RetentionPlan{Start: 101}},
		{"a hold at the edge", Retention{Bytes: 1}, 201, RetentionPlan{Start: 201}},
		{"a hold at the start", Retention{Bytes: 1}, 1, RetentionPlan{Start: 1}},
	} {
		got := PlanRetention(segs, 1, now, c.policy, c.hold)
		if c.want.Start != got.Start || c.want.Roll && !got.Roll {
			t.Errorf("%s: %+v, want %+v", c.name, got, c.want)
		}
	}
}

// TestRetentionOutlivesAWrongClock: some records were written by a clock that was wrong. They
// neither stop retention for ever, nor delete younger records.
func TestRetentionOutlivesAWrongClock(t *testing.T) {
	now := time.Unix(10_000_000, 0)
	const year = 365 * 24 * time.Hour
	ago := func(hours int) time.Time { return now.Add(-time.Duration(hours) * time.Hour) }
	for _, c := range []struct {
		name  string
		lasts []time.Time // of segments of 10 records
		want  uint64
	}{
		{"all is right", []time.Time{ago(30), ago(20), ago(5)}, 21},
		{"one was a year ahead", []time.Time{ago(30), now.Add(year), ago(20), ago(5)}, 31},
		{"one was a year ahead, and what follows is young", []time.Time{ago(30), now.Add(year), ago(5), ago(4)}, 11},
		{"the newest is a year ahead", []time.Time{ago(30), now.Add(year)}, 11},
		{"all are a year ahead", []time.Time{now.Add(year), now.Add(year)}, 1},
		{"one was a year behind", []time.Time{ago(5), now.Add(-year), ago(4)}, 1},
		{"one was a year behind, and what is before is old", []time.Time{ago(20), now.Add(-year), ago(4)}, 21},
		{"a little in the future", []time.Time{now.Add(time.Second)}, 1},
	} {
		var segs []SegmentInfo
		for i, last := range c.lasts {
			base := uint64(10*i + 1)
			segs = append(segs, SegmentInfo{Base: base, End: base + 10, First: last, Last: last})
		}
		if got := PlanRetention(segs, 1, now, Retention{Age: 10 * time.Hour}, 0).Start; got != c.want {
			t.Errorf("%s: starts at %d, want %d", c.name, got, c.want)
		}
	}
	active := []SegmentInfo{{Base: 1, End: 11, First: now, Last: now.Add(year), Active: true}}
	if !PlanRetention(active, 1, now, Retention{Age: 10 * time.Hour}, 0).Roll {
		t.Error("a segment with a time in the future takes more records")
	}
}

// TestRetentionKeepsItsBounds: whatever the segments, the policy and the hold: the start is a
// segment's edge, never goes back, never passes the hold, and what is left reaches every bound that
// isn't age.
func TestRetentionKeepsItsBounds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		now := time.Unix(1_000_000, 0)
		var segs []SegmentInfo
		base, at := uint64(1), now.Add(-100*time.Hour)
		for range rapid.IntRange(0, 8).Draw(t, "segments") {
			end := base + uint64(rapid.IntRange(1, 50).Draw(t, "records"))
			last := at.Add(time.Duration(rapid.IntRange(0, 20).Draw(t, "hours")) * time.Hour)
			segs = append(segs, SegmentInfo{Base: base, End: end, Bytes: int64(end-base) * 10, First: at, Last: last})
			base, at = end, last
		}
		if n := len(segs); n > 0 {
			segs[n-1].Active = rapid.Bool().Draw(t, "active")
		}
		p := Retention{Age: time.Duration(rapid.IntRange(0, 80).Draw(t, "age")) * time.Hour, Bytes: int64(rapid.IntRange(0, 2000).Draw(t, "bytes")), Messages: uint64(rapid.IntRange(0, 200).Draw(t, "messages"))}
		hold := uint64(rapid.IntRange(0, 300).Draw(t, "hold"))
		plan := PlanRetention(segs, 1, now, p, hold)
		if plan.Start != 1 && !slices.ContainsFunc(segs, func(s SegmentInfo) bool { return s.End == plan.Start }) {
			t.Fatalf("%d is no edge", plan.Start)
		}
		if hold > 0 && plan.Start > max(hold, 1) {
			t.Fatalf("start %d passes hold %d", plan.Start, hold)
		}
		if p.Age == 0 && plan.Start > 1 {
			left := base - plan.Start
			if (p.Messages == 0 || left < p.Messages) && (p.Bytes == 0 || int64(left)*10 < p.Bytes) {
				t.Fatalf("%d records are left of %+v", left, p)
			}
		}
	})
}

func TestTrimDeletesWholeSegmentsAndKeepsHolds(t *testing.T) {
	fsys, d, l := setup(t, small)
	put(t, l, 1000)
	before := l.Stats().Segments
	hold := l.Hold(500)
	if hold.Offset() != 500 {
		t.Error(hold.Offset())
	}
	if start, err := l.Trim(900); err != nil || start != 500 {
		t.Fatal(start, err)
	}
	mustRead(t, l, 500, 1001)
	if _, err := readAll(l, 499); err == nil {
		t.Error("read below the start")
	} else if r, ok := errors.AsType[*RangeError](err); !ok || r.Start != 500 || r.End != 1001 {
		t.Error(err)
	}
	if s := l.Stats(); s.Segments >= before || s.Deleted == 0 {
		t.Errorf("%d segments of %d are left", s.Segments, before)
	}
	hold.Release()
	hold.Release()
	names, err := fsys.List("data/shards/orders-0")
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if start, err := l.Trim(5000); err != nil || start != 1001 {
			t.Fatal(start, err)
		}
	}
	after, err := fsys.List("data/shards/orders-0")
	if err != nil || len(after) != 2 || len(names) < 4 {
		t.Errorf("%v are left of %v (%v)", after, names, err)
	}
	put(t, l, 5)
	mustRead(t, l, 1001, 1006)
	_ = d.Close()
	l = openLog(t, openDisk(t, fsys, "data", small), orders)
	mustRead(t, l, 1001, 1006)
	if start := l.Start(); start != 1001 {
		t.Error(start)
	}
}

func TestOldRecordsExpireWithoutPublishes(t *testing.T) {
	fsys, d, l := setup(t, small)
	put(t, l, 10) // records of second 1
	policy := Retention{Age: time.Hour}
	if start, err := l.Retain(time.Unix(1800, 0), policy); err != nil || start != 1 {
		t.Fatal(start, err)
	}
	if err := l.Flush(); err != nil {
		t.Fatal(err)
	}
	if infos := l.SegmentInfos(); len(infos) != 1 || infos[0].Active {
		t.Errorf("a segment with records half as old as they may get was not sealed: %+v", infos)
	}
	if start, err := l.Retain(time.Unix(3700, 0), policy); err != nil || start != 11 {
		t.Fatal(start, err)
	}
	put(t, l, 2)
	_ = d.Close()
	mustRead(t, openLog(t, openDisk(t, fsys, "data", small), orders), 11, 13)
}
