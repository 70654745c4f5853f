package log

import (
	"errors"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/carillon-mq/carillon/broker/env"
	"github.com/carillon-mq/carillon/broker/env/crashfs"
	"github.com/carillon-mq/carillon/internal/testutil"
)

// names are those of pieces.
func names(pieces []Piece) (out []string) {
	for _, p := range pieces {
		out = append(out, p.Name)
	}
	return out
}

// pieces lists what is set aside.
func pieces(t testing.TB, d *Disk) []Piece {
	t.Helper()
	all, more, err := d.Pieces("", 1000)
	if err != nil || more {
		t.Fatal(more, err)
	}
	return all
}

// TestSetAsidePiecesAreListed: a piece is listed with its log, its reason, its records and its
// size.
func TestSetAsidePiecesAreListed(t *testing.T) {
	fsys, d, l := setup(t, tiny)
	put(t, l, 150)
	if _, _, err := l.TruncateTo(100, 151); err != nil {
		t.Fatal(err)
	}
	bills := Identity{Topic: "bills", Shard: 12, Part: "state"}
	other := openLog(t, d, bills)
	put(t, other, 60)
	if err := other.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := d.SetAside(other.Name(), "nobody knows it"); err != nil {
		t.Fatal(err)
	}
	// What an earlier version set aside has no note. What a person put there is none of ours.
	for path, data := range map[string]string{
		"orders-3.7/" + segmentName(40): "0123456789", "orders-3.torn/00000000000000000001.00000000000000000512": "012",
		"notes.txt": "mine", "orders-0.x/file": "mine", "orders-0.01/file": "mine", "mine/file": "mine",
	} {
		path = filepath.Join("data", setAsideDir, path)
		if err := errors.Join(fsys.MkdirAll(filepath.Dir(path)), writeNew(fsys, path, []byte(data))); err != nil {
			t.Fatal(err)
		}
	}
	all := pieces(t, d)
	if want := []string{"bills-12.state.1", "orders-0.1", "orders-3.7", "orders-3.torn"}; !slices.Equal(names(all), want) {
		t.Fatalf("listed are %q, want %q", names(all), want)
	}
	log, cut, older, torn := all[0], all[1], all[2], all[3]
	if log.Kind != PieceLog || log.Log != bills || string(log.Spec) != "spec" || log.Reason != "nobody knows it" || log.From != 1 || log.Next != 61 {
		t.Errorf("a whole log is %+v", log)
	}
	if cut.Kind != PieceSegments || cut.Log != orders || cut.Reason != "truncated to 100; records below 151 were committed" || cut.From != 100 || cut.Next != 151 || cut.Spec != nil {
		t.Errorf("a part of a log is %+v", cut)
	}
	if older.Kind != PieceSegments || older.Log != (Identity{Topic: "orders", Shard: 3}) || older.Reason != "" || older.From != 40 || older.Bytes != 10 {
		t.Errorf("what an earlier version set aside is %+v", older)
	}
	if torn.Kind != PieceTorn || torn.Bytes != 3 {
		t.Errorf("torn tails are %+v", torn)
	}
	bytes := int64(0)
	for _, p := range all {
		bytes += p.Bytes
	}
	if n, size, err := d.AsideUsage(); err != nil || n != 4 || size != bytes || bytes < 60*int64(len("record 1")) {
		t.Errorf("%d pieces have %d bytes, want 4 and %d: %v", n, size, bytes, err)
	}
	for limit := 1; limit < 6; limit++ {
		var paged []string
		for after, more := "", true; more; {
			page, left, err := d.Pieces(after, limit)
			if err != nil || len(page) == 0 || len(page) > limit {
				t.Fatal(names(page), err)
			}
			paged, after, more = append(paged, names(page)...), page[len(page)-1].Name, left
		}
		if !slices.Equal(paged, names(all)) {
			t.Errorf("in pages of %d: %q", limit, paged)
		}
	}
}

// TestAFullDiskSetsALogAsideWithoutTheReason: on a full disk a log is set aside, and the reason is
// missing.
func TestAFullDiskSetsALogAsideWithoutTheReason(t *testing.T) {
	fsys, d, l := setup(t, tiny)
	put(t, l, 20)
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	fsys.SetCapacity(1)
	if _, err := d.SetAside(l.Name(), "why"); err != nil {
		t.Fatal(err)
	}
	if all := pieces(t, d); len(all) != 1 || all[0].Kind != PieceLog || all[0].Reason != "" || all[0].Next != 21 {
		t.Errorf("%+v", all)
	}
}

// TestOnlyThePieceThatWasListedIsDeleted: only the listed piece is deleted, by its name and the
// time at which it was set aside: a name may be used again.
func TestOnlyThePieceThatWasListedIsDeleted(t *testing.T) {
	dir := t.TempDir()
	d := openDisk(t, env.OS, filepath.Join(dir, "data"), tiny)
	setAside := func() Piece {
		l := openLog(t, d, orders)
		put(t, l, 3)
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
		if _, err := d.SetAside(l.Name(), "why"); err != nil {
			t.Fatal(err)
		}
		return pieces(t, d)[0]
	}
	before := time.Now().Add(-time.Minute)
	first := setAside()
	if first.Since.Before(before) || first.Since.After(time.Now().Add(time.Minute)) {
		t.Errorf("it was set aside at %v", first.Since)
	}
	path := filepath.Join(dir, "data", setAsideDir, first.Name)
	long := time.Unix(1e9, 0)
	if err := os.Chtimes(path, long, long); err != nil {
		t.Fatal(err)
	}
	if err := d.DeleteAside(first.Name, first.Since); !errors.Is(err, ErrPieceChanged) {
		t.Errorf("what is another one by now: %v", err)
	}
	if err := d.DeleteAside(first.Name, long); err != nil {
		t.Error(err)
	}
	for _, name := range []string{first.Name, "orders-0.2", "orders-0", "..", ".", "", "../shards", "x/orders-0.1", "notes.txt"} {
		if err := d.DeleteAside(name, time.Time{}); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%q: %v", name, err)
		}
	}
	// What a person put into a piece goes with it, but nothing that a link leads to.
	again := setAside()
	mine := filepath.Join(dir, "mine")
	if err := errors.Join(os.MkdirAll(mine, 0o700), os.MkdirAll(filepath.Join(path, "a", "b"), 0o700), os.WriteFile(filepath.Join(mine, "file"), nil, 0o600),
		os.WriteFile(filepath.Join(path, "a", "b", "file"), nil, 0o600), os.Symlink(mine, filepath.Join(path, "link"))); err != nil {
		t.Fatal(err)
	}
	if err := d.DeleteAside(again.Name, time.Time{}); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(filepath.Join(mine, "file")); err != nil {
		t.Error(err)
	}
	if left := pieces(t, d); len(left) > 0 {
		t.Errorf("left: %+v", left)
	}
}

// deletions are the pieces that are deleted: a whole log, segments of an open log and of a closed
// one.
var deletions = map[string]func(t *testing.T, d *Disk, l *Log){
	"log": func(t *testing.T, d *Disk, l *Log) {
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
		if _, err := d.SetAside(l.Name(), "why"); err != nil {
			t.Fatal(err)
		}
	},
	"open": func(t *testing.T, _ *Disk, l *Log) {
		if _, _, err := l.TruncateTo(100, 151); err != nil {
			t.Fatal(err)
		}
	},
	"closed": func(t *testing.T, _ *Disk, l *Log) {
		if _, _, err := l.TruncateTo(100, 151); err != nil {
			t.Fatal(err)
		}
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
	},
}

// TestTheDeletionOfAPieceIsAllOrNothing: after an interrupted deletion there is the whole piece or
// nothing of it, and its log is unchanged.
func TestTheDeletionOfAPieceIsAllOrNothing(t *testing.T) {
	for name, setAside := range deletions {
		t.Run(name, func(t *testing.T) {
			for steps, over := 0, false; !over; steps++ {
				for seed := range uint64(4) {
					fsys, d, l := setup(t, tiny)
					put(t, l, 150)
					setAside(t, d, l)
					before := pieces(t, d)
					files, err := fsys.List("data/" + setAsideDir + "/orders-0.1")
					if err != nil || len(before) != 1 || len(files) < 3 {
						t.Fatal(before, files, err)
					}
					fsys.StopAfter(steps)
					err = d.DeleteAside("orders-0.1", time.Time{})
					over = err == nil
					if err != nil && !errors.Is(err, crashfs.ErrCrashed) {
						t.Fatal(err)
					}
					after := fsys.Crash(rand.New(rand.NewPCG(seed, uint64(steps))))
					_ = d.Close()
					d = openDisk(t, after, "data", tiny)
					switch left := pieces(t, d); {
					case len(left) == 0 && steps > 0:
					case len(left) != 1 || over:
						t.Fatalf("step %d, seed %d: left %+v, %v", steps, seed, left, err)
					default:
						kept, err := after.List("data/" + setAsideDir + "/orders-0.1")
						// Nobody syncs the note.
						kept = slices.DeleteFunc(kept, func(name string) bool { return name == noteName })
						if want := slices.DeleteFunc(slices.Clone(files), func(name string) bool { return name == noteName }); err != nil || !slices.Equal(kept, want) {
							t.Fatalf("step %d, seed %d: %q of %q, %v", steps, seed, kept, want, err)
						}
					}
					if left, err := after.List("data/" + deletedDir); err != nil || len(left) > 0 {
						t.Fatalf("step %d, seed %d: %q was left to be deleted, %v", steps, seed, left, err)
					}
					if name != "log" {
						for range 2 {
							l = openLog(t, d, orders)
							mustRead(t, l, 1, 100)
							if r := l.Recovery(); r.Suspect {
								t.Fatalf("step %d, seed %d: %+v", steps, seed, r)
							}
							if err := l.Close(); err != nil {
								t.Fatal(err)
							}
						}
					}
					_ = d.Close()
				}
			}
		})
	}
}

// TestAnUnfinishedPieceIsNotDeleted: a piece to which files are still to be moved is not deleted.
// If its directory is deleted by hand, the log does not get those files back.
func TestAnUnfinishedPieceIsNotDeleted(t *testing.T) {
	for _, by := range []string{"command", "hand"} {
		t.Run(by, func(t *testing.T) {
			fsys, d, l := setup(t, tiny)
			put(t, l, 150)
			fsys.SetHook(func(op crashfs.Op) error {
				if op.Kind == "rename" && strings.HasSuffix(op.Path, segmentEnd) {
					return syscall.EIO
				}
				return nil
			})
			if _, _, err := l.TruncateTo(20, 151); !errors.Is(err, syscall.EIO) {
				t.Fatal(err)
			}
			fsys.SetHook(nil)
			if err := d.DeleteAside("orders-0.1", time.Time{}); !errors.Is(err, ErrPieceBusy) || !strings.Contains(err.Error(), "restart the broker") {
				t.Errorf("deleted: %v", err)
			}
			_ = d.Close()
			if by == "hand" {
				dir := "data/" + setAsideDir + "/orders-0.1"
				files, err := fsys.List(dir)
				for _, file := range files {
					err = errors.Join(err, fsys.Remove(filepath.Join(dir, file)))
				}
				if err = errors.Join(err, fsys.Remove(dir)); err != nil {
					t.Fatal(err)
				}
			}
			d = openDisk(t, fsys, "data", tiny)
			for range 3 {
				l = openLog(t, d, orders)
				mustRead(t, l, 1, 20)
				if r := l.Recovery(); r.Suspect {
					t.Errorf("%+v", r)
				}
				if err := l.Close(); err != nil {
					t.Fatal(err)
				}
			}
			if all := pieces(t, d); len(all) != 1 || all[0].Next < 100 || all[0].Bytes == 0 {
				t.Errorf("set aside: %+v", all)
			}
			if err := d.DeleteAside("orders-0.1", time.Time{}); err != nil {
				t.Error(err)
			}
			_ = d.Close()
		})
	}
}

// TestNoPieceOfALogThatIsBeingOpenedIsDeleted: while a log is being opened, no piece of it is
// deleted, since it may be under way. The refusal comes at once.
func TestNoPieceOfALogThatIsBeingOpenedIsDeleted(t *testing.T) {
	fsys, d, l := setup(t, tiny)
	put(t, l, 150)
	if _, _, err := l.TruncateTo(100, 151); err != nil {
		t.Fatal(err)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	var tried error
	var once sync.Once
	fsys.SetHook(func(op crashfs.Op) error {
		if op.Path != filepath.Join("data", shardsDir, "orders-0") {
			return nil
		}
		once.Do(func() {
			d.mu.Lock()
			l := d.logs["orders-0"]
			d.mu.Unlock()
			l.admin.Lock()
			defer l.admin.Unlock()
			answer := make(chan error, 1)
			go func() { answer <- d.DeleteAside("orders-0.1", time.Time{}) }()
			select {
			case tried = <-answer:
			case <-time.After(testutil.Patience):
				tried = errors.New("it waits for the log")
			}
		})
		return nil
	})
	l = openLog(t, d, orders)
	fsys.SetHook(nil)
	if !errors.Is(tried, ErrPieceBusy) {
		t.Errorf("while its log was opened: %v", tried)
	}
	if err := d.DeleteAside("orders-0.1", time.Time{}); err != nil {
		t.Error(err)
	}
	mustRead(t, l, 1, 100)
}

// TestAFailedDiskDeletesNoPiece: no piece is deleted on a failed disk.
func TestAFailedDiskDeletesNoPiece(t *testing.T) {
	fsys, d, l := setup(t, tiny)
	put(t, l, 150)
	if _, _, err := l.TruncateTo(100, 151); err != nil {
		t.Fatal(err)
	}
	fsys.SetHook(func(op crashfs.Op) error {
		if op.Kind == "syncdir" {
			return syscall.EIO
		}
		return nil
	})
	if err := d.DeleteAside("orders-0.1", time.Time{}); !errors.Is(err, syscall.EIO) || d.Failed() == nil {
		t.Errorf("deleted with a failed sync: %v, %v", err, d.Failed())
	}
	fsys.SetHook(nil)
	if err := d.DeleteAside("orders-0.1", time.Time{}); !errors.Is(err, d.Failed()) {
		t.Errorf("deleted after a failed sync: %v", err)
	}
}
