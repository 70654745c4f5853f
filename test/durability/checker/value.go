package checker

import (
	"bytes"
	"fmt"
)

// Value is the content of one message. It is unique.
type Value struct {
	Publisher int
	Counter   uint64 // of that publisher, from 1
}

func (v Value) String() string { return fmt.Sprintf("p%d/%d", v.Publisher, v.Counter) }

// sizes are the numbers of bytes after a value's name. Most messages are small; some exceed what
// disks and logs write at once.
var sizes = [...]int{0, 16, 60, 100, 100, 180, 250, 400, 700, 1000, 16, 60, 100, 180, 5000, 40000}

// Encode returns the payload of a value on a stream. All bytes follow from the value, so that any
// wrong byte is found.
func Encode(stream string, v Value) []byte {
	x := uint64(v.Publisher)*0x9e3779b97f4a7c15 ^ v.Counter*0xbf58476d1ce4e5b9
	size := sizes[(x>>32)%uint64(len(sizes))]
	if v.Counter%16 != 0 && size > 1000 {
		size = 1000
	}
	out := make([]byte, 0, 64+size)
	out = fmt.Appendf(out, "%s %d %d %d ", stream, v.Publisher, v.Counter, size)
	for range size {
		x = x*6364136223846793005 + 1442695040888963407
		out = append(out, 'a'+byte(x>>59)%26)
	}
	return out
}

// Decode returns the value of a payload, and an error if any byte is wrong.
func Decode(stream string, payload []byte) (Value, error) {
	var name string
	var v Value
	var size int
	if _, err := fmt.Sscanf(string(payload[:min(len(payload), 200)]), "%s %d %d %d ", &name, &v.Publisher, &v.Counter, &size); err != nil {
		return Value{}, fmt.Errorf("%.60q is no value: %w", payload, err)
	}
	if want := Encode(stream, v); !bytes.Equal(want, payload) {
		at := 0
		for at < min(len(want), len(payload)) && want[at] == payload[at] {
			at++
		}
		return Value{}, fmt.Errorf("%d bytes %.60q should be the %d bytes of %s; they differ at byte %d", len(payload), payload, len(want), v, at)
	}
	return v, nil
}
