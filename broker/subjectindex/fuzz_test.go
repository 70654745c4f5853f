package subjectindex

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/carillon-mq/carillon/broker/env"
	"github.com/carillon-mq/carillon/broker/env/crashfs"
)

// sample writes an index file of some records, and returns its path.
func sample(t testing.TB, records []entryOf, end uint64) (fs *crashfs.FS, path string) {
	t.Helper()
	fs = crashfs.New()
	s, err := Open(context.Background(), Config{FS: fs, Dir: "index", Cache: NewCache(fs, 0), Secret: testSecret}, 1, nil)
	if err != nil {
		t.Fatal(err)
	}
	b := s.NewBuilder(Segment{Base: 1}, 1, 0)
	for _, r := range records {
		if err := b.Add(t.Context(), r.offset, 1, []byte(r.subject)); err != nil {
			t.Fatal(err)
		}
	}
	built, err := b.Finish(t.Context(), end)
	if err != nil {
		t.Fatal(err)
	}
	return fs, built.run.path
}

// sampleRecords are 3,000 records: of one subject with most of them, and of many with few.
func sampleRecords() (records []entryOf, end uint64) {
	rng := rand.New(rand.NewPCG(3, 3))
	end = 1
	for range 3000 {
		s := "often"
		if rng.IntN(2) == 0 {
			s = fmt.Sprintf("rare.%d", rng.IntN(900))
		}
		records = append(records, entryOf{end, s})
		end += 1 + uint64(rng.IntN(3))
	}
	return records, end
}

// A file with any damage answers as one without, or with an error.
func FuzzDamagedFile(f *testing.F) {
	records, end := sampleRecords()
	whole, path := sample(f, records, end)
	size, err := whole.Stat(path)
	if err != nil {
		f.Fatal(err)
	}
	want := infos(records)
	f.Add(uint32(70), byte(1), uint32(0))
	f.Add(uint32(size.Size-3), byte(0x80), uint32(0))
	f.Add(uint32(0), byte(0), uint32(size.Size/2))
	f.Fuzz(func(t *testing.T, at uint32, change byte, cut uint32) {
		fs := whole.Snapshot()
		file, err := fs.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		var b [1]byte
		pos := int64(at) % size.Size
		_, _ = file.ReadAt(b[:], pos)
		b[0] ^= change
		if _, err := file.WriteAt(b[:], pos); err != nil {
			t.Fatal(err)
		}
		if cut > 0 {
			if err := file.Truncate(int64(cut) % size.Size); err != nil {
				t.Fatal(err)
			}
		}
		r, err := openRun(NewCache(fs, 0), path, kindSegment, testSecret, Segment{Base: 1})
		if err != nil {
			damagedOnly(t, err)
			return
		}
		all := Range{1, end}
		for _, s := range []string{"often", "rare.1", "rare.500", "rare.899", "none"} {
			e, ok, err := r.find([]byte(s), hash(testSecret, []byte(s)))
			if err == nil && ok {
				var info Info
				info, err = e.info(r, all, r.cached)
				if err == nil && info != want[s] {
					t.Fatalf("%s has %v, want %v", s, info, want[s])
				}
			}
			if err == nil && ok != (want[s].Count > 0) {
				t.Fatalf("%s is found: %v, want %v", s, ok, want[s])
			}
			damagedOnly(t, err)
		}
		seen := uint64(0)
		c := r.scan(context.Background(), selectAll, windowBytes)
		for {
			ok, err := c.next()
			if err == nil && ok {
				err = c.offsets(all, func(from, to uint64) error { seen += to - from; return nil })
			}
			if err != nil {
				damagedOnly(t, err)
				return
			}
			if !ok {
				break
			}
		}
		if seen != uint64(len(records)) {
			t.Fatalf("a scan meets %d records of %d", seen, len(records))
		}
	})
}

func damagedOnly(t *testing.T, err error) {
	t.Helper()
	if err == nil {
		return
	}
	if failed := (*FileError)(nil); !errors.As(err, &failed) {
		t.Fatalf("not a *FileError: %v", err)
	}
}

// Whatever the bytes of a block are, decoding them ends, and offsets are within the file.
func FuzzDecode(f *testing.F) {
	records, end := sampleRecords()
	fs, path := sample(f, records, end)
	r, err := openRun(NewCache(fs, 0), path, kindSegment, testSecret, Segment{Base: 1})
	if err != nil {
		f.Fatal(err)
	}
	for i := range r.blocks {
		refs, err := r.read(r.blocks[i].pos, r.blocks[i].size, nil)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(refs)
		for len(refs) > 0 {
			ref, rest, _ := decodeBlockRef(refs)
			if data, err := r.read(ref.pos, ref.size, nil); err == nil {
				f.Add(data)
			}
			refs = rest
		}
	}
	f.Add(r.footer.encode(nil))
	f.Fuzz(func(t *testing.T, data []byte) {
		decodeFooter(data)
		for rest, ok := data, true; ok && len(rest) > 0; {
			_, rest, ok = decodeBlockRef(rest)
		}
		b := blockReader{run: r, rest: data}
		var e entry
		for {
			ok, err := b.next(&e)
			if !ok || err != nil {
				return
			}
			read := func(int64, int) ([]byte, error) { return data, nil }
			last := uint64(0)
			_, _ = e.info(r, Range{2, end - 1}, read)
			_ = e.offsets(r, Range{1, end}, read, func(from, to uint64) error {
				if from <= last || from >= to || to > end {
					t.Fatalf("offsets %d to %d follow %d; the file ends at %d", from, to, last, end)
				}
				last = to - 1
				return nil
			})
		}
	})
}

// An error of the disk isn't taken for damage.
func TestAnErrorOfTheDiskIsNotDamage(t *testing.T) {
	records, end := sampleRecords()
	fs, path := sample(t, records, end)
	fs.SetHook(func(op crashfs.Op) error {
		if op.Kind == "read" && op.Off > 0 {
			return errors.New("input/output error")
		}
		return nil
	})
	_, err := openRun(NewCache(fs, 0), path, kindSegment, testSecret, Segment{Base: 1})
	if disk := (*env.DiskError)(nil); !errors.As(err, &disk) {
		t.Errorf("the error is %v", err)
	}
}
