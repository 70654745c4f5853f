package session

import "github.com/carillon-mq/carillon/broker/websocket"

// outbox holds what is still to be sent to one connection, in order: small data copied into chunks
// of its own, large payloads by reference.
type outbox struct {
	segments []segment
	size     int  // bytes to send
	held     int  // bytes of the slabs that the segments lie in
	open     bool // the last segment is a chunk with room at its end
	framed   bool // everything goes in frames: the first chunk has room for a header before it
}

type segment struct {
	bytes  []byte // part of slab
	slab   *slab
	shared bool // with others: the slab is no chunk of this outbox
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

// add appends a segment, whose reference to its slab is the outbox's from now on. A slab counts
// once if its segments are at most one apart, as those of the chunk between shared payloads are.
func (o *outbox) add(s segment) {
	n := len(o.segments)
	if !(n > 0 && o.segments[n-1].slab == s.slab || n > 1 && o.segments[n-2].slab == s.slab) {
		o.held += len(s.slab.buf)
	}
	o.segments = append(o.segments, s)
}

// free returns the free end of the open chunk.
func (o *outbox) free() []byte {
	if !o.open {
		return nil
	}
	last := o.segments[len(o.segments)-1].bytes
	return last[len(last):]
}

// room returns the free end of the open chunk, of at least n bytes.
func (o *outbox) room(n int) []byte {
	if free := o.free(); cap(free) >= n {
		return free
	}
	return o.newChunk(n)
}

func (o *outbox) newChunk(n int) []byte {
	size, before := firstChunk, 0
	if o.size > 0 {
		size = min(max(2*o.size, firstChunk), fullChunk)
	} else if o.framed {
		before = websocket.HeaderRoom
	}
	s := newSlab(max(size, before+n))
	o.add(segment{bytes: s.buf[before:before], slab: s})
	o.open = true
	return s.buf[before:before]
}

// share appends a part of a slab of others, and takes over a reference to it. What follows is
// appended to the chunk before it, if that has room.
func (o *outbox) share(data []byte, from *slab) {
	free, chunk := o.free(), (*slab)(nil)
	if cap(free) >= len(crlf) {
		chunk = o.segments[len(o.segments)-1].slab
	}
	o.add(segment{data, from, true})
	o.size += len(data)
	if o.open = chunk != nil; o.open {
		chunk.Retain()
		o.add(segment{bytes: free, slab: chunk})
	}
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
		o.share(data, from)
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

// front appends the first n bytes, or all, to parts.
func (o *outbox) front(parts [][]byte, n int) [][]byte {
	for _, s := range o.segments {
		if n == 0 {
			break
		}
		part := s.bytes[:min(len(s.bytes), n)]
		parts = append(parts, part)
		n -= len(part)
	}
	return parts
}

// consume removes the first n bytes. No empty segment is left in front, which a writer would try
// forever to write.
func (o *outbox) consume(n int) {
	o.size -= n
	i := 0
	for ; i < len(o.segments); i++ {
		size := len(o.segments[i].bytes)
		if n < size || n == 0 && size > 0 {
			break
		}
		n -= size
		o.release(i)
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

// release releases a segment, the first one that was not released.
func (o *outbox) release(i int) {
	s := o.segments[i].slab
	more := o.segments[i+1:]
	if !(len(more) > 0 && more[0].slab == s || len(more) > 1 && more[1].slab == s) {
		o.held -= len(s.buf)
	}
	s.Release()
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

// moveTo moves everything to an empty outbox.
func (o *outbox) moveTo(to *outbox) {
	o.segments, to.segments = keepSmall(to.segments[:0]), o.segments
	to.size, to.held, to.open = o.size, o.held, o.open
	o.size, o.held, o.open = 0, 0, false
}

// parkedShare is the size in bytes from which a payload stays in its slab while it is parked. It
// must also fill half of its slab, all of which counts for the connection.
const parkedShare = 32 << 10

// joinTo moves everything to an outbox that collects what is parked. It is copied to full chunks
// there: what waits in slabs of its own would hold many times the memory of its bytes.
func (o *outbox) joinTo(to *outbox) {
	for _, s := range o.segments {
		if s.shared && len(s.bytes) >= parkedShare && 2*len(s.bytes) >= len(s.slab.buf) {
			s.slab.Retain()
			to.share(s.bytes, s.slab)
			continue
		}
		for left := s.bytes; len(left) > 0; {
			free := to.free()
			if cap(free) == 0 {
				free = to.newChunk(min(len(left), fullChunk))
			}
			n := min(len(left), cap(free))
			_ = append(free, left[:n]...)
			to.grow(n)
			left = left[n:]
		}
	}
	o.reset()
}

var crlf = []byte("\r\n")
