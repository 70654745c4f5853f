package removing

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/carillon-mq/carillon/broker/env/crashfs"
	"github.com/carillon-mq/carillon/broker/log"
	"github.com/carillon-mq/carillon/broker/removal"
	"github.com/carillon-mq/carillon/broker/upkeep"
)

// copyLogs opens the logs of a copy on a disk of its own, with records of two epochs in the data
// log: 1 to 5 of epoch 1, and 6 to 10 of epoch 3.
func copyLogs(t *testing.T) (state, data *log.Log) {
	t.Helper()
	disk, err := log.OpenDisk(crashfs.New(), "data", log.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = disk.Close() })
	for part, l := range map[string]**log.Log{"": &data, "state": &state} {
		if *l, err = disk.Open(log.Identity{Topic: "orders", Part: part}, 1, 1, nil); err != nil {
			t.Fatal(err)
		}
	}
	for offset := range 10 {
		epoch := uint64(1 + offset/5*2)
		if _, err := data.Append(&log.Append{Epoch: epoch, Records: []log.Record{{Data: []byte("a record")}}}); err != nil {
			t.Fatal(err)
		}
	}
	return state, data
}

func appendItem(t *testing.T, state *log.Log, item []byte) {
	t.Helper()
	a := log.Append{Epoch: 3, Records: []log.Record{{Subject: []byte(removal.Subject), Data: item}, {Data: []byte{1, 65}}}}
	if _, err := state.Append(&a); err != nil {
		t.Fatal(err)
	}
}

func ranges(set *removal.Set) (out []string) {
	for from, next := range set.Ranges(0, 1000) {
		out = append(out, fmt.Sprint(from, "-", next-1))
	}
	return out
}

// loadAll loads all removals of two logs.
func loadAll(state, data *log.Log, set *removal.Set) error {
	_, stateEnd, _ := state.Offsets()
	_, end, _ := data.Offsets()
	_, err := Load(state, data, stateEnd, end, true, set)
	return err
}

// TestLoadRemovals: a state log has removals beside cursors. One is of records that the data log
// lost, whose offsets are of a later epoch now: it removes only what is of its epoch.
func TestLoadRemovals(t *testing.T) {
	state, data := copyLogs(t)
	appendItem(t, state, removal.AppendItem(nil, removal.Span{Epoch: 1, From: 2, Next: 3}))
	appendItem(t, state, removal.AppendItem(nil, removal.Span{Epoch: 1, From: 5, Next: 8}, removal.Span{Epoch: 3, From: 9, Next: 20}))
	appendItem(t, state, removal.AppendItem(nil, removal.Span{Epoch: 2, From: 6, Next: 9}))
	var set removal.Set
	if err := loadAll(state, data, &set); err != nil {
		t.Fatal(err)
	}
	if got := ranges(&set); !slices.Equal(got, []string{"2-2", "5-5", "9-10"}) {
		t.Errorf("removed: %v", got)
	}

	var committed removal.Set
	if _, err := Load(state, data, 4, 10, true, &committed); err != nil {
		t.Fatal(err)
	}
	if got := ranges(&committed); !slices.Equal(got, []string{"2-2", "5-5", "9-9"}) {
		t.Errorf("removed below the watermarks: %v", got)
	}

	if _, err := data.Trim(6); err != nil {
		t.Fatal(err)
	}
	start := data.Start()
	var trimmed removal.Set
	if err := loadAll(state, data, &trimmed); err != nil {
		t.Fatal(err)
	}
	if got := trimmed.Count(0, start); got > 0 {
		t.Errorf("%d are removed below the start, which is %d", got, start)
	}
}

// TestMalformedRemovalsAreReported: a removal of a later version is reported, and the others are
// loaded.
func TestMalformedRemovalsAreReported(t *testing.T) {
	state, data := copyLogs(t)
	appendItem(t, state, []byte{99, 1, 2, 3})
	appendItem(t, state, removal.AppendItem(nil, removal.Span{Epoch: 3, From: 7, Next: 8}))
	var set removal.Set
	if err := loadAll(state, data, &set); !errors.Is(err, removal.ErrMalformed) {
		t.Errorf("the error is %v", err)
	}
	if got := ranges(&set); !slices.Equal(got, []string{"7-7"}) {
		t.Errorf("removed: %v", got)
	}
}

// TestStateLogsWithoutRemovals: a state log is read once to see that it has no removals, and
// whoever asks knows of the first one that is committed.
func TestStateLogsWithoutRemovals(t *testing.T) {
	state, _ := copyLogs(t)
	var u upkeep.Unremoved
	cursor := func() {
		if _, err := state.Append(&log.Append{Epoch: 3, Records: []log.Record{{Data: []byte{1, 65}}}}); err != nil {
			t.Fatal(err)
		}
	}
	for range 3 {
		cursor()
		_, end, _ := state.Offsets()
		state.NoteWatermark(end)
		if u.Any(state) {
			t.Fatalf("a log without removals up to %d has some", end)
		}
	}
	appendItem(t, state, removal.AppendItem(nil, removal.Span{Epoch: 1, From: 2, Next: 3}))
	if u.Any(state) {
		t.Error("the removal isn't committed")
	}
	_, end, _ := state.Offsets()
	state.NoteWatermark(end)
	cursor()
	for range 2 {
		if !u.Any(state) {
			t.Error("the removal is not found")
		}
	}
	if _, err := state.Trim(end); err != nil {
		t.Fatal(err)
	}
	if u.Any(state) {
		t.Error("the removal was trimmed")
	}
	if other, _ := copyLogs(t); u.Any(other) {
		t.Error("another log has none")
	}
}
