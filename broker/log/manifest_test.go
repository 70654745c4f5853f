package log

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/carillon-mq/carillon/broker/env/crashfs"
)

// manifestPath is where the manifest of the log of orders is.
const manifestPath = "data/shards/orders-0/" + manifestName

// slotBit is a bit of one of the slots of the manifest of orders.
func slotBit(t testing.TB, fsys *crashfs.FS, slot int, byteAt int64) int64 {
	t.Helper()
	info, err := fsys.Stat(manifestPath)
	if err != nil {
		t.Fatal(err)
	}
	return (int64(slot)*info.Size/2 + byteAt) * 8
}

// TestADamagedManifestSlotCostsNothing: any bit may flip in one slot: the other one is intact.
func TestADamagedManifestSlotCostsNothing(t *testing.T) {
	fsys, d, l := setup(t, small)
	put(t, l, 300)
	if err := l.SetCopy([]byte(`{"state":"cut"}`)); err != nil {
		t.Fatal(err)
	}
	want := l.Meta()
	want.Durable = 301 // as of its end in order
	_ = d.Close()
	data, err := encodeSlot(&want, 1)
	if err != nil {
		t.Fatal(err)
	}
	for slot := range 2 {
		for at := range int64(len(data)) {
			if err := fsys.Flip(manifestPath, slotBit(t, fsys, slot, at)+at%8); err != nil {
				t.Fatal(err)
			}
			d := openDisk(t, fsys, "data", small)
			l := openLog(t, d, orders)
			if m := l.Meta(); !reflect.DeepEqual(m, want) || l.Recovery().Suspect || string(l.Copy()) != `{"state":"cut"}` {
				t.Fatalf("slot %d, byte %d: %+v; %+v", slot, at, m, l.Recovery())
			}
			_ = d.Close() // the slot was made again by that
		}
	}
}

// TestALostManifestIsMadeAgain: with both slots damaged, or without the file, the manifest is
// rebuilt with every record, and the lost state of the copy is reported.
func TestALostManifestIsMadeAgain(t *testing.T) {
	for name, lose := range map[string]func(t *testing.T, fsys *crashfs.FS){
		"both slots": func(t *testing.T, fsys *crashfs.FS) {
			for slot := range 2 {
				if err := fsys.Flip(manifestPath, slotBit(t, fsys, slot, 60)); err != nil {
					t.Fatal(err)
				}
			}
		},
		"the file": func(t *testing.T, fsys *crashfs.FS) {
			if err := fsys.Remove(manifestPath); err != nil {
				t.Fatal(err)
			}
		},
		"both files, the one damaged": func(t *testing.T, fsys *crashfs.FS) {
			for slot := range 2 {
				if err := fsys.Flip(manifestPath, slotBit(t, fsys, slot, 60)); err != nil {
					t.Fatal(err)
				}
			}
			if err := fsys.Remove("data/shards/orders-0/" + metaName); err != nil {
				t.Fatal(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			fsys, d, l := setup(t, small)
			putEpoch(t, l, 1, 300)
			putEpoch(t, l, 4, 300)
			if err := l.SetCopy([]byte(`{"state":"cut"}`)); err != nil {
				t.Fatal(err)
			}
			_ = d.Close()
			lose(t, fsys)
			d = openDisk(t, fsys, "data", small)
			if all, err := storedLogs(d); err != nil || len(all) != 1 {
				t.Errorf("%+v, %v", all, err)
			}
			l = openLog(t, d, orders)
			ranged(t, l, 1, 601, Epoch{1, 1}, Epoch{4, 301})
			if r := l.Recovery(); !r.Rebuilt || !r.Suspect || l.Copy() != nil {
				t.Errorf("%+v, %q", r, l.Copy())
			}
			putEpoch(t, l, 5, 10)
			_ = d.Close()
			l = openLog(t, openDisk(t, fsys, "data", small), orders)
			ranged(t, l, 1, 611, Epoch{1, 1}, Epoch{4, 301}, Epoch{5, 601})
			if r := l.Recovery(); r.Rebuilt || r.Suspect {
				t.Errorf("%+v", r)
			}
		})
	}
}

// TestACreationMayBeCutShortAnywhere: a directory with meta.json only, of a log without a write,
// counts as no log.
func TestACreationMayBeCutShortAnywhere(t *testing.T) {
	for steps, over := 0, false; !over; steps++ {
		for seed := range uint64(8) {
			fsys := crashfs.New()
			d := openDisk(t, fsys, "data", small)
			fsys.StopAfter(steps)
			first := FirstCopy{Made: []byte(`{"state":"partial"}`), Rebuilt: []byte(`{"state":"lost"}`)}
			_, err := d.OpenCopy(orders, 70, 3, []byte(`{"name":"orders"}`), first)
			over = err == nil
			after := fsys.Crash(rand.New(rand.NewPCG(seed, uint64(steps))))
			_ = d.Close()
			d = openDisk(t, after, "data", small)
			all, err := storedLogs(d)
			if err != nil || len(all) > 1 || over && len(all) != 1 || len(all) == 1 && (all[0].Err != nil || all[0].Meta.Start != 70) {
				t.Fatalf("step %d, seed %d: %+v, %v", steps, seed, all, err)
			}
			state := `{"state":"of the next life"}`
			if len(all) == 1 {
				state = `{"state":"partial"}` // no manifest lacks it
			}
			first.Made = []byte(`{"state":"of the next life"}`)
			l, err := d.OpenCopy(orders, 70, 3, []byte(`{"name":"orders"}`), first)
			if err != nil || l.Recovery().Suspect || string(l.Meta().Spec) != `{"name":"orders"}` || string(l.Copy()) != state {
				t.Fatalf("step %d, seed %d: %v, %+v, %q", steps, seed, err, l.Recovery(), l.Copy())
			}
			putEpoch(t, l, 3, 5)
			ranged(t, l, 70, 75, Epoch{3, 70})
			_ = d.Close()
		}
	}
}

// TestARebuildMayBeCutShortAnywhere: the power is cut at every step of opening a log whose manifest
// is damaged. The next opening finds that damage, or the state for this case in the manifest that
// was made from the segments.
func TestARebuildMayBeCutShortAnywhere(t *testing.T) {
	first := FirstCopy{Made: []byte(`{"state":"partial"}`), Rebuilt: []byte(`{"state":"lost"}`)}
	for steps, over := 0, false; !over; steps++ {
		for seed := range uint64(8) {
			fsys, d, l := setup(t, small)
			put(t, l, 20)
			if err := l.SetCopy([]byte(`{"state":"cut"}`)); err != nil {
				t.Fatal(err)
			}
			_ = d.Close()
			fsys = fsys.Snapshot() // the second slot is durable, too
			for slot := range 2 {
				if err := fsys.Flip(manifestPath, slotBit(t, fsys, slot, 60)); err != nil {
					t.Fatal(err)
				}
			}
			d = openDisk(t, fsys, "data", small)
			fsys.StopAfter(steps)
			_, err := d.OpenCopy(orders, 1, 1, nil, first)
			over = err == nil
			after := fsys.Crash(rand.New(rand.NewPCG(seed, uint64(steps))))
			_ = d.Close()
			d = openDisk(t, after, "data", small)
			l, err = d.OpenCopy(orders, 1, 1, nil, first)
			if err != nil || string(l.Copy()) != `{"state":"lost"}` || over && l.Recovery().Rebuilt {
				t.Fatalf("step %d, seed %d: %v, %+v, %q", steps, seed, err, l.Recovery(), l.Copy())
			}
			mustRead(t, l, 1, 21)
			_ = d.Close()
		}
	}
}

// TestMetaJSONIsReadOnceOnly: a log is opened from its manifest alone once meta.json is safe. A log
// of a broker that did not note that is opened with both, and notes it with its next change. A
// meta.json that is missing is written again.
func TestMetaJSONIsReadOnceOnly(t *testing.T) {
	fsys, d, l := setup(t, small)
	putEpoch(t, l, 1, 300)
	const meta = "data/shards/orders-0/" + metaName
	named := func(l *Log) bool { return l.man.now.Load().Named }
	if !named(l) {
		t.Error("a new log doesn't note that it has a meta.json")
	}
	reopen := func() *Log {
		t.Helper()
		_ = d.Close()
		d = openDisk(t, fsys, "data", small)
		l := openLog(t, d, orders)
		ranged(t, l, 1, 301, Epoch{1, 1})
		return l
	}
	if err := fsys.Flip(meta, 80); err != nil {
		t.Fatal(err)
	}
	if r := reopen().Recovery(); r.Reason != "" || r.Suspect {
		t.Errorf("meta.json was read: %+v", r)
	}
	if err := fsys.Remove(meta); err != nil {
		t.Fatal(err)
	}
	l = reopen()
	if id, err := readIdentity(fsys, filepath.Dir(meta)); err != nil || id.Log != l.secret {
		t.Errorf("meta.json says %+v, %v", id, err)
	}

	l.man.named = false
	if err := l.SetSpec([]byte("of a broker that notes nothing"), 1); err != nil || named(l) {
		t.Fatal(named(l), err)
	}
	if l = reopen(); named(l) {
		t.Error("opening changed the manifest")
	}
	if err := l.SetSpec([]byte("the next change"), 1); err != nil || !named(l) {
		t.Error(named(l), err)
	}
}

// TestAChangeMayBeCutShortAnywhere: the power is cut at every step of changes by which the manifest
// outgrows its slots: it is that from before or after a change, has everything that was
// acknowledged, and is never lost.
func TestAChangeMayBeCutShortAnywhere(t *testing.T) {
	spec := func(n int) []byte { return fmt.Appendf(nil, `{"n":%d,"more":"%s"}`, n, strings.Repeat("x", n*n*150)) }
	crashes := 0
	for steps, over := 0, false; !over; steps++ {
		for seed := range uint64(10) {
			fsys, d, l := setup(t, small)
			put(t, l, 20)
			fsys.StopAfter(steps)
			done := 0
			var err error
			for n := 1; n <= 8 && err == nil; n++ {
				if err = l.SetSpec(spec(n), uint64(n)); err == nil {
					done = n
				}
			}
			over = err == nil
			fsys, d, l = cutPower(t, fsys, d, seed, steps, small)
			for again := range 2 {
				m := l.Meta()
				at := int(m.Epoch)
				if at < done || at > done+1 || l.Recovery().Suspect || at > 1 && !bytes.Equal(m.Spec, spec(at)) {
					t.Fatalf("step %d, seed %d, %d: epoch %d of %d: %+v", steps, seed, again, at, done, l.Recovery())
				}
				mustRead(t, l, 1, 21)
				done = at // what was found once stays
				fsys, d, l = cutPower(t, fsys, d, seed+1, steps, small)
			}
			if names, err := fsys.List("data/shards/orders-0"); err != nil || len(names) != 3 {
				t.Fatalf("step %d, seed %d: %q, %v", steps, seed, names, err)
			}
			_ = d.Close()
			crashes++
		}
	}
	if crashes < 200 {
		t.Errorf("only %d crashes", crashes)
	}
}

// TestAChangeOfStateNeedsNoRoom: on a full disk the state of a copy can be changed any number of
// times, damage can be recorded, and the log can be trimmed.
func TestAChangeOfStateNeedsNoRoom(t *testing.T) {
	fsys, d, l := setup(t, small)
	put(t, l, 1000)
	fsys.SetCapacity(1)
	for n := range 20 {
		state := fmt.Appendf(nil, `{"state":"%s"}`, strings.Repeat("d", 50*n))
		if err := l.SetCopy(state); err != nil || !bytes.Equal(l.Copy(), state) {
			t.Fatalf("%d bytes: %v", len(state), err)
		}
	}
	large := fmt.Appendf(nil, `{"state":"%s"}`, strings.Repeat("d", 1024))
	if err := l.SetCopy(large); err == nil {
		t.Error("a state of any length was taken")
	}
	if _, err := d.OpenCopy(Identity{Topic: "other"}, 1, 1, nil, FirstCopy{Made: large}); err == nil {
		t.Error("a first state of any length was taken")
	}
	for _, s := range l.segments {
		s.bad = true
	}
	if err := l.NoteDamage(); err != nil {
		t.Fatal(err)
	}
	for to := uint64(100); to < 1000; to += 100 {
		if start, err := l.Trim(to); err != nil || start != to {
			t.Fatal(start, err)
		}
	}
	_ = d.Close()
}

// TestAFullDiskRefusesAppendsThatTheManifestHasNoRoomFor: on a full disk an append is refused if
// the manifest has no room for it, as one is whose segment has none. When there is room again,
// appends succeed.
func TestAFullDiskRefusesAppendsThatTheManifestHasNoRoomFor(t *testing.T) {
	fsys, d, l := setup(t, Options{SegmentSmallest: 4 << 10, SegmentLargest: 4 << 10})
	epoch := uint64(1)
	var refused error
	noMore := func(op opKind) error {
		if strings.Contains(op.Path, manifestName+".") {
			return syscall.ENOSPC
		}
		return nil
	}
	fsys.SetHook(noMore)
	for ; refused == nil && epoch < 500; epoch++ {
		_, end, _ := l.Offsets()
		a := newAck()
		if _, refused = l.Append(&Append{Epoch: epoch, Records: texts(end, 1), Done: a}); refused == nil {
			if err := a.wait(t, 1); err != nil {
				t.Fatal(err)
			}
		}
	}
	if !errors.Is(refused, syscall.ENOSPC) || !strings.Contains(refused.Error(), "free space") {
		t.Fatal(refused)
	}
	_, end, _ := l.Offsets()
	put := func() {
		for range 200 {
			_, end, _ := l.Offsets()
			a := newAck()
			if _, err := l.Append(&Append{Epoch: epoch, Records: texts(end, 1), Done: a}); err != nil {
				t.Fatal(err)
			}
			if err := a.wait(t, 1); err != nil {
				t.Fatal(err)
			}
			epoch++
		}
	}
	fsys.SetHook(nil)
	put()
	mustRead(t, l, 1, end+200)
	epochs := l.Epochs()
	_ = d.Close()
	l = openLog(t, openDisk(t, fsys, "data", small), orders)
	mustRead(t, l, 1, end+200)
	if got := l.Epochs(); !slices.Equal(got, epochs) || len(got) != int(end)+199 {
		t.Errorf("%d epochs, and there were %d", len(got), len(epochs))
	}
}

// TestALogThatLostItsEndKnowsItsEpochs: a log that lost its last files knows where it ended and
// which epochs began there.
func TestALogThatLostItsEndKnowsItsEpochs(t *testing.T) {
	for name, crash := range map[string]bool{"after an end in order": false, "after a kill": true} {
		t.Run(name, func(t *testing.T) {
			fsys, d, l := setup(t, tiny)
			putEpoch(t, l, 1, 60)
			for epoch := uint64(5); epoch < 9; epoch++ {
				putEpoch(t, l, epoch, 30)
			}
			want := l.Epochs()
			infos := l.SegmentInfos()
			if crash {
				fsys = fsys.Kill()
			}
			_ = d.Close()
			for _, info := range infos[len(infos)-2:] {
				if err := fsys.Remove(info.File); err != nil {
					t.Fatal(err)
				}
			}
			d = openDisk(t, fsys, "data", tiny)
			l = openLog(t, d, orders)
			_, end, _ := l.Offsets()
			if r := l.Recovery(); !r.Suspect || end < infos[len(infos)-1].Base || !crash && end != 181 || !slices.Equal(l.Epochs(), want) {
				t.Fatalf("it ends at %d: %+v, epochs %v of %v", end, r, l.Epochs(), want)
			}
			if got := l.Lacks(); len(got) == 0 || got[0].From != infos[len(infos)-2].Base {
				t.Errorf("it lacks %v", got)
			}
			_ = d.Close()
		})
	}
}

// TestASegmentThatTheManifestDoesNotNameIsSetAside: a file that the manifest does not name is no
// part of the log. It is set aside if it has content.
func TestASegmentThatTheManifestDoesNotNameIsSetAside(t *testing.T) {
	fsys, d, l := setup(t, tiny)
	put(t, l, 150)
	first := l.SegmentInfos()[1]
	_ = d.Close()
	f, err := fsys.Open(first.File)
	if err != nil {
		t.Fatal(err)
	}
	size, err := f.Size()
	if err != nil {
		t.Fatal(err)
	}
	data := make([]byte, size)
	if err := readFull(f, data, 0); err != nil {
		t.Fatal(err)
	}
	strange := filepath.Join("data/shards/orders-0", segmentName(first.Base+1))
	if err := writeNew(fsys, strange, data); err != nil {
		t.Fatal(err)
	}
	if err := writeNew(fsys, filepath.Join("data/shards/orders-0", segmentName(9000)), nil); err != nil {
		t.Fatal(err)
	}
	d = openDisk(t, fsys, "data", tiny)
	l = openLog(t, d, orders)
	mustRead(t, l, 1, 151)
	if r := l.Recovery(); !r.Strange || !strings.Contains(r.Reason, segmentName(first.Base+1)) {
		t.Errorf("%+v", r)
	}
	if names, err := fsys.List("data/" + setAsideDir + "/orders-0.1"); err != nil || !slices.Equal(names, []string{segmentName(first.Base + 1), noteName}) {
		t.Errorf("set aside: %q, %v", names, err)
	}
	if m := l.Meta(); len(m.Aside) != 1 || m.Aside[0].Dir != "orders-0.1" || m.Aside[0].Reason == "" {
		t.Errorf("%+v", m.Aside)
	}
	_ = d.Close()
	if r := openLog(t, openDisk(t, fsys, "data", tiny), orders).Recovery(); r.Suspect {
		t.Errorf("%+v", r)
	}
}

// TestAChangeAfterAKillMayBeCutShortAnywhere: after a kill it is unknown which of the two slots is
// synced. A power cut in the next change must not lose changes that were acknowledged before the
// kill.
func TestAChangeAfterAKillMayBeCutShortAnywhere(t *testing.T) {
	// A slot of several sectors, all of which change.
	spec := func(epoch uint64) []byte { return []byte(strings.Repeat(fmt.Sprint(epoch), 1000)) }
	for changes := uint64(2); changes < 5; changes++ {
		for steps, over := 0, false; !over; steps++ {
			for seed := range uint64(20) {
				fsys, d, l := setup(t, small)
				for epoch := uint64(1); epoch <= changes; epoch++ {
					if err := l.SetSpec(spec(epoch), epoch); err != nil {
						t.Fatal(err)
					}
				}
				fsys = killed(fsys, d)
				d = openDisk(t, fsys, "data", small)
				l = openLog(t, d, orders)
				fsys.StopAfter(steps)
				err := l.SetSpec(spec(changes+1), changes+1)
				over = err == nil
				_, d, l = cutPower(t, fsys, d, seed, steps, small)
				if at := l.Meta().Epoch; at < changes || over && at != changes+1 || l.Recovery().Suspect {
					t.Fatalf("%d changes, step %d, seed %d: epoch %d, %+v", changes, steps, seed, at, l.Recovery())
				}
				_ = d.Close()
			}
		}
	}
}

// TestManyLogsAreListedInOneRound: more logs begin in one round than a disk keeps manifests open.
// The round lists the segments of all of them.
func TestManyLogsAreListedInOneRound(t *testing.T) {
	for _, syncAllFrom := range []int{0, 1 << 30} {
		fsys := crashfs.New()
		d := openDisk(t, fsys, "data", Options{SegmentSmallest: 4 << 10, SyncAllFrom: syncAllFrom})
		logs := make([]*Log, mostListing+50)
		for i := range logs {
			logs[i] = openLog(t, d, Identity{Topic: "many", Shard: i})
		}
		gate := make(chan struct{})
		begun := make(chan struct{}, len(logs))
		fsys.SetHook(func(op opKind) error {
			if op.Kind == "write" && strings.HasSuffix(op.Path, segmentEnd) {
				begun <- struct{}{}
				<-gate
			}
			return nil
		})
		a := newAck()
		for i, l := range logs {
			if _, err := l.Append(&Append{Epoch: 7, Records: texts(1, 1), Done: a}); err != nil {
				t.Fatal(err)
			}
			if i == 0 {
				<-begun // the others are the next round
			}
		}
		fsys.SetHook(nil)
		close(gate)
		if err := a.wait(t, len(logs)); err != nil {
			t.Fatal(err)
		}
		fsys = fsys.Crash(rand.New(rand.NewPCG(1, 2)))
		_ = d.Close()
		d = openDisk(t, fsys, "data", Options{})
		for i := range logs {
			m, err := d.Open(Identity{Topic: "many", Shard: i}, 1, 1, nil)
			if err != nil {
				t.Fatal(err)
			}
			if got := m.Meta(); len(got.Segments) != 1 || !slices.Equal(got.Epochs, []Epoch{{7, 1}}) || m.Recovery().Suspect {
				t.Fatalf("log %d: %+v, %+v", i, got, m.Recovery())
			}
		}
		_ = d.Close()
	}
}
