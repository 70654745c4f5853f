package session

import "github.com/carillon-mq/carillon/broker/websocket"

// frame makes frames of at most websocket.MaxFrame bytes of everything in an outbox that is framed.
// The first header goes before the first chunk. Payloads stay references.
func (o *outbox) frame() {
	if o.size == 0 {
		return
	}
	first := min(o.size, websocket.MaxFrame)
	if first < o.size {
		o.split()
	}
	n := websocket.HeaderSize(first)
	s := &o.segments[0]
	s.bytes = s.slab.buf[websocket.HeaderRoom-n : websocket.HeaderRoom+len(s.bytes)]
	websocket.PutHeader(s.bytes, first)
	o.size += n
}

// split adds the headers of all frames but the first one.
func (o *outbox) split() {
	more := (o.size - 1) / websocket.MaxFrame
	headers, used := newSlab(more*websocket.HeaderRoom), 0
	framed := make([]segment, 0, len(o.segments)+2*more)
	left, room := o.size, websocket.MaxFrame // bytes from this frame on; bytes that fit in it
	for _, s := range o.segments {
		for len(s.bytes) > room {
			if room > 0 {
				s.slab.Retain()
				framed = append(framed, segment{s.bytes[:room], s.slab, s.shared})
				s.bytes = s.bytes[room:]
			}
			left -= websocket.MaxFrame
			room = min(left, websocket.MaxFrame)
			n := websocket.HeaderSize(room)
			header := headers.buf[used : used+n]
			websocket.PutHeader(header, room)
			headers.Retain()
			framed = append(framed, segment{bytes: header, slab: headers})
			used += n
		}
		framed = append(framed, s)
		room -= len(s.bytes)
	}
	headers.Release()
	o.segments, o.held = o.segments[:0], 0
	for _, s := range framed {
		o.add(s)
	}
	o.size += used
}
