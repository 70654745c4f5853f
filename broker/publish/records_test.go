package publish

import (
	"bytes"
	"encoding/binary"
	"slices"
	"strings"
	"testing"
)

// prefixed are records as a message carries them.
func prefixed(records ...string) string {
	var b []byte
	for _, r := range records {
		b = append(binary.AppendUvarint(b, uint64(len(r))), r...)
	}
	return string(b)
}

// FuzzRecords: CheckRecords accepts the same payloads as a simple reader of records, in the
// shortest encoding only.
func FuzzRecords(f *testing.F) {
	f.Add([]byte(prefixed("a", "", "ccc")), 3, 0)
	f.Add([]byte("\x81\x00a"), 1, 0)
	f.Add([]byte("\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"), 1, 10)
	f.Fuzz(func(t *testing.T, payload []byte, count, most int) {
		if count < 1 {
			return
		}
		why := CheckRecords(payload, count, most)
		// The slow way: cut by cut, and put together again.
		rest, ok, again := payload, true, []byte(nil)
		for i := 0; i < count && ok; i++ {
			size, n := binary.Uvarint(rest)
			if ok = n > 0 && size <= uint64(len(rest)-n) && (most <= 0 || size <= uint64(most)); ok {
				again = append(binary.AppendUvarint(again, size), rest[n:n+int(size)]...)
				rest = rest[n+int(size):]
			}
		}
		ok = ok && len(rest) == 0 && bytes.Equal(again, payload) && count <= MaxRecords
		if ok != (why == "") {
			t.Errorf("%d records of at most %d in %q: %q", count, most, payload, why)
		}
	})
}

func BenchmarkCheckRecords(b *testing.B) {
	payload := []byte(prefixed(slices.Repeat([]string{strings.Repeat("x", 64)}, 16384)...))
	b.SetBytes(int64(len(payload)))
	for b.Loop() {
		if why := CheckRecords(payload, 16384, 0); why != "" {
			b.Fatal(why)
		}
	}
}
