package log

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/carillon-mq/carillon/broker/env/crashfs"
)

// damagesOf returns what a reader meets in a log.
func damagesOf(t testing.TB, l *Log) (out []Span) {
	t.Helper()
	start, end, _ := l.Offsets()
	for c := l.NewCursor(start); c.Next() < end; {
		v, err := c.Read(16 << 10)
		v.Release()
		if damage, ok := errors.AsType[*CorruptError](err); ok && damage.Next > c.Next() {
			out = append(out, Span{damage.From, damage.Next})
			c.Seek(damage.Next)
		} else if err != nil {
			t.Fatal(err)
		}
	}
	return out
}

// spoilBatch flips a bit of a batch of a plain segment, the first one at or behind a position.
// Where batches stand depends on the committer's rounds. It returns a function that flips the bit
// back.
func spoilBatch(t testing.TB, fsys *crashfs.FS, l *Log, base uint64, behind int64) (restore func(*crashfs.FS)) {
	t.Helper()
	path := fileOf(t, l, base)
	f, err := fsys.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	r, err := newFrames(f)
	if err != nil {
		t.Fatal(err)
	}
	for pos := int64(0); ; {
		fr, err := r.next(pos)
		if err != nil {
			t.Fatal(err)
		}
		if fr.kind() == kindBatch && pos >= behind {
			flip := func(fsys *crashfs.FS) {
				if err := fsys.Flip(path, (pos+batchHeader)*8); err != nil {
					t.Fatal(err)
				}
			}
			flip(fsys)
			return flip
		}
		pos += int64(len(fr))
	}
}

// atRest is a log of some records that nothing is held of in memory, so that readers meet what is
// damaged.
func atRest(t testing.TB, n int) (fsys *crashfs.FS, d *Disk, l *Log) {
	t.Helper()
	fsys, d, l, _ = replicas(t, n)
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	return fsys, d, openLog(t, d, orders)
}

// giveUpIn gives up what is damaged from an offset on, and returns where the damaged segment is.
func giveUpIn(l *Log, from uint64) (gone []Span, aside string, err error) {
	r, gone, err := l.GiveUp(from)
	if r != nil {
		aside, err = r.Finish()
	}
	return gone, aside, err
}

// hasAllBut checks that a log has all records but those of some spans, and its epochs.
func hasAllBut(t testing.TB, l *Log, gone []Span, epochs []Epoch) {
	t.Helper()
	start, end, _ := l.Offsets()
	got, err := readSparse(l, start)
	if err != nil {
		t.Fatal(err)
	}
	for at := start; at < end; at++ {
		lost := slices.ContainsFunc(gone, func(s Span) bool { return s.From <= at && at < s.Next })
		if text, there := got[at]; there == lost || there && text != fmt.Sprintf("record %d", at) {
			t.Fatalf("offset %d holds %q; given up: %v", at, text, gone)
		}
	}
	if !slices.Equal(l.Epochs(), epochs) {
		t.Errorf("its epochs are %v, and were %v", l.Epochs(), epochs)
	}
}

// TestDamagedRecordsAreGivenUp: a leader's batches are damaged, and no replica has them. They are
// given up: the remaining records are copied to a follower, the damaged segment is set aside, and
// the next process finds no damage.
func TestDamagedRecordsAreGivenUp(t *testing.T) {
	for name, spoilt := range map[string]func(t *testing.T, fsys *crashfs.FS, d *Disk, l *Log) *Log{
		"in a sealed segment": func(t *testing.T, fsys *crashfs.FS, d *Disk, l *Log) *Log {
			spoilBatch(t, fsys, l, l.SegmentInfos()[3].Base, 1000)
			return l
		},
		"in a compressed segment": func(t *testing.T, fsys *crashfs.FS, d *Disk, l *Log) *Log {
			if saved, err := l.Compress(context.Background(), 1); err != nil || saved == 0 {
				t.Fatal(saved, err)
			}
			spoil(t, fsys, d, l, 3)
			return l
		},
		"twice in a segment": func(t *testing.T, fsys *crashfs.FS, d *Disk, l *Log) *Log {
			spoilBatch(t, fsys, l, l.SegmentInfos()[3].Base, 3000)
			spoilBatch(t, fsys, l, l.SegmentInfos()[3].Base, 1000)
			return l
		},
		"in the active segment": func(t *testing.T, fsys *crashfs.FS, d *Disk, l *Log) *Log {
			for range 100 { // a new one has too few records
				if err := l.Flush(); err != nil {
					t.Fatal(err)
				}
				infos := l.SegmentInfos()
				if tail := infos[len(infos)-1]; tail.Active && tail.End-tail.Base > 40 {
					if err := l.Close(); err != nil {
						t.Fatal(err)
					}
					spoilBatch(t, fsys, l, tail.Base, 1000)
					return openLog(t, d, orders)
				}
				_, end, _ := l.Offsets()
				if _, err := l.Append(&Append{Epoch: 9, Records: texts(end, 1)}); err != nil {
					t.Fatal(err)
				}
			}
			t.Fatal("no segment is being written")
			return nil
		},
		"a missing segment": func(t *testing.T, fsys *crashfs.FS, d *Disk, l *Log) *Log {
			bad := l.SegmentInfos()[3]
			if err := l.Close(); err != nil {
				t.Fatal(err)
			}
			remove(t, fsys, d, "orders-0", bad.Base)
			return openLog(t, d, orders)
		},
		"the missing end": func(t *testing.T, fsys *crashfs.FS, d *Disk, l *Log) *Log {
			infos := l.SegmentInfos()
			if err := l.Close(); err != nil {
				t.Fatal(err)
			}
			remove(t, fsys, d, "orders-0", infos[len(infos)-1].Base)
			return openLog(t, d, orders)
		},
	} {
		t.Run(name, func(t *testing.T) {
			fsys, d, l := atRest(t, 1990)
			l = spoilt(t, fsys, d, l)
			epochs := l.Epochs()
			lost := damagesOf(t, l)
			if len(lost) == 0 {
				t.Fatal("nothing is damaged")
			}
			file := ""
			if !strings.Contains(name, "missing") {
				file = "data/" + setAsideDir + "/orders-0.1"
			}
			if _, _, err := giveUpIn(l, lost[0].From); err != nil {
				t.Fatal(err)
			}
			if file != "" {
				if names, err := fsys.List(file); err != nil || len(names) != 2 || names[1] != noteName {
					t.Errorf("set aside: %q, %v", names, err)
				}
				if m := l.Meta(); len(m.Aside) != 1 || m.Aside[0].Reason != "damaged on all replicas" {
					t.Errorf("%+v", m.Aside)
				}
			}
			_, _, follower := setup(t, Options{SegmentSmallest: 4 << 10, SegmentLargest: 12 << 10, TailBytes: 1})
			for range 2 {
				hasAllBut(t, l, lost, epochs)
				if found := l.Lacks(); len(found) > 0 {
					t.Errorf("it lacks %v", found)
				}
				_, end, _ := l.Offsets()
				if _, err := l.Append(&Append{Epoch: 9, Records: texts(end, 1)}); err != nil {
					t.Fatal(err)
				}
				epochs = l.Epochs()
				copyTo(t, l, follower)
				hasAllBut(t, follower, lost, epochs)
				if err := l.Close(); err != nil {
					t.Fatal(err)
				}
				if l = openLog(t, d, orders); l.Recovery().Suspect {
					t.Errorf("%+v", l.Recovery())
				}
			}
		})
	}
}

// TestRecordsOnAnotherReplicaAreNotGivenUp: another replica has the first of two damaged batches of
// a segment. Only the second batch is given up. The first one stays damaged, and is repaired when
// that replica leads.
func TestRecordsOnAnotherReplicaAreNotGivenUp(t *testing.T) {
	for _, form := range []string{"plain", "compressed", "missing"} {
		t.Run(form, func(t *testing.T) {
			fsys, d, l, other := replicas(t, 1990)
			bad := l.SegmentInfos()[3]
			if form == "compressed" {
				if saved, err := l.Compress(context.Background(), 1); err != nil || saved == 0 {
					t.Fatal(saved, err)
				}
				spoil(t, fsys, d, l, 3)
			}
			if err := l.Close(); err != nil {
				t.Fatal(err)
			}
			switch form {
			case "plain":
				spoilBatch(t, fsys, l, bad.Base, 3000)
				spoilBatch(t, fsys, l, bad.Base, 1000)
			case "missing":
				remove(t, fsys, d, "orders-0", bad.Base)
			}
			l = openLog(t, d, orders)
			lost, epochs := damagesOf(t, l), l.Epochs()
			from := lost[len(lost)-1].From
			if form != "plain" { // the other replica has some of what is damaged here in one piece
				from = lost[0].From + 1
			}
			gone, aside, err := giveUpIn(l, from)
			if err != nil || aside != "" || len(gone) != 1 || gone[0].From != from {
				t.Fatalf("given up: %v of %v, %q, %v", gone, lost, aside, err)
			}
			left := []Span{{lost[0].From, min(lost[0].Next, from)}}
			lacks := Span{bad.Base, from}
			for range 2 {
				if got := damagesOf(t, l); !slices.Equal(got, left) {
					t.Fatalf("%v is damaged, and %v is to be", got, left)
				}
				if got := l.Lacks(); !slices.Equal(got, []Span{lacks}) {
					t.Errorf("it lacks %v, and not %v", got, lacks)
				}
				if got := l.Epochs(); !slices.Equal(got, epochs) {
					t.Errorf("its epochs are %v, and were %v", got, epochs)
				}
				if err := l.Close(); err != nil {
					t.Fatal(err)
				}
				if l = openLog(t, d, orders); !l.Recovery().Suspect || l.Recovery().Strange {
					t.Errorf("%+v", l.Recovery())
				}
			}
			if _, _, err := mend(t, l, other); err != nil {
				t.Fatal(err)
			}
			for range 2 {
				hasAllBut(t, l, gone, epochs)
				if err := l.Close(); err != nil {
					t.Fatal(err)
				}
				if l = openLog(t, d, orders); l.Recovery().Suspect || len(l.Lacks()) > 0 {
					t.Errorf("%+v; it lacks %v", l.Recovery(), l.Lacks())
				}
			}
		})
	}
}

// TestReadableRecordsAreNotGivenUp: no record of a readable segment is given up, nor any beyond the
// log's end.
func TestReadableRecordsAreNotGivenUp(t *testing.T) {
	fsys, _, l := atRest(t, 1990)
	bad := l.SegmentInfos()[3]
	spoilBatch(t, fsys, l, bad.Base, 1000)
	if gone, aside, err := giveUpIn(l, bad.End); err != nil || len(gone) > 0 || aside != "" {
		t.Errorf("given up: %v, %q, %v", gone, aside, err)
	}
	if got := l.Lacks(); len(got) > 0 { // nobody has read the damaged one
		t.Errorf("it lacks %v", got)
	}
	if gone, aside, err := giveUpIn(l, bad.End-1); len(gone) > 0 || aside != "" {
		t.Errorf("given up: %v, %q, %v", gone, aside, err)
	}
	if _, _, err := giveUpIn(l, 1<<40); err == nil {
		t.Error("given up: what was never there")
	}
	if names, err := fsys.List("data/" + setAsideDir); err != nil || len(names) > 0 {
		t.Errorf("set aside: %q, %v", names, err)
	}
}

// TestACrashWhileRecordsAreGivenUp: the power is cut at each step of giving records up: then they
// are damaged, or given up, and all others are as they were.
func TestACrashWhileRecordsAreGivenUp(t *testing.T) {
	for _, elsewhere := range []bool{false, true} { // whether another replica has one of the batches
		for steps, over := 0, false; !over; steps++ {
			for seed := range uint64(4) {
				fsys, d, l, other := replicas(t, 600)
				if err := l.Close(); err != nil {
					t.Fatal(err)
				}
				l = openLog(t, d, orders)
				epochs, base := l.Epochs(), l.SegmentInfos()[2].Base
				if elsewhere {
					spoilBatch(t, fsys, l, base, 3000)
				}
				spoilBatch(t, fsys, l, base, 1000)
				lost := damagesOf(t, l)
				given := lost[len(lost)-1]
				if err := l.NoteDamage(); err != nil {
					t.Fatal(err)
				}
				fsys.StopAfter(steps)
				_, _, err := giveUpIn(l, given.From)
				over = err == nil
				if err != nil && !errors.Is(err, crashfs.ErrCrashed) {
					t.Fatalf("step %d: %v", steps, err)
				}
				_, _, l = cutPower(t, fsys, d, seed, steps, small)
				found := damagesOf(t, l)
				if slices.Contains(found, given) {
					if over {
						t.Fatalf("step %d, seed %d: %v is damaged, and was given up", steps, seed, given)
					}
					if _, _, err := giveUpIn(l, given.From); err != nil {
						t.Fatalf("step %d, seed %d: %v", steps, seed, err)
					}
				} else if !slices.Equal(found, lost[:len(lost)-1]) && len(l.Lacks()) == 0 {
					t.Fatalf("step %d, seed %d: %v is damaged, and %v was", steps, seed, found, lost)
				}
				if _, _, err := mend(t, l, other); elsewhere && err != nil {
					t.Fatalf("step %d, seed %d: %v", steps, seed, err)
				}
				if len(damagesOf(t, l)) > 0 {
					t.Fatalf("step %d, seed %d: %v is damaged", steps, seed, damagesOf(t, l))
				}
				if _, err := readSparse(l, 1); err != nil {
					t.Fatal(err)
				}
				if got, _ := readSparse(l, 1); elsewhere || got[given.From] == "" {
					hasAllBut(t, l, []Span{given}, epochs)
				}
			}
		}
	}
}
