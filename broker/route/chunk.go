package route

import (
	"encoding/binary"
	"sync"

	"github.com/carillon-mq/carillon/broker/session"
)

// chunk is one buffer of a queue of encoded frames. Frames may span chunks, so all chunks have one
// size and a large message needs no buffer of its own.
type chunk struct {
	next     *chunk
	used     int
	messages int // messages whose frames begin in this chunk
	data     [chunkSize]byte
}

var chunks = sync.Pool{New: func() any { return new(chunk) }}

func (c *chunk) free() {
	c.next, c.used, c.messages = nil, 0, 0
	chunks.Put(c)
}

// frames is a queue of encoded frames. It is not safe for concurrent use.
type frames struct {
	head, tail *chunk
	bytes      int
	fixed      [headerSize + messageSize]byte // scratch space for the fixed part of a frame
}

func (f *frames) room() *chunk {
	if f.tail != nil && f.tail.used < chunkSize {
		return f.tail
	}
	c := chunks.Get().(*chunk)
	if f.tail == nil {
		f.head = c
	} else {
		f.tail.next = c
	}
	f.tail = c
	return c
}

func (f *frames) put(b []byte) {
	f.bytes += len(b)
	for len(b) > 0 {
		c := f.room()
		n := copy(c.data[c.used:], b)
		c.used += n
		b = b[n:]
	}
}

func (f *frames) putString(s string) {
	f.bytes += len(s)
	for len(s) > 0 {
		c := f.room()
		n := copy(c.data[c.used:], s)
		c.used += n
		s = s[n:]
	}
}

// take empties the queue and returns its first chunk.
func (f *frames) take() *chunk {
	head := f.head
	f.head, f.tail = nil, nil
	return head
}

// splice appends the frames of other, which is empty afterwards.
func (f *frames) splice(other *frames) {
	if other.head == nil {
		return
	}
	if f.tail == nil {
		f.head = other.head
	} else {
		f.tail.next = other.head
	}
	f.tail = other.tail
	f.bytes += other.bytes
	*other = frames{}
}

// begin encodes the header of a frame into f.fixed. body is the size of its body in bytes.
func (f *frames) begin(t frameType, body int) {
	binary.BigEndian.PutUint32(f.fixed[:], uint32(1+body))
	f.fixed[lengthSize] = byte(t)
}

func (f *frames) empty(t frameType) {
	f.begin(t, 0)
	f.put(f.fixed[:headerSize])
}

func (f *frames) token(t frameType, v uint64) {
	f.begin(t, 8)
	binary.BigEndian.PutUint64(f.fixed[headerSize:], v)
	f.put(f.fixed[:headerSize+8])
}

// opaque appends a frame whose body means nothing to the mesh.
func (f *frames) opaque(t frameType, body []byte) {
	f.begin(t, len(body))
	f.put(f.fixed[:headerSize])
	f.put(body)
}

// topics appends a Topics frame and reports whether it fits the limit.
func (f *frames) topics(parts [][]byte, limit int) bool {
	size := 0
	for _, part := range parts {
		size += len(part)
	}
	if size+1 > limit {
		return false
	}
	f.begin(frameTopics, size)
	f.put(f.fixed[:headerSize])
	for _, part := range parts {
		f.put(part)
	}
	return true
}

// interest appends a frame with a change of interest and reports whether it fits.
func (f *frames) interest(change session.Interest) bool {
	if len(change.Pattern) > maxString || len(change.Queue) > maxString {
		return false
	}
	f.begin(frameInterest, 6+len(change.Queue)+len(change.Pattern))
	binary.BigEndian.PutUint32(f.fixed[headerSize:], uint32(max(change.Count, 0)))
	binary.BigEndian.PutUint16(f.fixed[headerSize+4:], uint16(len(change.Queue)))
	f.put(f.fixed[:headerSize+6])
	f.putString(change.Queue)
	f.putString(change.Pattern)
	return true
}

// message appends the frames of m: one, or several if the names of the queue groups need them. It
// returns the number of frames, 0 if m does not fit.
func (f *frames) message(m *session.Message, reach session.Reach, maxPayload int) int {
	if len(m.Subject) == 0 || len(m.Subject) > maxString || len(m.To) > maxString || len(m.Reply) > maxString || len(m.Data) > maxPayload {
		return 0
	}
	wrote, queues := 0, reach.Queues
	all := reach.Plain || reach.Keep
	for all || len(queues) > 0 {
		n, names := 0, 0
		for n < len(queues) && n < maxString {
			size := 2 + len(queues[n])
			if len(queues[n]) > maxString || (n > 0 && names+size > maxNames) {
				break
			}
			names += size
			n++
		}
		if n == 0 && !all {
			// The name fits no frame. No client can have subscribed with such a name.
			return wrote
		}
		reach.Queues = queues[:n]
		f.messageFrame(m, reach, names)
		wrote++
		reach.Plain, reach.Keep, all, queues = false, false, false, queues[n:]
	}
	return wrote
}

func (f *frames) messageFrame(m *session.Message, reach session.Reach, names int) {
	f.begin(frameMessage, messageSize+len(m.To)+len(m.Subject)+len(m.Reply)+names+len(m.Data))
	b := f.fixed[headerSize:]
	b[0] = 0
	if reach.Plain {
		b[0] |= flagPlain
	}
	if reach.Keep {
		b[0] |= flagKeep
	}
	binary.BigEndian.PutUint16(b[1:], uint16(len(reach.Queues)))
	binary.BigEndian.PutUint16(b[3:], uint16(len(m.To)))
	binary.BigEndian.PutUint16(b[5:], uint16(len(m.Subject)))
	binary.BigEndian.PutUint16(b[7:], uint16(len(m.Reply)))
	binary.BigEndian.PutUint32(b[9:], uint32(m.Header))
	f.room().messages++
	f.put(f.fixed[:])
	f.put(m.To)
	f.put(m.Subject)
	f.put(m.Reply)
	for _, queue := range reach.Queues {
		binary.BigEndian.PutUint16(f.fixed[:], uint16(len(queue)))
		f.put(f.fixed[:2])
		f.putString(queue)
	}
	f.put(m.Data)
}
