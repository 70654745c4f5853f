package removing

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/carillon-mq/carillon/broker/log"
	"github.com/carillon-mq/carillon/broker/removal"
)

var source = removal.KeyOf("bills > >")

// copy appends a record of a source.
func (k *keeping) copy(sequence uint64) {
	k.t.Helper()
	_, end, _ := k.data.Offsets()
	k.batch.Source(k.epoch, end, removal.Source{Key: source, Sequence: sequence, Origin: "a"}, nil)
	k.publish()
}

// come fails the test if the Keeper, or the next leader, says otherwise how far the source has
// come.
func (k *keeping) come(when string, want, next uint64) {
	k.t.Helper()
	p := k.keeper.Progress()
	if s, _ := p.Of(source); s.Sequence != want {
		k.t.Errorf("%s: the source has come to %d, want %d", when, s.Sequence, want)
	}
	_, stateEnd, _ := k.state.Offsets()
	_, end, _ := k.data.Offsets()
	loaded, err := Load(k.state, k.data, stateEnd, end, true, &removal.Set{})
	if err != nil {
		k.t.Fatal(err)
	}
	if s, _ := loaded.Progress.Of(source); s.Sequence != next {
		k.t.Errorf("%s: the next leader says that the source has come to %d, want %d", when, s.Sequence, next)
	}
}

func TestProgressIsInTheBatchAndInTheStateLog(t *testing.T) {
	k := newKeeping(t)
	k.marked()
	k.copy(7)
	k.come("in a batch", 7, 7)
	k.commit()
	k.keeper.Note(log.Memory, func(error) {})
	if k.keeper.Unnoted() {
		t.Error("the state log may lack it")
	}
	k.copy(8)
	k.come("in a later batch", 8, 8)
	k.snapshot(func() { k.copy(9) })
	k.come("after a snapshot", 9, 9)
}

func TestProgressIsHeldUntilTheStateLogHasIt(t *testing.T) {
	k := newKeeping(t)
	k.marked()
	k.copy(7)
	k.commit()
	_, end, _ := k.data.Offsets()
	if start, _ := k.data.Trim(end); start != end-1 {
		t.Errorf("the log begins with %d, and the batch is at %d", start, end-1)
	}
	k.refuse = errors.New("no")
	if err := k.keeper.LetGo(context.Background(), end, log.Memory); err == nil {
		t.Error("the log may lose what the state log could not get")
	}
	k.refuse = nil
	if err := k.keeper.LetGo(context.Background(), end, log.Memory); err != nil {
		t.Fatal(err)
	}
	if start, _ := k.data.Trim(end); start != end {
		t.Errorf("the log still begins with %d", start)
	}
	k.come("after a trim of all", 7, 7)
	k.snapshot(func() {})
	k.lead()
	k.come("for the next leader", 7, 7)
}

func TestProgressOfABatchThatIsNotAppendedIsForgotten(t *testing.T) {
	k := newKeeping(t)
	k.marked()
	k.copy(7)
	_, end, _ := k.data.Offsets()
	k.batch.Source(k.epoch, end, removal.Source{Key: source, Sequence: 8, Origin: "a"}, nil)
	k.batch.Carry(k.keeper, end+1, nil)
	k.batch.Reset()
	k.keeper.Forget()
	k.come("after a failure", 7, 7)
}

// TestProgressThatTheLogHasLostDoesNotCount: the state log says how far a source has come with a
// record that the data log has lost since.
func TestProgressThatTheLogHasLostDoesNotCount(t *testing.T) {
	k := newKeeping(t)
	k.marked()
	k.copy(7)
	k.commit()
	k.keeper.Note(log.Memory, func(error) {})
	_, end, _ := k.data.Offsets()
	k.copy(8)
	k.commit()
	k.keeper.Note(log.Memory, func(error) {})
	if _, _, err := k.data.TruncateTo(end, 0); err != nil {
		t.Fatal(err)
	}
	k.lead()
	k.come("after the end was lost", 7, 7)
	k.publish()
	k.come("with another record there", 7, 7)
}

// TestDuplicatesThatASourcePassesAreNoted: no record of the source says how far it has come, and
// the next leader knows it by a Note.
func TestDuplicatesThatASourcePassesAreNoted(t *testing.T) {
	k := newKeeping(t)
	k.marked()
	k.copy(7)
	k.publish() // the record whose id the next one has
	k.keeper.Pass(removal.Source{Key: source, Sequence: 8, Origin: "a"}, nil)
	k.come("before it is committed", 8, 7)
	k.keeper.Note(log.Memory, func(error) {})
	k.come("before what it depends on is on all in-sync replicas", 8, 7)
	k.commit()
	k.keeper.Note(log.Memory, func(error) {})
	k.come("after a note", 8, 8)
	k.copy(9)
	k.keeper.Pass(removal.Source{Key: source, Sequence: 10, Origin: "a"}, nil)
	k.commit()
	k.keeper.Note(log.Memory, func(error) {})
	k.come("behind a record of its own, whose batch says less", 10, 10)
	k.keeper.Pass(removal.Source{Key: source, Sequence: 11, Origin: "a"}, nil)
	k.commit()
	k.keeper.Note(log.Memory, func(error) {})
	k.come("once more", 11, 11)
	k.lead()
	k.copy(12)
	k.come("with a later record", 12, 12)
}

// TestASilentSourceOutlivesFormerOnes: many sources come and go, and one that is still there is
// silent meanwhile.
func TestASilentSourceOutlivesFormerOnes(t *testing.T) {
	k := newKeeping(t)
	k.marked()
	k.copy(7)
	for i := range 300 {
		_, end, _ := k.data.Offsets()
		k.batch.Source(k.epoch, end, removal.Source{Key: removal.KeyOf(fmt.Sprint(i)), Sequence: 1, Origin: "b"},
			func(key removal.SourceKey) bool { return key == source })
		k.publish()
	}
	k.come("behind 300 others", 7, 7)
}

// TestOneNoteAtATime: while the state log commits nothing, nothing more is noted.
func TestOneNoteAtATime(t *testing.T) {
	k := newKeeping(t)
	k.marked()
	k.copy(7)
	k.commit()
	appended := 0
	k.keeper.Append = func(*log.Append) (uint64, error) { appended++; return 0, nil }
	for range 10 {
		k.keeper.Note(log.Memory, func(error) {})
	}
	if appended != 1 {
		t.Errorf("%d notes are under way", appended)
	}
}
