package log

import (
	"errors"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/carillon-mq/carillon/broker/env/crashfs"
)

// TestARepairWithoutRoom: on a full disk the damaged segment stays, and it is repaired when there
// is room.
func TestARepairWithoutRoom(t *testing.T) {
	fsys, d, l, other := replicas(t, 2000)
	want := everything(t, other)
	spoil(t, fsys, d, l, 3)
	fsys.SetCapacity(1)
	if _, _, err := mend(t, l, other); !errors.Is(err, syscall.ENOSPC) {
		t.Error(err)
	}
	fsys.SetCapacity(0)
	if _, _, err := mend(t, l, other); err != nil || !slices.Equal(everything(t, l), want) {
		t.Error(err)
	}
}

// TestACrashWhileATailIsRepaired: the power is cut at every step of sealing a damaged tail and
// repairing it: until it is whole again, opening the log finds that it isn't.
func TestACrashWhileATailIsRepaired(t *testing.T) {
	for steps, over := 0, false; !over; steps++ {
		for seed := range uint64(4) {
			fsys, d, l, other := replicas(t, 590)
			fill(t, l, other, 5)
			want := everything(t, other)
			infos := l.SegmentInfos()
			if err := l.Close(); err != nil {
				t.Fatal(err)
			}
			if err := fsys.Flip(fileOf(t, l, infos[len(infos)-1].Base), 1000*8); err != nil {
				t.Fatal(err)
			}
			l = openLog(t, d, orders)
			fsys.StopAfter(steps)
			_, err := l.SealDamagedTail()
			if err == nil {
				_, _, err = mend(t, l, other)
			}
			over = err == nil
			if err != nil && !errors.Is(err, crashfs.ErrCrashed) {
				t.Fatalf("step %d: %v", steps, err)
			}
			_, _, l = cutPower(t, fsys, d, seed, steps, small)
			if r := l.Recovery(); r.Strange || r.Suspect && over || !r.Suspect && !slices.Equal(everything(t, l), want) {
				t.Fatalf("step %d, seed %d: %+v", steps, seed, r)
			}
			if _, err := l.SealDamagedTail(); err != nil {
				t.Fatal(err)
			}
			if _, _, err := mend(t, l, other); err != nil || !slices.Equal(everything(t, l), want) {
				t.Fatalf("step %d, seed %d: %v", steps, seed, err)
			}
		}
	}
}

// TestACrashAtEachStepOfARepair: the power is cut at every step of a repair: then the log is as
// damaged as it was, which is found again, lacks what was damaged, which opening it finds, or is
// repaired. Nothing else of it changes, and repairing it once more makes it whole.
func TestACrashAtEachStepOfARepair(t *testing.T) {
	damaged, lacking, whole := 0, 0, 0
	for _, missing := range []bool{false, true} {
		for steps, over := 0, false; !over; steps++ {
			for seed := range uint64(4) {
				fsys, d, l, other := replicas(t, 600)
				want := everything(t, other)
				bad := l.SegmentInfos()[2]
				if missing {
					if err := l.Close(); err != nil {
						t.Fatal(err)
					}
					remove(t, fsys, d, "orders-0", bad.Base)
					l = openLog(t, d, orders)
				} else {
					spoil(t, fsys, d, l, 2)
				}
				fsys.StopAfter(steps)
				_, _, err := mend(t, l, other)
				over = err == nil
				if err != nil && !errors.Is(err, crashfs.ErrCrashed) {
					t.Fatalf("step %d: %v", steps, err)
				}
				after, d, l := cutPower(t, fsys, d, seed, steps, small)
				found, err := scrubAll(l)
				if err != nil {
					t.Fatal(err)
				}
				state := l.Lacks()
				switch r := l.Recovery(); {
				case slices.Equal(state, []Span{{bad.Base, bad.End}}) && len(found) > 0 && r.Suspect && !r.Strange:
					// It was found without being looked for.
					damaged++
				case slices.Equal(state, []Span{{bad.Base, bad.End}}) && r.Suspect && !r.Strange:
					lacking++
				case len(state) == 0 && len(found) == 0 && !r.Suspect:
					whole++
				default:
					t.Fatalf("step %d, seed %d: it lacks %v of %+v: %+v, %v", steps, seed, state, bad, r, found)
				}
				if over && len(state) > 0 {
					t.Fatalf("step %d, seed %d: a repair that was done is not: %v", steps, seed, state)
				}
				if _, _, err := mend(t, l, other); err != nil || !slices.Equal(everything(t, l), want) {
					t.Fatalf("step %d, seed %d: %v", steps, seed, err)
				}
				if names, err := after.List(d.logDir("orders-0")); err != nil || slices.ContainsFunc(names, func(n string) bool { return strings.HasSuffix(n, beingRepaired) }) {
					t.Fatalf("left: %q, %v", names, err)
				}
				if !missing { // wherever it is now
					kept := 0
					for _, dir := range []string{d.logDir("orders-0"), "data/" + setAsideDir + "/orders-0.1", "data/" + setAsideDir + "/orders-0.2"} {
						if names, err := after.List(dir); err == nil && strings.Contains(dir, setAsideDir) && slices.Contains(names, segmentName(bad.Base)) {
							kept++
						}
					}
					if kept != 1 {
						t.Fatalf("step %d, seed %d: the damaged file is there %d times", steps, seed, kept)
					}
				}
			}
		}
	}
	if damaged == 0 || lacking == 0 || whole == 0 {
		t.Errorf("%d damaged, %d lacking, %d whole", damaged, lacking, whole)
	}
}
