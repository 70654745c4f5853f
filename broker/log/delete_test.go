package log

import (
	"math/rand/v2"
	"testing"
)

// TestADeletionIsAllOrNothing: after an interrupted deletion there is the whole log or nothing.
func TestADeletionIsAllOrNothing(t *testing.T) {
	for steps := 0; ; steps++ {
		fsys, d, l := setup(t, small)
		put(t, l, 200)
		if err := d.Delete(l.Name()); err == nil {
			t.Fatal("an open log was deleted")
		}
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
		fsys.StopAfter(steps)
		err := d.Delete(l.Name())
		_ = d.Close()
		for seed := range uint64(3) {
			after := fsys.Crash(rand.New(rand.NewPCG(seed, 1)))
			d := openDisk(t, after, "data", small)
			logs, listErr := storedLogs(d)
			if listErr != nil {
				t.Fatal(listErr)
			}
			if err == nil && len(logs) > 0 {
				t.Fatalf("after %d steps the deletion was done, and the log is there: %+v", steps, logs)
			}
			if left, _ := after.List("data/" + deletedDir); len(left) > 0 {
				t.Fatalf("%v was left to be deleted", left)
			}
			if len(logs) == 1 {
				mustRead(t, openLog(t, d, orders), 1, 201)
			}
			_ = d.Close()
		}
		if err == nil {
			if err := d.Delete(l.Name()); err == nil {
				t.Fatal("the dead process deleted something")
			}
			return
		}
	}
}

func TestDeletingAMissingLogSucceeds(t *testing.T) {
	_, d, _ := setup(t, small)
	if err := d.Delete("nothing-0"); err != nil {
		t.Fatal(err)
	}
	if stored, there := d.Stored("nothing-0"); there {
		t.Errorf("there is %+v", stored)
	}
}
