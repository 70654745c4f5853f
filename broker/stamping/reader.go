package stamping

import (
	"encoding/binary"
	"errors"
)

var errMalformed = errors.New("the attributes of its subjects are malformed")

// Reader reads the stamps of a batch, in the order of its records. The zero Reader has none.
type Reader struct {
	data []byte
	at   int
	// from ≤ offset < next have text.
	from, next uint64
	text       []byte
}

// NewReader returns a Reader of the data of an extension, of a batch with that base.
func NewReader(data []byte, base uint64) Reader { return Reader{data: data, from: base, next: base} }

// Any reports whether there are stamps.
func (r *Reader) Any() bool { return len(r.data) > 0 }

// At returns the stamp of a record; nil: it has none. Records are asked for in their order. The
// stamp is valid as long as the batch is.
func (r *Reader) At(offset uint64) (text []byte, err error) {
	for offset >= r.next && r.at < len(r.data) {
		if err := r.run(); err != nil {
			return nil, err
		}
	}
	if offset >= r.from && offset < r.next {
		return r.text, nil
	}
	return nil, nil
}

// run reads the next run.
func (r *Reader) run() error {
	gap, ok := r.number()
	count, ok2 := r.number()
	ref, ok3 := r.number()
	if !ok || !ok2 || !ok3 || count == 0 || r.next+gap < r.next || r.next+gap+count <= r.next+gap {
		return errMalformed
	}
	r.from, r.next = r.next+gap, r.next+gap+count
	at := r.at
	if ref > 0 {
		if ref > uint64(at) {
			return errMalformed
		}
		at = int(ref - 1)
	}
	size, n := binary.Uvarint(r.data[at:])
	if n <= 0 || size == 0 || size > Most || size > uint64(len(r.data)-at-n) {
		return errMalformed
	}
	r.text = r.data[at+n : at+n+int(size) : at+n+int(size)]
	if ref == 0 {
		r.at = at + n + int(size)
	}
	return nil
}

func (r *Reader) number() (uint64, bool) {
	n, size := binary.Uvarint(r.data[r.at:])
	if size <= 0 {
		return 0, false
	}
	r.at += size
	return n, true
}
