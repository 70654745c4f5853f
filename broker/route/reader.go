package route

import (
	"io"

	"github.com/carillon-mq/carillon/broker/session"
)

// reader splits a byte stream into frames. Their bodies alias its buffer.
type reader struct {
	source     io.Reader
	limit      int // largest frame, in bytes
	buf        []byte
	start, end int
	roomy      int // consecutive reads that would have fitted readSize
}

func newReader(source io.Reader) *reader {
	return &reader{source: source, limit: maxHello, buf: make([]byte, maxHello+lengthSize)}
}

// next returns the next complete frame of the buffer, or ok false if there is none. The body is
// valid until fill.
func (r *reader) next() (t frameType, body []byte, ok bool, err error) {
	t, body, n, err := splitFrame(r.buf[r.start:r.end], r.limit)
	if err != nil || n == 0 {
		return 0, nil, false, err
	}
	r.start += n
	return t, body, true, nil
}

// fill reads once. The buffer grows with the bytes that arrived, never with an announced length.
func (r *reader) fill() (int, error) {
	held := copy(r.buf, r.buf[r.start:r.end])
	r.start, r.end = 0, held
	switch {
	case held == len(r.buf) || len(r.buf) < readSize && r.limit > maxHello:
		r.resize(max(2*len(r.buf), readSize))
	case held > readSize/2:
		r.roomy = 0
	case len(r.buf) > readSize:
		if r.roomy++; r.roomy > shrinkAfter {
			r.resize(readSize)
		}
	}
	n, err := r.source.Read(r.buf[r.end:])
	r.end += n
	if n > 0 {
		err = nil // The next read returns the error again.
	}
	return n, err
}

func (r *reader) resize(size int) {
	buf := make([]byte, size)
	copy(buf, r.buf[:r.end])
	r.buf, r.roomy = buf, 0
}

// one reads until there is one frame, for the exchange of hellos.
func (r *reader) one() (frameType, []byte, error) {
	for {
		t, body, ok, err := r.next()
		if ok || err != nil {
			return t, body, err
		}
		if _, err := r.fill(); err != nil {
			if err == io.EOF && r.end > 0 {
				err = io.ErrUnexpectedEOF
			}
			return 0, nil, err
		}
	}
}

// decoder keeps the buffers for decoding message frames, so that decoding does not allocate.
type decoder struct {
	message session.Message
	queues  []string
	names   map[string]string
}

// decode decodes a message frame. Its results are valid until the next call.
func (d *decoder) decode(body []byte) (m *session.Message, reach session.Reach, err error) {
	reach, groups, names, err := parseMessage(body, &d.message)
	if err != nil {
		return nil, session.Reach{}, err
	}
	d.queues = d.queues[:0]
	for range groups {
		var name []byte
		name, names = nextName(names)
		d.queues = append(d.queues, d.intern(name))
	}
	reach.Queues = d.queues
	return &d.message, reach, nil
}

func (d *decoder) intern(name []byte) string {
	if s, ok := d.names[string(name)]; ok {
		return s
	}
	if d.names == nil || len(d.names) >= maxInterned {
		d.names = make(map[string]string)
	}
	s := string(name)
	d.names[s] = s
	return s
}
