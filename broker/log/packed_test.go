package log

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

func pack(records ...[]byte) []byte {
	var out []byte
	for _, r := range records {
		out = append(binary.AppendUvarint(out, uint64(len(r))), r...)
	}
	return out
}

func TestAnyPackedRecordsAreDecodedAsTheyWere(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := Packed{Subject: rapid.SliceOfN(rapid.Byte(), 0, 200).Draw(t, "subject"), Time: rapid.Int64().Draw(t, "time")}
		records := rapid.SliceOfN(rapid.SliceOfN(rapid.Byte(), 0, 300), 1, 50).Draw(t, "records")
		p.Count, p.Records = len(records), pack(records...)
		ext := []Extension{{Type: 3, Data: []byte("where it came from")}}
		size, err := packedSize(&p, ext)
		if err != nil {
			t.Fatal(err)
		}
		made := appendPacked(make([]byte, 0, size), 3, 9, &p, ext)
		if len(made) != size {
			t.Fatal("the size was announced as", size, "and is", len(made))
		}
		b, err := ParseBatch(made)
		if err != nil {
			t.Fatal(err)
		}
		if b.Count() != len(records) || b.Time() != p.Time || b.LastTime() != p.Time || b.Base() != 9 || b.Epoch() != 3 {
			t.Fatalf("%x", []byte(b[:batchHeader]))
		}
		it, i := b.Records(), 0
		for r := (Record{}); it.Next(&r); i++ {
			if r.Offset != uint64(9+i) || r.Time != p.Time || !bytes.Equal(r.Subject, p.Subject) || !bytes.Equal(r.Data, records[i]) || r.Header != 0 || r.Attributes != nil {
				t.Fatalf("record %d is %+v, was %q", i, r, records[i])
			}
		}
		if it.Err() != nil || i != len(records) {
			t.Fatal(i, it.Err())
		}
		subject, whole, ok := b.Packed()
		if !ok || !bytes.Equal(subject, p.Subject) || !bytes.Equal(whole, p.Records) {
			t.Fatal("in one piece they are others")
		}
		x := b.Extensions()
		if e, ok := x.Next(); !ok || !bytes.Equal(e.Data, ext[0].Data) {
			t.Fatal("the extension is gone")
		}
	})
}

func TestInconsistentPackedRecordsAreRefused(t *testing.T) {
	_, _, l := setup(t, small)
	three := pack([]byte("a"), bytes.Repeat([]byte("b"), 200), nil)
	for name, c := range map[string]struct {
		p      Packed
		record int
	}{
		"fewer than announced":  {Packed{Count: 4, Records: three}, 3},
		"more than announced":   {Packed{Count: 2, Records: three}, 3},
		"none announced":        {Packed{Records: three}, 0},
		"less than none":        {Packed{Count: -1, Records: three}, 0},
		"none there":            {Packed{Count: 1}, 0},
		"the last is cut":       {Packed{Count: 2, Records: three[:len(three)-2]}, 1},
		"a length is cut":       {Packed{Count: 2, Records: three[:3]}, 1},
		"something follows":     {Packed{Count: 3, Records: append(slices.Clone(three), 7)}, 3},
		"a length of 2^63":      {Packed{Count: 1, Records: binary.AppendUvarint(nil, 1<<63)}, 0},
		"a length of many bits": {Packed{Count: 1, Records: bytes.Repeat([]byte{0xff}, 12)}, 0},
	} {
		_, err := l.Append(&Append{Epoch: 1, Packed: c.p})
		if bad, ok := errors.AsType[*PackedError](err); !ok || bad.Record != c.record || bad.Count != c.p.Count {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := l.Append(&Append{Epoch: 1, Records: texts(1, 1), Packed: Packed{Count: 3, Records: three}}); err == nil {
		t.Error("packed and not packed")
	}
	if _, err := l.Append(&Append{Epoch: 1, Packed: Packed{Count: 1, Records: pack(make([]byte, 17<<20))}}); err == nil {
		t.Error("larger than any batch")
	}
	if _, end, _ := l.Offsets(); end != 1 {
		t.Error("something was appended")
	}
}

// TestPackedBatchesAreReadLikeOthers: packed and other batches of one log are read from memory,
// from the file, by a follower and after the log is opened again.
func TestPackedBatchesAreReadLikeOthers(t *testing.T) {
	fsys, d, l := setup(t, small)
	a := newAck()
	for i := range 100 {
		from := uint64(i*11 + 1)
		var records [][]byte
		for o := range uint64(10) {
			records = append(records, fmt.Appendf(nil, "record %d", from+o))
		}
		if first, err := l.Append(&Append{Epoch: 1, Packed: Packed{Subject: []byte("orders.eu"), Time: 5, Count: 10, Records: pack(records...)}, Done: a}); err != nil || first != from {
			t.Fatal(first, err)
		}
		if _, err := l.Append(&Append{Epoch: 1, Records: texts(from+10, 1), Done: a}); err != nil {
			t.Fatal(err)
		}
	}
	if err := a.wait(t, 200); err != nil {
		t.Fatal(err)
	}
	mustRead(t, l, 1, 1101)
	follower, err := d.Open(Identity{Topic: "copy"}, 1, 1, nil)
	if err != nil {
		t.Fatal(err)
	}
	packed := 0
	for c := l.NewCursor(1); c.Next() < 1101; {
		v, err := c.Read(1 << 10)
		if err != nil {
			t.Fatal(err)
		}
		for b, ok := v.Next(); ok; b, ok = v.Next() {
			if _, _, ok := b.Packed(); ok {
				packed++
			}
			if b, err = ParseBatch(b); err == nil {
				err = follower.AppendBatch(b, Memory, nil)
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		v.Release()
	}
	if packed != 100 {
		t.Errorf("%d packed batches", packed)
	}
	mustRead(t, follower, 1, 1101)
	mustRead(t, l, 505, 1101) // within a packed batch
	_ = d.Close()
	mustRead(t, openLog(t, openDisk(t, fsys, "data", small), orders), 1, 1101)
}

// FuzzPacked: arbitrary payloads cause no panic, and an accepted one has the announced number of
// records.
func FuzzPacked(f *testing.F) {
	f.Add(pack([]byte("a"), nil, bytes.Repeat([]byte("x"), 300)), 3, "orders")
	f.Add([]byte{0x80, 0}, 1, "")
	f.Add([]byte{0xff, 0xff, 0xff}, 1, "a")
	f.Fuzz(func(t *testing.T, records []byte, count int, subject string) {
		p := Packed{Subject: []byte(subject), Count: count, Records: records}
		size, err := packedSize(&p, nil)
		if err != nil {
			return
		}
		b, err := ParseBatch(appendPacked(make([]byte, 0, size), 1, 1, &p, nil))
		if err != nil {
			t.Fatal(err)
		}
		it, n, bytes := b.Records(), 0, 0
		for r := (Record{}); it.Next(&r); n++ {
			bytes += len(r.Data)
		}
		if n != count || it.Err() != nil || bytes > len(records)-count {
			t.Fatal(n, count, it.Err())
		}
	})
}
