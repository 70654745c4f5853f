package view

import (
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/carillon-mq/carillon/broker/trigger"
)

// present returns the present values of shards.
func present(t testing.TB, o *Owner, shards ...*Shard) (string, map[uint32]uint64) {
	t.Helper()
	all := map[uint32][]byte{}
	for i, s := range shards {
		b, err := s.Present(o.Wanted(uint32(i)))
		if err != nil {
			t.Fatal(err)
		}
		all[uint32(i)] = b
	}
	rows, offsets, err := o.Present(all, math.MaxInt)
	if err != nil {
		t.Fatal(err)
	}
	var lines []string
	for _, r := range rows {
		lines = append(lines, fmt.Sprintf("%g-%g %s %s", float64(r.Start)/1e9, float64(r.End)/1e9, r.Keys[0], r.Values[0]))
	}
	return strings.Join(lines, ", "), offsets
}

// TestPresentValuesAreThoseOfWindowsThatAreNotClosed: whether the owner has them, or only a shard.
func TestPresentValuesAreThoseOfWindowsThatAreNotClosed(t *testing.T) {
	v := compiled(t, counting())
	a, b, o := v.NewShard(), v.NewShard(), owner(t, v, 0, 1)
	if _, _, err := o.Present(nil, math.MaxInt); err != errNotBegun {
		t.Error(err)
	}
	take(t, o, 0, a)
	take(t, o, 1, b)
	add(t, a, at(0, "x"), at(1, "x"), at(2, "y"), at(3, "x"))
	add(t, b, at(0, "x"), at(1, "x"), at(1, "y"))
	const want = "1-2 x 2, 1-2 y 1, 2-3 y 1, 3-4 x 1"
	if got, offsets := present(t, o, a, b); got != "0-1 x 2, "+want || offsets[0] != 4 || offsets[1] != 3 {
		t.Errorf("%s at %v", got, offsets)
	}
	old, err := a.Present(begin)
	if err != nil {
		t.Fatal(err)
	}
	take(t, o, 0, a)
	take(t, o, 1, b)
	closes(t, o, "0-1 x 2")
	if got, _ := present(t, o, a, b); got != want {
		t.Error(got)
	}
	acked(t, o, 0, a)
	acked(t, o, 1, b)
	if got, _ := present(t, o, a, b); got != want {
		t.Error(got)
	}
	if _, _, err := o.Present(map[uint32][]byte{0: old}, math.MaxInt); err == nil || !strings.Contains(err.Error(), "nothing is known of shard 1") {
		t.Error(err)
	}
	reading := v.NewShard()
	add(t, reading, at(0, "x"))
	behind, err := reading.Present(o.Wanted(0))
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := o.Present(map[uint32][]byte{0: behind, 1: old}, math.MaxInt); err == nil {
		t.Error("the values of a leader that is reading its log are present")
	}
}

// TestAViewWithoutWindows: has its values on request, over all messages, and its triggers judge
// these. Nothing closes.
func TestAViewWithoutWindows(t *testing.T) {
	spec := counting()
	spec.Window = Window{}
	spec.Triggers = []trigger.Spec{{Name: "many", When: "n >= 3.0"}}
	v := compiled(t, spec)
	a, b, o := v.NewShard(), v.NewShard(), owner(t, v, 0, 1)
	set := v.Triggers()
	judge := func(want int) {
		t.Helper()
		all := map[uint32][]byte{}
		for i, s := range []*Shard{a, b} {
			var err error
			if all[uint32(i)], err = s.Present(o.Wanted(uint32(i))); err != nil {
				t.Fatal(err)
			}
		}
		rows, offsets, err := o.Present(all, math.MaxInt)
		if err != nil {
			t.Fatal(err)
		}
		alerts, err := set.JudgePresent(rows, offsets)
		if err != nil || len(alerts) != want {
			t.Errorf("%d alerts, want %d: %v", len(alerts), want, err)
		}
	}
	add(t, a, at(5, "x"), at(900, "x"))
	judge(0)
	add(t, b, at(3, "x"), at(3, "y"))
	take(t, o, 0, a)
	take(t, o, 1, b)
	closes(t, o, "")
	if got, _ := present(t, o, a, b); got != "3-3 y 1, 3-900 x 3" && got != "3-900 x 3, 3-3 y 1" {
		t.Error(got)
	}
	judge(1)
	judge(0)
	b, o = v.NewShard(), owner(t, v, 0, 1) // a new owner, and a leader that reads its log
	judge(0)
	add(t, b, at(3, "x"), at(3, "y"))
	judge(0)
	if a.Held() != 1 || b.Held() != 2 || a.Counts().Late+b.Counts().Late > 0 {
		t.Errorf("%d and %d keys", a.Held(), b.Held())
	}
}

// TestShardsComeAndGo: one that is added begins where the others are, and one that is removed has
// handed over all.
func TestShardsComeAndGo(t *testing.T) {
	v := compiled(t, counting())
	a, b, o := v.NewShard(), v.NewShard(), owner(t, v, 0)
	add(t, a, at(0, "x"), at(2, "x"))
	closes(t, o, "") // nothing was heard
	take(t, o, 0, a)
	closes(t, o, "0-1 x 1")
	floor, err := o.AddShard(1)
	if err != nil || floor != o.Watermark() {
		t.Fatal(floor, err)
	}
	add(t, a, at(5, "x"))
	take(t, o, 0, a)
	closes(t, o, "") // until shard 1 is heard
	if err := b.Advance(0, floor); err != nil {
		t.Fatal(err)
	}
	add(t, b, at(0.5, "x"), at(2.5, "x"), at(3, "x"))
	if b.Counts().Late != 1 {
		t.Errorf("%+v", b.Counts())
	}
	take(t, o, 1, b)
	closes(t, o, "2-3 x 2")
	if err := o.RemoveShard(0); err == nil {
		t.Error("a shard with open windows is removed")
	}
	if err := a.Advance(a.Next(), Everything); err != nil {
		t.Fatal(err)
	}
	take(t, o, 0, a)
	closes(t, o, "")
	if err := o.RemoveShard(0); err == nil {
		t.Error("a shard with windows that are not acknowledged is removed")
	}
	add(t, b, at(9, "x"))
	take(t, o, 1, b)
	closes(t, o, "3-4 x 1, 5-6 x 1")
	acked(t, o, 0, a)
	take(t, o, 0, a)
	if err := o.RemoveShard(0); err != nil {
		t.Error(err)
	}
	if err := o.Take(0, nil); err == nil || !strings.Contains(err.Error(), "shard 0 is none of the view's") {
		t.Error(err)
	}
	unruly := v.NewShard() // without an advance to the floor
	if _, err := o.AddShard(2); err != nil {
		t.Fatal(err)
	}
	acked(t, o, 2, unruly) // it has handed over nothing
	add(t, unruly, at(1, "x"), at(1, "x"), at(9, "x"), at(10, "x"))
	take(t, o, 2, unruly)
	add(t, b, at(10, "x"))
	take(t, o, 1, b)
	closes(t, o, "9-10 x 2")
	if c := o.Counts(); c.Late != 2+1 {
		t.Errorf("%+v", c)
	}
}

// TestSessionsThatWereJoinedMeanwhileAreNotMergedTwice: another owner's acknowledgement has a shard
// join sessions, and this owner has one of them. It is also replaced if leadership moves to a copy
// of the shard that lacks the acknowledgement: it would miss a session.
func TestSessionsThatWereJoinedMeanwhileAreNotMergedTwice(t *testing.T) {
	spec := counting()
	spec.Window = Window{Session: time.Second, Time: "json.t"}
	v := compiled(t, spec)
	a, b := v.NewShard(), v.NewShard()
	old, next, last := owner(t, v, 0, 1), owner(t, v, 0, 1), owner(t, v, 0, 1)
	add(t, b, at(0, "x"), at(0.8, "x"), at(1.6, "x"), at(2.4, "x"), at(3.2, "x"), at(3.5, "y"), at(4, "x"))
	add(t, a, at(0, "x"), at(2.75, "y"), at(3, "x"))
	take(t, next, 0, a) // the first session
	add(t, a, at(6, "x"))
	before, err := a.Encode()
	if err != nil {
		t.Fatal(err)
	}
	take(t, old, 0, a)
	take(t, old, 1, b)
	closes(t, old, "")
	acked(t, old, 0, a)
	page, err := a.handOver(next.Wanted(0), 1)
	if err != nil {
		t.Fatal(err)
	}
	if err := next.Take(0, page); err != ErrReplaced {
		t.Error(err)
	}
	first, err := a.handOver(last.Wanted(0), 1)
	if err == nil {
		err = last.Take(0, first)
	}
	if err != nil || last.Wanted(0).End != 4e9 {
		t.Fatal(last.Wanted(0), err)
	}
	restored, err := v.DecodeShard(before)
	if err != nil {
		t.Fatal(err)
	}
	if b, err := restored.HandOver(last.Wanted(0)); err != nil || last.Take(0, b) != ErrReplaced {
		t.Error("a leader without the acknowledgement goes on")
	}
	add(t, b, at(9, "x"))
	anew := owner(t, v, 0, 1)
	take(t, anew, 0, a)
	take(t, anew, 1, b)
	closes(t, anew, "2.75-4.5 y 2, 0-5 x 8")
}

// TestAnOwnerIsReplacedOnceAnotherAcknowledges: it would never see what raised an alert since it
// has read the outputs, and so would not clear it.
func TestAnOwnerIsReplacedOnceAnotherAcknowledges(t *testing.T) {
	v := compiled(t, counting())
	s, old, next := v.NewShard(), owner(t, v, 0), owner(t, v, 0)
	take(t, old, 0, s)
	take(t, next, 0, s) // and reads the outputs
	add(t, s, at(0, "x"), at(1, "x"))
	take(t, old, 0, s)
	closes(t, old, "0-1 x 1") // and writes it, and an alert
	acked(t, old, 0, s)
	add(t, s, at(2, "x"))
	b, err := s.HandOver(next.Wanted(0))
	if err == nil {
		err = next.Take(0, b)
	}
	if err != ErrReplaced {
		t.Error(err)
	}
	if b, err = s.Present(next.Wanted(0)); err == nil {
		_, _, err = next.Present(map[uint32][]byte{0: b}, math.MaxInt)
	}
	if err != ErrReplaced {
		t.Error(err)
	}
	if err := next.Begin(nil); err == nil {
		t.Error("an owner begins twice")
	}
	take(t, old, 0, s) // its own acknowledgement is no other's
	closes(t, old, "1-2 x 1")
	if early := owner(t, v, 0); early.Begin(nil) == nil {
		t.Error("an owner begins that has heard nothing")
	}
}

// TestAGapIsRefused: windows that a hand-over leaves out would never be in the results.
func TestAGapIsRefused(t *testing.T) {
	v := compiled(t, counting())
	s, o := v.NewShard(), owner(t, v, 0)
	add(t, s, at(0, "x"), at(1, "x"), at(2, "x"))
	b, err := s.HandOver(Position{End: 2e9})
	if err != nil {
		t.Fatal(err)
	}
	if err := o.Take(0, b); err == nil || o.Wanted(0) != begin {
		t.Error(err)
	}
	if _, err := v.NewOwner(make([]uint32, maxShards+1)); err != nil {
		t.Error(err) // all of them are shard 0
	}
	for i := range uint32(maxShards) {
		_, err = o.AddShard(i + 1)
	}
	if err == nil {
		t.Error("too many shards are added")
	}
}

// TestAShardThatOthersWaitForGivesWholePages: also when the owner has no room, if shards are few.
// The shard would make and send each page hundreds of times.
func TestAShardThatOthersWaitForGivesWholePages(t *testing.T) {
	v := compiled(t, counting())
	ahead, behind, o := v.NewShard(), v.NewShard(), owner(t, v, 0, 1)
	o.most = 10
	for i := range 3000 {
		add(t, behind, at(0, fmt.Sprint(i)))
	}
	add(t, behind, at(1, "x"))
	add(t, ahead, at(0, "x"), at(1, "x"))
	take(t, o, 0, ahead)
	take(t, o, 1, behind)
	if want := (Position{End: 1e9 + 1}); o.Wanted(1) != want {
		t.Errorf("handed over up to %v", o.Wanted(1))
	}
	if n := len(o.Close()); n != 3001 {
		t.Errorf("%d results", n)
	}
	for i := range uint32(maxShards - 2) {
		if _, err := o.AddShard(i + 2); err != nil {
			t.Fatal(err)
		}
	}
	late := v.NewShard() // one of many
	for i := range 3000 {
		add(t, late, at(2, fmt.Sprint(i)))
	}
	add(t, late, at(3, "x"))
	take(t, o, 2, late)
	if n := o.pending.Len(); n == 0 || n > 30 {
		t.Errorf("%d windows are taken of one of %d shards", n, maxShards)
	}
}

// TestAnOwnerWithoutRoomGoesOn: a shard that is ahead waits, and others give less at a time. Its
// size is what it has taken.
func TestAnOwnerWithoutRoomGoesOn(t *testing.T) {
	v := compiled(t, counting())
	ahead, behind, o := v.NewShard(), v.NewShard(), owner(t, v, 0, 1)
	for i := range 3000 {
		add(t, ahead, at(0, fmt.Sprint(i)))
		add(t, behind, at(0, fmt.Sprint(i)))
	}
	add(t, ahead, at(1, "x"))
	add(t, behind, at(1, "x"))
	o.Room(0)
	steps, results, most := 0, 0, 0
	for ; results < 3000 && steps < 1000; steps++ {
		for n, s := range []*Shard{ahead, behind} {
			b, err := s.HandOverPage(o.Wanted(uint32(n)), 0)
			if err != nil {
				t.Fatal(err)
			}
			if err = o.Take(uint32(n), b); err != nil && err != ErrCrowded {
				t.Fatal(err)
			}
			most = max(most, o.Size())
		}
		if !o.begun {
			if err := o.Begin(nil); err != nil {
				t.Fatal(err)
			}
		}
		results += len(o.Close())
	}
	if results != 3000 || steps < 10 || most > 3*leastSpare {
		t.Errorf("%d results after %d steps, with up to %d bytes", results, steps, most)
	}
	if n := o.Size(); n > 100 {
		t.Errorf("an owner without windows takes %d bytes", n)
	}
	b, err := ahead.HandOverPage(begin, 1)
	if err != nil || len(b) < leastPage/20 || len(b) > leastPage {
		t.Errorf("a page of the least size has %d bytes: %v", len(b), err)
	}
	all := map[uint32][]byte{}
	for n, s := range []*Shard{ahead, behind} {
		if all[uint32(n)], err = s.Present(o.Wanted(uint32(n))); err != nil {
			t.Fatal(err)
		}
	}
	if _, _, err := o.Present(all, 10); err != ErrRoom {
		t.Error(err)
	}
}

// TestPresentValuesHaveTheRoomThatTheyNeed: however many values are of the same field.
func TestPresentValuesHaveTheRoomThatTheyNeed(t *testing.T) {
	for _, window := range []Window{{}, {Sliding: &Sliding{Size: 10 * time.Second, Every: time.Second}, Time: "json.t"}} {
		for _, n := range []int{1, maxValues} {
			spec := Spec{By: "json.k", Window: window, Values: map[string]string{}}
			for i := range n {
				spec.Values[fmt.Sprint("v", i)] = "count()"
			}
			v := compiled(t, spec)
			s, o := v.NewShard(), owner(t, v, 0)
			for i := range 500 {
				add(t, s, at(0, fmt.Sprint(i)))
			}
			take(t, o, 0, s)
			b, err := s.Present(o.Wanted(0))
			if err != nil {
				t.Fatal(err)
			}
			rows, _, err := o.Present(map[uint32][]byte{0: b}, int(v.PresentBytes(int64(s.Size()))))
			if err != nil || len(rows) < 500 {
				t.Errorf("%d values: %d rows, %v", n, len(rows), err)
			}
			if most := v.PresentBytes(int64(s.Size())); int64(v.RowsBytes(rows)) > most {
				t.Errorf("%d values: the rows take %d bytes of %d", n, v.RowsBytes(rows), most)
			}
		}
	}
}

func BenchmarkAdd(b *testing.B) {
	spec := Spec{
		Filter: Filter{Subjects: []string{"s"}}, By: "json.k", Window: Window{Tumbling: time.Second},
		Values: map[string]string{"mean": "mean(json.n)", "readings": "count()"},
	}
	s := compiled(b, spec).NewShard()
	r := at(1, "room-410")
	r.Data = fmt.Appendf(nil, `{"k":"room-410","n":21.5,"rest":%q}`, strings.Repeat("x", 160))
	b.ReportAllocs()
	for b.Loop() {
		if err := s.Add(s.Next(), r); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkWindow is the cost of a window of 1,000 keys from two shards, from the first record to
// the acknowledgement.
func BenchmarkWindow(b *testing.B) {
	v := compiled(b, counting())
	s, o := []*Shard{v.NewShard(), v.NewShard()}, owner(b, v, 0, 1)
	second := 0
	for b.Loop() {
		second++
		for shard, s := range s {
			for i := range 1000 {
				add(b, s, at(float64(second), fmt.Sprint(i)))
			}
			take(b, o, uint32(shard), s)
		}
		o.Close()
		for shard, s := range s {
			acked(b, o, uint32(shard), s)
		}
	}
}
