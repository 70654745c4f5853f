package log

import (
	"bytes"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/carillon-mq/carillon/broker/stamping"
)

func encode(t interface{ Fatal(...any) }, epoch, base uint64, records []Record, ext []Extension) Batch {
	size, err := batchSize(records, ext)
	if err != nil {
		t.Fatal(err)
	}
	b := appendBatch(make([]byte, 0, size), epoch, base, records, ext)
	if len(b) != size {
		t.Fatal("the size was announced as", size, "and is", len(b))
	}
	return b
}

func TestAnyBatchIsDecodedAsItWasEncoded(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		blob := rapid.SliceOfN(rapid.Byte(), 0, 200)
		var records []Record
		for range rapid.IntRange(1, 20).Draw(t, "records") {
			r := Record{Time: rapid.Int64().Draw(t, "time"), Subject: blob.Draw(t, "subject"), Data: blob.Draw(t, "data"), Attributes: blob.Draw(t, "attributes")}
			if n := len(records); n > 0 && rapid.Bool().Draw(t, "same") {
				r.Subject = records[n-1].Subject
			}
			r.Header = rapid.IntRange(0, len(r.Data)).Draw(t, "header")
			records = append(records, r)
		}
		var ext []Extension
		for range rapid.IntRange(0, 3).Draw(t, "extensions") {
			ext = append(ext, Extension{Type: rapid.Uint16Range(stamping.ExtensionType+1, 0xffff).Draw(t, "type"), Data: blob.Draw(t, "extension")})
		}
		b, err := ParseBatch(append(encode(t, 3, 9, records, ext), "what follows"...))
		if err != nil {
			t.Fatal(err)
		}
		it, i := b.Records(), 0
		for r := (Record{}); it.Next(&r); i++ {
			w := records[i]
			if r.Offset != uint64(9+i) || r.Time != w.Time || r.Header != w.Header || !bytes.Equal(r.Subject, w.Subject) || !bytes.Equal(r.Data, w.Data) || !bytes.Equal(r.Attributes, w.Attributes) {
				t.Fatalf("record %d is %+v, was %+v", i, r, w)
			}
		}
		if i != len(records) || it.Err() != nil {
			t.Fatal(i, it.Err())
		}
		x := b.Extensions()
		for _, w := range ext {
			if e, ok := x.Next(); !ok || e.Type != w.Type || !bytes.Equal(e.Data, w.Data) {
				t.Fatalf("extension %+v", e)
			}
		}
		if _, more := x.Next(); more || x.Err() != nil {
			t.Fatal("more extensions than there were")
		}
	})
}

func TestEveryFlippedBitOfABatchIsFound(t *testing.T) {
	b := encode(t, 1, 1, texts(1, 3), []Extension{{Type: 1, Data: []byte("x")}})
	for bit := range len(b) * 8 {
		flipped := slices.Clone(b)
		flipped[bit/8] ^= 1 << (bit % 8)
		if _, err := ParseBatch(flipped); err == nil {
			t.Errorf("bit %d", bit)
		}
	}
}

func TestAnIdentityThatWasChangedIsRefused(t *testing.T) {
	m := &identityFile{Version: metaSole, Topic: "orders", Log: 7, Start: 3, Durable: 3, Spec: []byte("spec")}
	data, err := encodeIdentity(m)
	if err != nil {
		t.Fatal(err)
	}
	for bit := range len(data) * 8 {
		flipped := slices.Clone(data)
		flipped[bit/8] ^= 1 << (bit % 8)
		if got, err := decodeIdentity(flipped); err == nil {
			t.Errorf("bit %d: %+v", bit, got)
		}
	}
	mended := append(bytes.Replace(data[:bytes.IndexByte(data, '\n')], []byte(`"start":3`), []byte(`"start":1`), 1), '\n')
	if got, err := decodeIdentity(mended); err != nil || got.Start != 1 {
		t.Error("a person can't mend it:", err)
	}
}

// FuzzParseBatch: arbitrary bytes cause no panic, and an accepted batch has the number of records
// in its head.
func FuzzParseBatch(f *testing.F) {
	good := encode(f, 1, 1, texts(1, 3), []Extension{{Type: 1, Data: []byte("x")}})
	f.Add([]byte(good))
	f.Add([]byte(good[:60]))
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, data []byte) {
		_, _ = ParseBatch(data)
		if len(data) < batchHeader {
			return
		}
		// With the checksum made right, the decoder itself has to stand it.
		fixed := slices.Clone(data)
		fixed[8], fixed[9] = kindBatch, batchVersion
		seal(fixed)
		b, err := ParseBatch(fixed)
		if err != nil {
			return
		}
		it, n := b.Records(), 0
		for r := (Record{}); it.Next(&r); n++ {
			if r.Header > len(r.Data) {
				t.Fatal("a header longer than its record")
			}
		}
		if n != b.Count() || it.Err() != nil {
			t.Fatal(n, b.Count(), it.Err())
		}
	})
}
