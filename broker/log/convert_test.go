package log

import (
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/carillon-mq/carillon/broker/env"
	"github.com/carillon-mq/carillon/broker/env/crashfs"
)

// testdata/018b7c1 is what a broker of that commit left: records 1 to 160 in three epochs, trimmed
// to 20, with a compressed segment and an active one.
const (
	oldStart = 20
	oldEnd   = 161
)

var oldEpochs = []Epoch{{1, 1}, {3, 61}, {4, 121}}

// loadOld puts the folder on a disk in memory, safely.
func loadOld(t testing.TB) *crashfs.FS {
	t.Helper()
	fsys := crashfs.New()
	root := filepath.Join("testdata", "018b7c1")
	err := filepath.WalkDir(root, func(path string, entry os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		to := filepath.Join("data", strings.TrimPrefix(path, root))
		if entry.IsDir() {
			return fsys.MkdirAll(to)
		}
		data, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		return writeNew(fsys, to, data)
	})
	for _, dir := range []string{".", "data", "data/shards", "data/shards/orders-0", "data/shards/orders-0.state"} {
		err = errors.Join(err, fsys.SyncDir(dir))
	}
	if err != nil {
		t.Fatal(err)
	}
	return fsys
}

func writeNew(fsys env.FS, path string, data []byte) error {
	f, err := fsys.Create(path)
	if err != nil {
		return err
	}
	_, err = f.WriteAt(data, 0)
	return errors.Join(err, f.Sync(), f.Close())
}

func TestAFolderOf018b7c1IsConverted(t *testing.T) {
	fsys := loadOld(t)
	d := openDisk(t, fsys, "data", small)
	if all, err := storedLogs(d); err != nil || len(all) != 2 || all[0].Meta.Start != oldStart || all[0].Meta.Epoch != 5 || all[1].Meta.Part != "state" {
		t.Fatalf("%+v, %v", all, err)
	}
	state, err := d.Open(Identity{Topic: "orders", Part: "state"}, 1, 1, nil)
	if err != nil {
		t.Fatal(err)
	}
	ranged(t, state, 1, 6, Epoch{1, 1})
	for range 2 {
		l := openLog(t, d, orders)
		ranged(t, l, oldStart, oldEnd, oldEpochs...)
		if r := l.Recovery(); r.Suspect || r.Reason != "" {
			t.Errorf("%+v", r)
		}
		m := l.Meta()
		if string(m.Spec) != `{"name":"orders","retention":"1h"}` || m.Epoch != 5 || m.Durable != oldEnd || len(m.Segments) != 2 || !slices.Equal(m.Epochs, oldEpochs) {
			t.Errorf("%+v", m)
		}
		id, err := readIdentity(fsys, l.dir)
		if err != nil || !reflect.DeepEqual(id, &identityFile{Version: 2, Topic: "orders", Log: m.Log}) {
			t.Errorf("meta.json says %+v, %v", id, err)
		}
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
	}
	l := openLog(t, d, orders)
	putEpoch(t, l, 6, 100)
	if _, _, err := l.TruncateTo(70, 0); err != nil { // within the compressed segment
		t.Fatal(err)
	}
	putEpoch(t, l, 7, 5)
	_ = d.Close()
	ranged(t, openLog(t, openDisk(t, fsys, "data", small), orders), oldStart, 75, Epoch{1, 1}, Epoch{3, 61}, Epoch{7, 70})
}

// TestAConversionMayBeCutShortAnywhere: the power is cut at every step of a conversion. Then the
// folder is unconverted, with files that don't count, or converted: either version finds all of it
// or refuses it.
func TestAConversionMayBeCutShortAnywhere(t *testing.T) {
	old, converted := 0, 0
	for steps, over := 0, false; !over; steps++ {
		for seed := range uint64(12) {
			fsys := loadOld(t)
			d := openDisk(t, fsys, "data", small)
			fsys.StopAfter(steps)
			_, err := d.Open(orders, 1, 1, nil)
			over = err == nil
			after := fsys.Crash(rand.New(rand.NewPCG(seed, uint64(steps))))
			_ = d.Close()
			const dir = "data/shards/orders-0"
			id, err := readIdentity(after, dir)
			if err != nil {
				t.Fatalf("step %d, seed %d: %v", steps, seed, err)
			}
			start := uint64(oldStart)
			if id.Version == metaSole {
				old++
				if seed%2 == 0 { // 018b7c1 goes on with it, and trims it
					start = 30
					id.Start = start
					if err := errors.Join(writeIdentity(after, dir, id), after.SyncDir(dir)); err != nil {
						t.Fatal(err)
					}
				}
			} else {
				converted++
			}
			d = openDisk(t, after, "data", small)
			l := openLog(t, d, orders)
			ranged(t, l, start, oldEnd, oldEpochs...)
			if r := l.Recovery(); r.Suspect {
				t.Fatalf("step %d, seed %d: %+v", steps, seed, r)
			}
			if names, err := after.List(dir); err != nil || len(names) != 4 {
				t.Fatalf("step %d, seed %d: there are %q, %v", steps, seed, names, err)
			}
			_ = d.Close()
		}
	}
	if old < 20 || converted < 10 {
		t.Errorf("%d as they were, %d converted", old, converted)
	}
}

// TestAConversionFinishesInterruptedChanges: the conversion finishes the changes that 018b7c1 had
// begun, wherever it is interrupted itself.
func TestAConversionFinishesInterruptedChanges(t *testing.T) {
	for name, story := range map[string]struct {
		begun      func(id *identityFile)
		start, end uint64
		epochs     []Epoch
	}{
		"a reset":                        {func(id *identityFile) { id.Reset = 500 }, 500, 500, nil},
		"a truncation":                   {func(id *identityFile) { id.Cut, id.Durable = 130, 130 }, oldStart, 130, oldEpochs},
		"a truncation to where one ends": {func(id *identityFile) { id.Cut, id.Durable = 101, 101 }, oldStart, 101, oldEpochs[:2]},
		"a merge that hasn't begun":      {func(id *identityFile) { id.Merge, id.MergeEnd = 1, 161 }, oldStart, oldEnd, oldEpochs},
		"a merge that is done":           {func(id *identityFile) { id.Merge, id.MergeEnd, id.Durable = 1, 101, 101 }, oldStart, oldEnd, oldEpochs},
		"damage that isn't there":        {func(id *identityFile) { id.Bad = []uint64{1, 77} }, oldStart, oldEnd, oldEpochs},
	} {
		t.Run(name, func(t *testing.T) {
			for steps, over := 0, false; !over; steps++ {
				fsys := loadOld(t)
				const dir = "data/shards/orders-0"
				id, err := readIdentity(fsys, dir)
				if err != nil {
					t.Fatal(err)
				}
				story.begun(id)
				if err := errors.Join(writeIdentity(fsys, dir, id), fsys.SyncDir(dir)); err != nil {
					t.Fatal(err)
				}
				d := openDisk(t, fsys, "data", small)
				fsys.StopAfter(steps)
				_, err = d.Open(orders, 1, 1, nil)
				over = err == nil
				_, d, l := cutPower(t, fsys, d, 5, steps, small)
				ranged(t, l, story.start, story.end, story.epochs...)
				if r := l.Recovery(); r.Suspect {
					t.Fatalf("step %d: %+v", steps, r)
				}
				putEpoch(t, l, 9, 3)
				_ = d.Close()
			}
		})
	}
}
