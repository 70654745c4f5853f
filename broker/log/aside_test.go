package log

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/carillon-mq/carillon/broker/env/crashfs"
)

// giveUp truncates or resets a log that has 150 records, of which those below an offset were
// committed.
type giveUp struct {
	to, committed uint64
	reset         bool
}

func (g giveUp) String() string {
	verb := "truncate"
	if g.reset {
		verb = "reset"
	}
	return fmt.Sprintf("%s to %d, committed %d", verb, g.to, g.committed)
}

func (g giveUp) do(l *Log) (string, error) {
	if g.reset {
		return l.ResetTo(g.to, g.committed)
	}
	_, aside, err := l.TruncateTo(g.to, g.committed)
	return aside, err
}

// goes is from where on committed records go.
func (g giveUp) goes() uint64 {
	if g.reset {
		return 1
	}
	return g.to
}

var giveUps = []giveUp{
	{to: 20, committed: 120}, {to: 100, committed: 101}, {to: 145, committed: 151}, {to: 1, committed: 151}, {to: 50, committed: 9000},
	{to: 1, committed: 151, reset: true}, {to: 700, committed: 60, reset: true},
	{to: 100, committed: 100}, {to: 20, committed: 0}, {to: 700, committed: 1, reset: true}, {to: 700, committed: 0, reset: true},
}

// held returns the records that segment files below a directory of a disk hold, each of them read
// as a log of its own.
func held(t testing.TB, fsys *crashfs.FS, dir string, secret uint64) map[uint64]string {
	t.Helper()
	out := map[uint64]string{}
	names, err := fsys.List(dir)
	if err != nil {
		return out
	}
	for _, name := range names {
		r, ok := segmentFile(name)
		if !ok && name == noteName {
			continue
		}
		if !ok {
			t.Fatalf("%s in %s", name, dir)
		}
		f, err := openSegment(fsys, filepath.Join(dir, name), &blockCache{})
		if err != nil {
			t.Fatal(err)
		}
		rd, err := newFrames(f)
		if err != nil {
			t.Fatal(err)
		}
		for pos := int64(0); ; {
			fr, err := rd.next(pos)
			if err != nil {
				break
			}
			pos += int64(len(fr))
			switch {
			case fr.kind() == kindHeader && fr.log() != secret:
				t.Fatalf("%s/%s is another log's", dir, name)
			case fr.kind() == kindBatch && Batch(fr).Base() >= r.Base:
				it := Batch(fr).Records()
				for rec := (Record{}); it.Next(&rec); {
					out[rec.Offset] = string(rec.Data)
				}
			}
		}
	}
	return out
}

// TestRemovedCommittedRecordsAreSetAside: every committed record that is removed is set aside;
// uncommitted ones are deleted.
func TestRemovedCommittedRecordsAreSetAside(t *testing.T) {
	for _, story := range giveUps {
		t.Run(story.String(), func(t *testing.T) {
			fsys, d, l := setup(t, tiny)
			put(t, l, 150)
			secret := l.secret
			aside, err := story.do(l)
			if err != nil {
				t.Fatal(err)
			}
			if gone := story.committed > story.goes(); gone != (aside != "") {
				t.Fatalf("set aside to %q", aside)
			}
			if aside == "" {
				if names, err := fsys.List("data/" + setAsideDir); err != nil || len(names) > 0 {
					t.Errorf("%q, %v", names, err)
				}
				return
			}
			kept := held(t, fsys, aside, secret)
			for o := story.goes(); o < min(story.committed, 151); o++ {
				if kept[o] != fmt.Sprintf("record %d", o) {
					t.Fatalf("offset %d is %q", o, kept[o])
				}
			}
			if m := l.Meta(); len(m.Aside) != 1 || m.Aside[0].Dir != filepath.Base(aside) || m.Aside[0].From != story.goes() || !strings.Contains(m.Aside[0].Reason, "committed") || len(m.Aside[0].Files) > 0 {
				t.Errorf("%+v", m.Aside)
			}
			put(t, l, 5)
			start, end, _ := l.Offsets()
			_ = d.Close()
			l = openLog(t, openDisk(t, fsys, "data", tiny), orders)
			mustRead(t, l, start, end)
			if r := l.Recovery(); r.Suspect {
				t.Errorf("%+v", r)
			}
		})
	}
}

// TestSettingCommittedRecordsAsideMayBeCutShortAnywhere: the power is cut at every step: each
// committed record is in the log or set aside, and the log is as it was or as it is to be.
func TestSettingCommittedRecordsAsideMayBeCutShortAnywhere(t *testing.T) {
	for _, story := range giveUps {
		t.Run(story.String(), func(t *testing.T) {
			for steps, over := 0, false; !over; steps++ {
				for seed := range uint64(6) {
					fsys, d, l := setup(t, tiny)
					put(t, l, 150)
					secret := l.secret
					fsys.StopAfter(steps)
					_, err := story.do(l)
					over = err == nil
					after, d, l := cutPower(t, fsys, d, seed, steps, tiny)
					start, end, _ := l.Offsets()
					was, is := start == 1 && end == 151, end == story.to
					if r := l.Recovery(); r.Suspect || over && !is || !was && !is {
						t.Fatalf("step %d, seed %d: from %d to %d: %+v", steps, seed, start, end, r)
					}
					mustRead(t, l, start, end)
					kept := held(t, after, "data/"+setAsideDir+"/orders-0.1", secret)
					for o := uint64(1); o < min(story.committed, 151); o++ {
						if want := fmt.Sprintf("record %d", o); (o < start || o >= end) && kept[o] != want {
							t.Fatalf("step %d, seed %d: from %d to %d, and offset %d is %q", steps, seed, start, end, o, kept[o])
						}
					}
					put(t, l, 3)
					mustRead(t, l, start, end+3)
					_ = d.Close()
				}
			}
		})
	}
}

// TestAFullDiskRefusesToTruncateCommittedRecords: on a full disk no committed record is removed: a
// truncation that needs space is refused, and the log is unchanged.
func TestAFullDiskRefusesToTruncateCommittedRecords(t *testing.T) {
	fsys, _, l := setup(t, tiny)
	put(t, l, 150)
	fsys.SetCapacity(1)
	at := l.SegmentInfos()[1].Base + 3 // a part of a segment has to be copied
	if _, _, err := l.TruncateTo(at, 151); !errors.Is(err, syscall.ENOSPC) || !strings.Contains(err.Error(), "committed") {
		t.Fatal(err)
	}
	ranged(t, l, 1, 151, Epoch{1, 1})
	fsys.SetCapacity(0)
	end, aside, err := l.TruncateTo(at, 151)
	if err != nil || end != at || aside == "" {
		t.Fatal(end, aside, err)
	}
	ranged(t, l, 1, at, Epoch{1, 1})
}

// TestTheManifestsListOfPiecesIsBounded: the manifest lists the last pieces, and counts those
// before.
func TestTheManifestsListOfPiecesIsBounded(t *testing.T) {
	fsys, d, l := setup(t, tiny)
	var dirs []string
	for range mostAside + 3 {
		put(t, l, 20)
		_, end, _ := l.Offsets()
		_, aside, err := l.TruncateTo(end-5, end)
		if err != nil {
			t.Fatal(err)
		}
		dirs = append(dirs, filepath.Base(aside))
	}
	for range 2 {
		m := l.Meta()
		if m.AsideBefore != 3 || !slices.EqualFunc(m.Aside, dirs[3:], func(a Aside, dir string) bool { return a.Dir == dir }) {
			t.Errorf("%d before %+v", m.AsideBefore, m.Aside)
		}
		_ = d.Close()
		d = openDisk(t, fsys, "data", tiny)
		l = openLog(t, d, orders)
	}
	if names, err := fsys.List("data/" + setAsideDir); err != nil || len(names) != len(dirs) {
		t.Errorf("%q, %v", names, err)
	}
	_ = d.Close()
}
