package session

import (
	"slices"
	"testing"
)

// TestRoomForLargeOperations: a client announces 1 MiB. Room is made as it arrives, since anybody
// can announce. When it has arrived, the client may have as much again at once: its bytes are not
// copied from slab to slab, and the next operation is not read into the slab of this one.
func TestRoomForLargeOperations(t *testing.T) {
	const need = 1<<20 + 100
	c := &Conn{readSize: fullChunk}
	operation := func() (slabs []int) {
		for c.end-c.start < need {
			if c.in == nil {
				c.in, c.start, c.end = newSlab(c.readSize), 0, 0
			}
			if n := len(c.in.buf); len(slabs) == 0 || slabs[len(slabs)-1] != n {
				slabs = append(slabs, n)
			}
			c.readN = len(c.room()) // the socket has more than is read
			c.end += c.readN
			if c.end-c.start < need {
				c.makeRoom(need)
			}
		}
		c.start += need
		c.proven = max(c.proven, need)
		if c.start != c.end {
			t.Errorf("%d bytes of the next operation were read", c.end-c.start)
		}
		c.makeRoom(0)
		return slabs
	}
	if got, want := operation(), []int{64 << 10, 256 << 10, 1 << 20, 2 << 20}; !slices.Equal(got, want) {
		t.Errorf("the first operation was read into slabs of %d bytes, not %d", got, want)
	}
	if got, want := operation(), []int{64 << 10, 2 << 20}; !slices.Equal(got, want) {
		t.Errorf("the second operation was read into slabs of %d bytes, not %d", got, want)
	}
}
