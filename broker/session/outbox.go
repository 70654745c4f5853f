package session

import "github.com/carillon-mq/carillon/broker/websocket"

// outbox holds what is still to be sent to one connection, in order: small data copied into chunks
// of its own, large payloads by reference.
type outbox struct {
	segments []segment
	size     int
	open     bool // the last segment is a chunk with room at its end
	framed   bool // everything goes in frames: the first chunk has room for a header before it
}

type segment struct {
	bytes []byte // part of slab
	slab  *slab
}

const (
	firstChunk = 1 << 10
	fullChunk  = 64 << 10
	// shareAbove is the payload size in bytes from which a reference is cheaper than a copy. The
	// measured break-even is about 1 KiB. A payload must also fill a quarter of its slab, or a slow
	// reader would hold much more memory than what is counted for it.
	shareAbove = 4 << 10
)

func (o *outbox) empty() bool { return o.size == 0 }

// room returns the free end of the open chunk, of at least n bytes.
func (o *outbox) room(n int) []byte {
	if o.open {
		last := &o.segments[len(o.segments)-1]
		if free := last.bytes[len(last.bytes):cap(last.bytes)]; len(free) >= n || cap(free) >= n {
			return free[:0]
		}
	}
	size, before := firstChunk, 0
	if o.size > 0 {
		size = min(max(2*o.size, firstChunk), fullChunk)
	} else if o.framed {
		before = websocket.HeaderRoom
	}
	s := newSlab(max(size, before+n))
	o.segments = append(o.segments, segment{s.buf[before:before], s})
	o.open = true
	return s.buf[before:before]
}

func (o *outbox) grow(n int) {
	last := &o.segments[len(o.segments)-1]
	last.bytes = last.bytes[:len(last.bytes)+n]
	o.size += n
}

// write appends a copy of b. Nothing leaves no segment, which no writer would ever consume.
func (o *outbox) write(b []byte) {
	if len(b) == 0 {
		return
	}
	_ = append(o.room(len(b)), b...)
	o.grow(len(b))
}

// message appends head, sid, tail, data and a CRLF. data lies in from.
func (o *outbox) message(head []byte, sid string, tail, data []byte, from *slab) {
	line := len(head) + len(sid) + len(tail)
	if len(data) >= shareAbove && from != nil && len(data)*4 >= len(from.buf) {
		b := append(o.room(line), head...)
		b = append(b, sid...)
		_ = append(b, tail...)
		o.grow(line)
		from.Retain()
		o.segments = append(o.segments, segment{data, from})
		o.size += len(data)
		o.open = false
		o.write(crlf)
		return
	}
	n := line + len(data) + len(crlf)
	b := append(o.room(n), head...)
	b = append(b, sid...)
	b = append(b, tail...)
	b = append(b, data...)
	_ = append(b, crlf...)
	o.grow(n)
}

// consume removes the first n bytes.
func (o *outbox) consume(n int) {
	o.size -= n
	i := 0
	for ; n > 0 && n >= len(o.segments[i].bytes); i++ {
		n -= len(o.segments[i].bytes)
		o.segments[i].slab.Release()
	}
	if n > 0 {
		o.segments[i].bytes = o.segments[i].bytes[n:]
	}
	left := copy(o.segments, o.segments[i:])
	clear(o.segments[left:])
	o.segments = o.segments[:left]
	if left == 0 {
		o.segments, o.open = keepSmall(o.segments), false
	}
}

// keepSmall drops the segment list of a connection that was far behind once, so that its memory is
// freed.
func keepSmall(s []segment) []segment {
	if cap(s) > 4 {
		return nil
	}
	return s
}

func (o *outbox) reset() {
	if o.size > 0 {
		o.consume(o.size)
	}
}

// moveTo moves everything to another outbox.
func (o *outbox) moveTo(to *outbox) {
	to.segments = append(to.segments, o.segments...)
	to.size += o.size
	to.open = o.open
	clear(o.segments)
	o.segments, o.size, o.open = keepSmall(o.segments[:0]), 0, false
}

// copyBelow is the size in bytes below which joinTo copies: what waits in slabs of its own would
// take many times the memory that counts as pending.
const copyBelow = firstChunk / 2

// joinTo moves everything to an outbox that collects what is parked.
func (o *outbox) joinTo(to *outbox) {
	if o.size >= copyBelow || to.empty() {
		o.moveTo(to)
		return
	}
	for _, s := range o.segments {
		to.write(s.bytes)
	}
	o.reset()
}

var crlf = []byte("\r\n")
