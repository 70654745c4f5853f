package removal

import (
	"encoding/binary"
	"fmt"
	"iter"
)

// Expiry says when a record is to be removed, or a scheduled message is due: At is a time of
// records, in nanoseconds since 1970. The record has its Epoch, or it is another one (M1). Of
// several Expiries of a record the latest At holds.
type Expiry struct {
	Epoch, Offset uint64
	At            int64
}

// expiriesVersion is the first byte of encoded Expiries. They are where Items are.
const expiriesVersion = 2

// AppendExpiries appends expiries to dst: a byte with the version, and for each one the differences
// of its epoch, its offset and its time to those of the one before, as varints.
func AppendExpiries(dst []byte, expiries ...Expiry) []byte {
	dst = append(dst, expiriesVersion)
	var before Expiry
	for _, e := range expiries {
		dst = binary.AppendVarint(dst, int64(e.Epoch-before.Epoch))
		dst = binary.AppendVarint(dst, int64(e.Offset-before.Offset))
		dst = binary.AppendVarint(dst, e.At-before.At)
		before = e
	}
	return dst
}

// AreExpiries reports whether what is where an Item may be are Expiries.
func AreExpiries(data []byte) bool { return len(data) > 0 && data[0] == expiriesVersion }

// ExpiryItems yields expiries in encoded form, at most ItemSpans at once. Each is valid until the
// next one.
func ExpiryItems(expiries iter.Seq[Expiry]) iter.Seq[[]byte] {
	return func(yield func([]byte) bool) {
		var some []Expiry
		var data []byte
		for e := range expiries {
			if some = append(some, e); len(some) < ItemSpans {
				continue
			}
			data = AppendExpiries(data[:0], some...)
			if some = some[:0]; !yield(data) {
				return
			}
		}
		if len(some) > 0 {
			yield(AppendExpiries(data[:0], some...))
		}
	}
}

// EachExpiry calls f for each of encoded Expiries. It returns an error that wraps ErrMalformed for
// bytes that are none; f may have been called before.
func EachExpiry(data []byte, f func(Expiry)) error {
	if !AreExpiries(data) {
		return fmt.Errorf("%w: expiries of an unknown version", ErrMalformed)
	}
	data = data[1:]
	for before := (Expiry{}); len(data) > 0; {
		epoch, n := binary.Varint(data)
		offset, m := binary.Varint(data[max(n, 0):])
		if n <= 0 || m <= 0 {
			return fmt.Errorf("%w: expiries that are too short", ErrMalformed)
		}
		at, k := binary.Varint(data[n+m:])
		if k <= 0 {
			return fmt.Errorf("%w: expiries that are too short", ErrMalformed)
		}
		before = Expiry{Epoch: before.Epoch + uint64(epoch), Offset: before.Offset + uint64(offset), At: before.At + at}
		f(before)
		data = data[n+m+k:]
	}
	return nil
}
