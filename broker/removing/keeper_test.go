package removing

import (
	"errors"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/carillon-mq/carillon/broker/log"
	"github.com/carillon-mq/carillon/broker/removal"
)

// keeping is a Keeper over the logs of one copy. A test says when appends to the state log are on
// all in-sync replicas.
type keeping struct {
	t           *testing.T
	state, data *log.Log
	keeper      *Keeper
	hold        bool
	held        []held // while hold
	epoch       uint64
	refuse      error // of appends to the state log
	batch       Batch
}

// held is an append to the state log that is not on all in-sync replicas.
type held struct {
	first uint64
	done  func(error)
}

// newKeeping returns a Keeper over logs with ten records, as copyLogs makes them.
func newKeeping(t *testing.T) *keeping {
	t.Helper()
	k := &keeping{t: t}
	k.state, k.data = copyLogs(t)
	k.lead()
	return k
}

// lead begins another leadership over the same logs.
func (k *keeping) lead() {
	k.t.Helper()
	k.keeper, k.held, k.epoch = &Keeper{}, nil, max(3, k.epoch+1)
	if err := k.keeper.Init(Config{State: k.state, Data: k.data, Append: k.append, Changed: func() {}, Now: func() int64 { return 1 }}); err != nil {
		k.t.Fatal(err)
	}
	k.keeper.size.Store(0) // tests say when Items are taken over
}

func (k *keeping) append(a *log.Append) (uint64, error) {
	if k.refuse != nil {
		return 0, k.refuse
	}
	first, err := k.state.Append(&log.Append{Epoch: k.epoch, Records: a.Records})
	if err != nil {
		return 0, err
	}
	done := func(err error) { a.Done.Committed(first, first+uint64(len(a.Records)), err) }
	if k.hold {
		k.held = append(k.held, held{first, done})
	} else {
		done(nil)
	}
	return first, nil
}

// release completes the appends that are held.
func (k *keeping) release(err error) {
	all := k.held
	k.held = nil
	for _, h := range all {
		h.done(err)
	}
}

// publish appends a record that removes others, by offset.
func (k *keeping) publish(removes ...uint64) {
	k.t.Helper()
	_, end, _ := k.data.Offsets()
	for _, offset := range removes {
		k.batch.AddFrom(k.data, offset, offset+1)
	}
	extensions, _ := k.batch.Carry(k.keeper, end+1, nil)
	if _, err := k.data.Append(&log.Append{Epoch: k.epoch, Records: []log.Record{{Data: []byte("a record")}}, Extensions: extensions}); err != nil {
		k.t.Fatal(err)
	}
	k.batch.Reset()
	k.keeper.Appended(8)
}

// commit has all of the data log on all in-sync replicas.
func (k *keeping) commit() {
	_, end, _ := k.data.Offsets()
	k.keeper.Commit(end, log.Memory)
}

// marked has a Mark in the state log.
func (k *keeping) marked() {
	k.t.Helper()
	_, end, _ := k.data.Offsets()
	k.keeper.Mark(end, log.Memory, func() {})
	if !k.keeper.Marked() {
		k.t.Fatal("there is no Mark")
	}
}

// removed fails the test if the set, or the one that the next leader loads, is not as wanted.
func (k *keeping) removed(when string, want ...string) {
	k.t.Helper()
	if got := ranges(k.keeper.Set()); !slices.Equal(got, want) {
		k.t.Errorf("%s: removed are %v, want %v", when, got, want)
	}
	var loaded removal.Set
	if err := loadAll(k.state, k.data, &loaded); err != nil {
		k.t.Fatal(err)
	}
	if got := ranges(&loaded); !slices.Equal(got, want) {
		k.t.Errorf("%s: the next leader has removed %v, want %v", when, got, want)
	}
}

// snapshot has the state log lose all but a snapshot.
func (k *keeping) snapshot(between func()) {
	k.t.Helper()
	k.state.Roll()
	_, mark, _ := k.state.Offsets()
	between()
	for r := range k.keeper.Snapshot() {
		if _, err := k.state.Append(&log.Append{Epoch: k.epoch, Records: []log.Record{r}}); err != nil {
			k.t.Fatal(err)
		}
	}
	if _, err := k.state.Trim(mark); err != nil {
		k.t.Fatal(err)
	}
	if start := k.state.Start(); start != mark {
		k.t.Fatalf("the state log begins with %d, want %d", start, mark)
	}
}

// TestABatchRemovesWhenItIsCommitted: a removal counts once its batch is on all in-sync replicas,
// and what a batch removes that was not appended doesn't count.
func TestABatchRemovesWhenItIsCommitted(t *testing.T) {
	k := newKeeping(t)
	k.marked()
	k.publish(2)
	if got := ranges(k.keeper.Set()); len(got) > 0 {
		t.Errorf("removed before the batch is committed: %v", got)
	}
	_, end, _ := k.data.Offsets()
	k.batch.AddFrom(k.data, 3, 4)
	k.batch.Carry(k.keeper, end+1, nil)
	k.keeper.Forget() // the append failed
	k.batch.Reset()
	k.publish(7)
	k.keeper.Commit(end, log.Memory)
	if got := ranges(k.keeper.Set()); !slices.Equal(got, []string{"2-2"}) {
		t.Errorf("removed by the first batch: %v", got)
	}
	k.commit()
	k.removed("both are committed", "2-2", "7-7")
	k.lead()
	k.removed("after a change of the leader", "2-2", "7-7")
}

// TestALimitThatIsNotedLosesNoRemoval: what batches have removed since Items were taken over is not
// in the state log when a limit is written to it.
func TestALimitThatIsNotedLosesNoRemoval(t *testing.T) {
	for name, note := range map[string]func(k *Keeper){
		"limited": func(k *Keeper) {
			if err := k.Limited(2, k.turn, log.Memory); err != nil {
				t.Error(err)
			}
		},
		"raised":  func(k *Keeper) { k.Raise(7, log.Memory) },
		"unknown": func(k *Keeper) { k.Raise(0, log.Memory) },
	} {
		k := newKeeping(t)
		k.marked()
		k.keeper.limit = 5
		k.publish(2)
		k.commit()
		note(k.keeper)
		k.removed(name, "2-2")
		k.publish(3)
		note(k.keeper)
		k.commit()
		k.removed(name+" before the batch is committed", "2-3")
	}
}

// TestTheFirstMarkOutlivesASnapshot: the Mark is on its way to the replicas while the state log is
// written anew.
func TestTheFirstMarkOutlivesASnapshot(t *testing.T) {
	for name, mark := range map[string]func(k *Keeper){
		"mark":    func(k *Keeper) { k.Mark(11, log.Memory, func() {}) },
		"limited": func(k *Keeper) { _ = k.Limited(2, k.turn, log.Memory) },
	} {
		k := newKeeping(t)
		k.hold = true
		mark(k.keeper)
		k.snapshot(func() {})
		k.hold = false
		k.release(nil)
		k.marked()
		k.publish(2)
		k.commit()
		k.removed(name, "2-2")
	}
}

// TestTheFirstMarkSparesTheNextLeader: it doesn't read what precedes the Mark, also if that was
// written for a limit.
func TestTheFirstMarkSparesTheNextLeader(t *testing.T) {
	k := newKeeping(t)
	if err := k.keeper.Limited(2, k.keeper.turn, log.Memory); err != nil || !k.keeper.Marked() {
		t.Fatal(err)
	}
	if k.lead(); k.keeper.Taken() != 11 {
		t.Errorf("it reads from offset %d on", k.keeper.Taken())
	}
}

// TestAMarkThatIsRefused: a message that waits for a Mark is judged again, and then another one is
// written.
func TestAMarkThatIsRefused(t *testing.T) {
	k := newKeeping(t)
	called := 0
	k.refuse = errors.New("overloaded")
	for range 2 {
		k.keeper.Mark(11, log.Memory, func() { called++ })
	}
	k.refuse, k.hold = nil, true
	for range 2 { // the second one is told at once
		k.keeper.Mark(11, log.Memory, func() { called++ })
	}
	if called != 3 || k.keeper.Marked() {
		t.Errorf("told %d times, and marked: %v", called, k.keeper.Marked())
	}
	k.release(errors.New("leadership ended"))
	if k.keeper.Marked() {
		t.Error("marked though that failed")
	}
	k.keeper.Mark(11, log.Memory, func() { called++ })
	k.release(nil)
	if called != 5 || !k.keeper.Marked() {
		t.Errorf("told %d times, and marked: %v", called, k.keeper.Marked())
	}
}

// TestItemsAreTakenOverAgain: what could not be written to the state log is written with the next
// one, and until then files keep what batches carry.
func TestItemsAreTakenOverAgain(t *testing.T) {
	k := newKeeping(t)
	k.marked()
	k.commit()
	before := k.keeper.Taken()
	k.publish(1, 2, 3)
	k.keeper.Appended(takenData)
	k.refuse = errors.New("overloaded")
	k.commit()
	if taken := k.keeper.Taken(); taken != before {
		t.Errorf("taken over up to %d", taken)
	}
	k.removed("while nothing can be written", "1-3")
	k.refuse, k.hold = nil, true
	k.publish(4)
	k.keeper.Appended(takenData)
	k.commit()
	if taken := k.keeper.Taken(); taken != before {
		t.Errorf("taken over up to %d before the Mark is committed", taken)
	}
	k.publish(9)
	k.commit()
	k.release(nil)
	if taken := k.keeper.Taken(); taken != 13 {
		t.Errorf("taken over up to %d", taken)
	}
	k.removed("afterwards", "1-4", "9-9")
	var set removal.Set
	_, stateEnd, _ := k.state.Offsets()
	if loaded, err := Load(k.state, k.data, stateEnd, 14, false, &set); err != nil || loaded.Taken != 13 || !slices.Equal(ranges(&set), []string{"1-4"}) {
		t.Errorf("the state log has %v up to %d (%v)", ranges(&set), loaded.Taken, err)
	}
}

// TestAMarkOfOtherRecordsCountsNot: an election lost the records in front of the Mark, and others
// have their offsets, so what these have removed is not in the state log (K5).
func TestAMarkOfOtherRecordsCountsNot(t *testing.T) {
	for name, m := range map[string]removal.Mark{
		"of another epoch":                   {Epoch: 2, Below: 11, Limit: 4},
		"behind the end":                     {Epoch: 3, Below: 100, Limit: 4},
		"of a log that had lost all records": {Epoch: 0, Below: 12, Limit: 4},
	} {
		k := newKeeping(t)
		k.marked()
		k.publish(2)
		k.publish(8)
		k.commit()
		record := log.Record{Subject: []byte(removal.Subject), Data: removal.AppendItem(nil), Attributes: removal.AppendMark(nil, m)}
		if _, err := k.state.Append(&log.Append{Epoch: k.epoch, Records: []log.Record{record}}); err != nil {
			t.Fatal(err)
		}
		k.removed(name, "2-2", "8-8")
		if k.lead(); k.keeper.limit != 4 {
			t.Errorf("%s: the limit is %d", name, k.keeper.limit)
		}
	}
}

// TestLimitsThatChange: limits are enforced that were lowered, and no limit is taken for enforced
// that publishes did not keep to meanwhile.
func TestLimitsThatChange(t *testing.T) {
	k := newKeeping(t)
	want := func(when string, limit, enforce uint64) {
		t.Helper()
		if got, _ := k.keeper.Limiting(limit, 1000); got != enforce {
			t.Errorf("%s: %d is enforced for a limit of %d", when, got, limit)
		}
	}
	enforced := func(limit, turn uint64) {
		t.Helper()
		if err := k.keeper.Limited(limit, turn, log.Memory); err != nil {
			t.Fatal(err)
		}
	}
	k.keeper.Raise(5, log.Memory)
	want("not known yet", 5, 5)
	_, turn := k.keeper.Limiting(5, 1000)
	enforced(5, turn)
	want("enforced", 5, 0)
	want("raised later", 10, 0)
	want("lowered", 3, 3)
	want("no limit", 0, 0)
	k.lead()
	k.keeper.Raise(5, log.Memory)
	want("the next leader", 5, 0)

	k.keeper.Raise(10, log.Memory)
	want("raised", 10, 0)
	want("raised and lowered", 5, 5)
	k.lead()
	k.keeper.Raise(5, log.Memory)
	want("raised and lowered, the next leader", 5, 5)

	_, turn = k.keeper.Limiting(5, 1000)
	k.keeper.Raise(0, log.Memory) // a message was kept whose subject was not known
	enforced(5, turn)
	want("a message was kept meanwhile", 5, 5)
	_, turn = k.keeper.Limiting(5, 1000)
	k.keeper.Raise(10, log.Memory)
	enforced(5, turn)
	want("raised while it was enforced", 5, 5)
	_, turn = k.keeper.Limiting(5, 1000)
	k.keeper.Raise(5, log.Memory)
	enforced(5, turn)
	_, turn = k.keeper.Limiting(5, 1000)
	enforced(5, turn)
	want("at last", 5, 0)
}

// TestRecordsUnderWayAreLimited: a record that was kept beyond the limit is not readable yet, so a
// limit that is enforced before doesn't concern it.
func TestRecordsUnderWayAreLimited(t *testing.T) {
	k := newKeeping(t)
	k.keeper.Raise(0, log.Memory)
	_, turn := k.keeper.Limiting(1, 1000)
	k.publish() // offset 11
	if err := k.keeper.Limited(1, turn, log.Memory); err != nil {
		t.Fatal(err)
	}
	if limit, _ := k.keeper.Limiting(1, 11); limit > 0 {
		t.Error("it is enforced before the record is readable")
	}
	k.publish() // is not waited for
	if limit, _ := k.keeper.Limiting(1, 12); limit != 1 {
		t.Error("it is not enforced")
	}
}

// TestABatchThatIsJudgedEndsNoSearch: what was found between the judging of a record that may be
// beyond its limit and its append says nothing of it, and it is looked for once it is readable.
func TestABatchThatIsJudgedEndsNoSearch(t *testing.T) {
	k := newKeeping(t)
	k.marked()
	k.keeper.Raise(1, log.Memory)
	k.batch.Unlimited(k.keeper, log.Memory)
	limit, turn := k.keeper.Limiting(1, 11)
	if limit != 1 {
		t.Fatal("the records before it are not looked at")
	}
	if err := k.keeper.Limited(1, turn, log.Memory); err != nil { // it is in no log yet
		t.Fatal(err)
	}
	extensions, some := k.batch.Carry(k.keeper, 12, nil)
	if limit, _ := k.keeper.Limiting(1, 11); limit > 0 || !some {
		t.Errorf("before its append it is looked for (%d), and the batch carries something: %t", limit, some)
	}
	if _, err := k.data.Append(&log.Append{Epoch: k.epoch, Records: []log.Record{{Data: []byte("a record")}}, Extensions: extensions}); err != nil {
		t.Fatal(err)
	}
	k.batch.Reset()
	if limit, _ := k.keeper.Limiting(1, 11); limit > 0 {
		t.Error("it is looked for before it is readable")
	}
	k.keeper.Appended(8)
	if limit, _ := k.keeper.Limiting(1, 11); limit > 0 {
		t.Error("it is looked for before it is readable, once its append is noted")
	}
	k.publish() // is not waited for
	if limit, turn = k.keeper.Limiting(1, 12); limit != 1 {
		t.Error("it is not looked for")
	}
	if err := k.keeper.Limited(1, turn, log.Memory); err != nil {
		t.Fatal(err)
	}
	if limit, _ := k.keeper.Limiting(1, 13); limit > 0 {
		t.Error("it is looked for again")
	}
	if k.lead(); k.keeper.limit > 0 {
		t.Error("the next leader, which has a Mark from before the record, does not look for it")
	}
}

// TestARefusedBatchIsNotAwaited: a batch with a record that may be beyond its limit is refused.
// What was there before is looked for, and the batch before that one removes what it carries.
func TestARefusedBatchIsNotAwaited(t *testing.T) {
	k := newKeeping(t)
	k.marked()
	k.publish(2)
	k.keeper.Raise(1, log.Memory)
	k.batch.Unlimited(k.keeper, log.Memory)
	_, some := k.batch.Carry(k.keeper, 13, nil)
	if !some {
		t.Fatal("nothing is to be taken back")
	}
	if limit, _ := k.keeper.Limiting(1, 12); limit > 0 {
		t.Error("it is looked for before its append")
	}
	k.keeper.Forget()
	k.batch.Reset()
	if limit, _ := k.keeper.Limiting(1, 12); limit != 1 {
		t.Error("the records before it wait for it")
	}
	k.commit()
	k.removed("after the batch before", "2-2")
}

// TestASnapshotReloadsTheSameSet: removals of both kinds, Marks, takeovers that fail, snapshots and
// changes of the leader, at random, beside a model.
func TestASnapshotReloadsTheSameSet(t *testing.T) {
	for seed := range uint64(30) {
		rng := rand.New(rand.NewPCG(seed, 3))
		k := newKeeping(t)
		k.marked()
		var model removal.Set
		for range 60 {
			_, end, _ := k.data.Offsets()
			offset := 1 + rng.Uint64N(end-1)
			switch rng.IntN(9) {
			case 0, 1, 2:
				k.publish(offset)
				k.commit()
				model.Add(offset, offset+1)
			case 3:
				if err := k.keeper.Remove(k.keeper.Spans([]uint64{offset}), 1, end, log.Memory, func(error) {}); err != nil {
					t.Fatal(err)
				}
				k.release(nil)
				model.Add(offset, offset+1)
			case 4:
				k.keeper.Appended(takenData)
			case 5:
				k.snapshot(func() {})
			case 6:
				k.hold = !k.hold
				k.release(nil)
			case 7:
				k.keeper.Raise(rng.Uint64N(3), log.Memory)
			case 8:
				k.lead()
			}
		}
		k.commit()
		k.removed("at the end", ranges(&model)...)
		if t.Failed() {
			t.Fatalf("with seed %d", seed)
		}
	}
}

// TestARecordBeyondItsLimitIsKnownToTheNextLeader: the Mark that says so does not reach the
// replicas, but the record does.
func TestARecordBeyondItsLimitIsKnownToTheNextLeader(t *testing.T) {
	k := newKeeping(t)
	k.marked()
	if err := k.keeper.Limited(1, k.keeper.turn, log.Memory); err != nil {
		t.Fatal(err)
	}
	k.publish(2)
	if k.lead(); k.keeper.limit != 1 {
		t.Errorf("a batch that keeps the limit makes it %d", k.keeper.limit)
	}
	k.refuse = errors.New("leadership ended")
	k.batch.Unlimited(k.keeper, log.Memory)
	k.publish()
	k.commit()
	k.refuse = nil
	k.lead()
	k.keeper.Raise(1, log.Memory)
	if limit, _ := k.keeper.Limiting(1, 1000); limit != 1 {
		t.Error("the limit is not enforced")
	}
	k.removed("and nothing else is different", "2-2")
}

// named is a record by offset and epoch.
type named struct{ epoch, offset uint64 }

// TestLeadersThatLackWhatIsNotCommitted: each leader has what was committed of both logs, and of
// the rest any part. It has removed all that was committed, and no record that none has removed:
// offsets that were lost belong to other records. Appends are refused, committed late, and
// snapshots taken, at random.
func TestLeadersThatLackWhatIsNotCommitted(t *testing.T) {
	for seed := range uint64(60) {
		rng := rand.New(rand.NewPCG(seed, 9))
		k := newKeeping(t)
		k.hold = true
		committed, tried := map[named]bool{}, map[named]bool{}
		carried := map[uint64][]named{} // by the end of the batch
		_, high, _ := k.data.Offsets()
		name := func(offset uint64) named {
			epoch, _ := k.data.EpochAt(offset)
			return named{epoch, offset}
		}
		release := func(n int) {
			for ; n > 0 && len(k.held) > 0; n-- {
				h := k.held[0]
				k.held = k.held[1:]
				h.done(nil)
			}
		}
		for step := range 300 {
			_, end, _ := k.data.Offsets()
			offset := 1 + rng.Uint64N(end-1)
			switch rng.IntN(12) {
			case 0, 1, 2:
				if k.keeper.Marked() {
					of := name(offset)
					k.publish(offset)
					tried[of] = true
					carried[end+1] = append(carried[end+1], of)
				} else {
					k.keeper.Mark(high, log.Memory, func() {})
				}
			case 3, 4:
				high += rng.Uint64N(end - high + 1)
				k.keeper.Commit(high, log.Memory)
				for at, all := range carried {
					if at <= high {
						for _, of := range all {
							committed[of] = true
						}
						delete(carried, at)
					}
				}
			case 5:
				if offset < high {
					of := name(offset)
					tried[of] = true
					_ = k.keeper.Remove(k.keeper.Spans([]uint64{offset}), 1, high, log.Memory, func(err error) {
						committed[of] = committed[of] || err == nil
					})
				}
			case 6, 7:
				release(1 + rng.IntN(4))
			case 8:
				k.keeper.Appended(takenData)
			case 9:
				switch rng.IntN(4) {
				case 0:
					k.keeper.Raise(rng.Uint64N(4), log.Memory)
				case 1:
					_ = k.keeper.Limited(2, k.keeper.turn, log.Memory)
				default:
					if k.refuse = nil; rng.IntN(4) == 0 {
						k.refuse = errors.New("overloaded")
					}
				}
			case 10: // a snapshot, which trims once all of it is committed
				if k.refuse == nil {
					k.snapshot(func() {})
					release(len(k.held))
				}
			case 11:
				if rng.IntN(3) > 0 {
					break
				}
				_, stateEnd, _ := k.state.Offsets()
				cut := stateEnd
				if len(k.held) > 0 {
					at := rng.IntN(len(k.held) + 1)
					if at < len(k.held) {
						cut = k.held[at].first
					}
				}
				if _, _, err := k.state.TruncateTo(cut, 0); err != nil {
					t.Fatal(err)
				}
				if _, _, err := k.data.TruncateTo(high+rng.Uint64N(end-high+1), 0); err != nil {
					t.Fatal(err)
				}
				k.refuse = nil
				clear(carried)
				k.lead()
				_, high, _ = k.data.Offsets() // all of it is committed under this leader
				k.keeper.Commit(high, log.Memory)
				now := map[named]bool{}
				for from, next := range k.keeper.Set().Ranges(0, 1<<40) {
					for ; from < next; from++ {
						now[name(from)] = true
						if !tried[name(from)] {
							t.Fatalf("seed %d, step %d: %+v is removed, which nobody asked for", seed, step, name(from))
						}
					}
				}
				for of := range committed {
					if !now[of] {
						t.Fatalf("seed %d, step %d: %+v is left, whose removal was committed", seed, step, of)
					}
				}
				committed = now
			}
		}
	}
}

// TestRecordsAreCountedWithTheirRemovals: readers may see a batch before its removals are in the
// set.
func TestRecordsAreCountedWithTheirRemovals(t *testing.T) {
	k := newKeeping(t)
	k.marked()
	k.publish()
	k.publish(2)
	k.publish(3)
	for _, c := range []struct{ commit, settled uint64 }{{11, 12}, {12, 12}, {13, 13}, {14, 14}} {
		k.keeper.Commit(c.commit, log.Memory)
		if got := k.keeper.Settled(14); got != c.settled {
			t.Errorf("committed up to %d: settled up to %d, want %d", c.commit, got, c.settled)
		}
	}
	if got := k.keeper.Settled(12); got != 12 {
		t.Errorf("settled up to %d, though readers see up to 12", got)
	}
	k.batch.AddFrom(k.data, 4, 5)
	k.batch.Carry(k.keeper, 15, nil)
	k.keeper.Forget()
	if got := k.keeper.Settled(20); got != 20 {
		t.Errorf("a batch that was not appended has it settled up to %d", got)
	}
}
