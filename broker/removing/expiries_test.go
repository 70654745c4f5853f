package removing

import (
	"errors"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/carillon-mq/carillon/broker/log"
	"github.com/carillon-mq/carillon/broker/removal"
)

// expire appends a record that expires at a time, and returns its offset.
func (k *keeping) expire(at int64) uint64 {
	k.t.Helper()
	_, end, _ := k.data.Offsets()
	k.batch.Expire(k.epoch, end, at)
	k.publish()
	return end
}

// due fails the test if other records have expired by a time than those wanted, for this leader or
// for the next one.
func (k *keeping) due(when string, now int64, want ...uint64) {
	k.t.Helper()
	if got := k.keeper.Due(now, 100); !slices.Equal(got, want) {
		k.t.Errorf("%s: due are %v, want %v", when, got, want)
	}
	var next Keeper
	if err := next.Init(Config{State: k.state, Data: k.data, Append: k.append, Changed: func() {}, Now: func() int64 { return 1 }}); err != nil {
		k.t.Fatal(err)
	}
	if got := next.Due(now, 100); !slices.Equal(got, want) {
		k.t.Errorf("%s: due for the next leader are %v, want %v", when, got, want)
	}
}

func (k *keeping) remove(offset uint64) {
	k.t.Helper()
	if err := k.keeper.Remove(k.keeper.Spans([]uint64{offset}), 1, 1000, log.Memory, func(error) {}); err != nil {
		k.t.Fatal(err)
	}
}

// TestRecordsAreDueUntilTheyAreRemoved: whichever leader asks, and wherever it has the expiries
// from.
func TestRecordsAreDueUntilTheyAreRemoved(t *testing.T) {
	for name, between := range map[string]func(k *keeping){
		"from batches":       func(*keeping) {},
		"from the state log": func(k *keeping) { k.keeper.Appended(takenData); k.commit() },
		"from the state log of the next leader": func(k *keeping) {
			k.lead()
			k.keeper.Appended(takenData)
			k.commit()
		},
		"from a snapshot": func(k *keeping) { k.snapshot(func() {}) },
		"from a snapshot of the next leader": func(k *keeping) {
			k.lead()
			k.snapshot(func() {})
		},
		"from a snapshot, and batches": func(k *keeping) {
			k.snapshot(func() { k.batch.AddFrom(k.data, 1, 2); k.publish(); k.commit() })
		},
		"taken over while it is snapshot": func(k *keeping) {
			k.hold = true
			k.keeper.Appended(takenData)
			k.commit()
			k.snapshot(func() {})
			k.hold = false
			k.release(nil)
		},
	} {
		t.Run(name, func(t *testing.T) {
			k := newKeeping(t)
			k.marked()
			a, b, c := k.expire(30), k.expire(10), k.expire(20)
			if got := k.keeper.Due(100, 100); len(got) > 0 {
				t.Errorf("%v are due before they are committed", got)
			}
			k.commit()
			between(k)
			k.due("none", 9)
			k.due("the first", 10, b)
			between(k) // due ones are in a snapshot, too
			k.due("two", 25, b, c)
			k.remove(b)
			k.due("one is removed", 25, c)
			between(k)
			k.due("all that are left", 30, a, c)
			k.due("the time was corrected", 20, c)
			k.lead()
			k.remove(c)
			k.due("the last one", 1000, a)
		})
	}
}

// TestExpiriesOfABatchThatIsNotAppended: other records get the offsets, and other removals stay.
func TestExpiriesOfABatchThatIsNotAppended(t *testing.T) {
	k := newKeeping(t)
	k.marked()
	k.publish(2)
	_, end, _ := k.data.Offsets()
	k.batch.Expire(k.epoch, end, 5)
	k.batch.Expire(k.epoch, end+1, 5)
	if _, carries := k.batch.Carry(k.keeper, end+2, nil); !carries {
		t.Error("it carries nothing")
	}
	k.keeper.Forget()
	k.batch.Reset()
	k.publish()
	a := k.expire(7)
	k.commit()
	k.removed("afterwards", "2-2")
	k.due("afterwards", 100, a)
}

// TestExpiriesAreTakenOverAgain: what could not be written to the state log is written later.
func TestExpiriesAreTakenOverAgain(t *testing.T) {
	k := newKeeping(t)
	k.marked()
	a := k.expire(5)
	k.keeper.Appended(takenData)
	k.refuse = errors.New("overloaded")
	k.commit()
	k.refuse = nil
	b := k.expire(6)
	k.keeper.Appended(takenData)
	k.commit()
	if taken := k.keeper.Taken(); taken != b+1 {
		t.Errorf("taken over up to %d", taken)
	}
	k.due("afterwards", 100, a, b)
}

// TestExpiriesOfOtherRecordsCountNot: an election lost the records, and others have their offsets.
func TestExpiriesOfOtherRecordsCountNot(t *testing.T) {
	k := newKeeping(t)
	k.marked()
	item := removal.AppendExpiries(nil, removal.Expiry{Epoch: 2, Offset: 7, At: 1}, removal.Expiry{Epoch: 3, Offset: 8, At: 1}, removal.Expiry{Epoch: 3, Offset: 100, At: 1})
	appendItem(t, k.state, item)
	k.lead()
	k.due("of this epoch", 100, 8)
	appendItem(t, k.state, item[:len(item)-1])
	var set removal.Set
	if err := loadAll(k.state, k.data, &set); !errors.Is(err, removal.ErrMalformed) {
		t.Error(err)
	}
}

// TestExpiriesOfRemovedRecordsAreForgotten: subjects get new values all the time, and what is held
// is bounded by those that are left.
func TestExpiriesOfRemovedRecordsAreForgotten(t *testing.T) {
	var x expiries
	gone := map[uint64]bool{}
	has := func(offset uint64) bool { return gone[offset] }
	for offset := uint64(1); offset < 100*sweepFrom; offset++ {
		x.add([]removal.Expiry{{Offset: offset, At: int64(rand.N(1000))}}, offset, offset+1)
		x.commit(offset+1, has)
		x.untaken = x.untaken[:0]
		if offset > 10 {
			gone[offset-10] = true
		}
		if x.len() > 2*sweepFrom {
			t.Fatalf("%d are held of 10", x.len())
		}
	}
	want := []uint64{}
	for offset := uint64(100*sweepFrom - 10); offset < 100*sweepFrom; offset++ {
		want = append(want, offset)
	}
	if got := x.expire(1000, 100, has); !slices.Equal(got, want) {
		t.Errorf("due are %v, want %v", got, want)
	}
	x = expiries{}
	for offset := range uint64(1000) {
		x.push(expiry{at: int64(rand.N(100)), offset: offset})
	}
	for last := int64(0); len(x.heap) > 0; {
		e := x.pop()
		if e.at < last {
			t.Fatal("out of order")
		}
		last = e.at
	}
}

// TestAnExpiryMoves: a later batch says another time. Until that is committed the former one holds,
// and is known to be replaced; a batch that is not appended changes nothing.
func TestAnExpiryMoves(t *testing.T) {
	k := newKeeping(t)
	k.marked()
	a, b := k.expire(10), k.expire(20)
	k.commit()
	k.due("at first", 10, a)
	if at := k.keeper.DueAt(a); at != 10 {
		t.Errorf("it is due at %d", at)
	}
	_, end, _ := k.data.Offsets()
	k.batch.Expire(k.epoch, a, 30)
	if !k.batch.Touches(a) || k.batch.Touches(b) {
		t.Error("the batch does not know what it carries")
	}
	k.batch.Carry(k.keeper, end+1, nil)
	k.keeper.Forget()
	k.batch.Reset()
	if k.due("not appended", 10, a); k.keeper.DueAt(a) != 10 {
		t.Error("it has moved")
	}
	k.batch.Expire(k.epoch, a, 30)
	k.publish()
	if k.keeper.DueAt(a) != 0 {
		t.Error("it is due although it was moved")
	}
	k.commit()
	k.due("moved", 29, b)
	k.snapshot(func() {})
	k.due("moved, from a snapshot", 29, b)
	k.lead()
	k.due("all", 30, a, b)
	k.batch.Expire(k.epoch, a, 40)
	k.publish()
	k.keeper.Appended(takenData)
	k.commit()
	k.due("moved again, from the state log", 39, b)
	k.remove(a)
	k.due("removed", 100, b)
	if len(k.keeper.expiries.moved) > 0 {
		t.Error("what was removed is still remembered")
	}
}

// TestAnExpiryMovesAgainBeforeItIsCommitted: a schedule's message is under way when another message
// ends the schedule. The earlier batch is not forgotten with the later one, nor the later one when
// the earlier one is committed.
func TestAnExpiryMovesAgainBeforeItIsCommitted(t *testing.T) {
	k := newKeeping(t)
	k.marked()
	a := k.expire(10)
	k.commit()
	k.due("at first", 10, a)
	k.batch.Expire(k.epoch, a, 20)
	k.publish()
	_, end, _ := k.data.Offsets()
	k.batch.Expire(k.epoch, a, 30)
	k.batch.Carry(k.keeper, end+1, nil)
	k.keeper.Forget()
	k.batch.Reset()
	if at := k.keeper.DueAt(a); at != 0 {
		t.Errorf("it is due at %d although it was moved", at)
	}
	_, first, _ := k.data.Offsets()
	k.batch.Expire(k.epoch, a, 30)
	k.publish()
	k.keeper.Commit(first, log.Memory)
	k.keeper.Due(20, 100)
	if at := k.keeper.DueAt(a); at != 0 {
		t.Errorf("it is due at %d although it moves on", at)
	}
	k.commit()
	k.due("both are", 29)
	k.due("at last", 30, a)
	if len(k.keeper.expiries.moving) > 0 {
		t.Error("what is committed is still moving")
	}
}

// TestTooManyExpiries: once as many records expire as may, no more are taken until some are gone.
func TestTooManyExpiries(t *testing.T) {
	k := newKeeping(t)
	k.marked()
	a := k.expire(5)
	k.commit()
	for offset := range uint64(MaxExpiries - 1) {
		k.keeper.expiries.push(expiry{at: 1 << 40, offset: 1<<40 + offset})
	}
	if k.keeper.Due(1, 100); k.keeper.MayExpire() {
		t.Error("one more is taken")
	}
	k.remove(a)
	if k.keeper.Due(1, 100); !k.keeper.MayExpire() {
		t.Error("none is taken though one was removed")
	}
}

func BenchmarkExpiries(b *testing.B) {
	var x expiries
	none := func(uint64) bool { return false }
	offset := uint64(0)
	one := make([]removal.Expiry, 1)
	for b.Loop() {
		offset++
		one[0] = removal.Expiry{Offset: offset, At: int64(offset % 100_000)}
		x.add(one, offset, offset+1)
		x.commit(offset+1, none)
		if x.untaken = x.untaken[:0]; x.len() >= 100_000 {
			x.pop()
		}
	}
}
