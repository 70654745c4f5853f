package route

import (
	"io"

	"github.com/carillon-mq/carillon/broker/session"
)

// reader turns a byte stream into frames that point into its buffer.
type reader struct {
	source     io.Reader
	limit      int // of a frame
	buf        []byte
	start, end int
	roomy      int // reads in a row that would have fitted the normal buffer
}

func newReader(source io.Reader) *reader {
	return &reader{source: source, limit: maxHello, buf: make([]byte, maxHello+lengthSize)}
}

// next returns the next frame that is complete in the buffer; ok is false if there is none. The
// body is valid until fill.
func (r *reader) next() (t frameType, body []byte, ok bool, err error) {
	t, body, n, err := splitFrame(r.buf[r.start:r.end], r.limit)
	if err != nil || n == 0 {
		return 0, nil, false, err
	}
	r.start += n
	return t, body, true, nil
}

// fill reads once. The buffer grows with the bytes that came, never with a length that was
// merely announced.
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
		err = nil // An error will come again, after what came with it has been used.
	}
	return n, err
}

func (r *reader) resize(size int) {
	buf := make([]byte, size)
	copy(buf, r.buf[:r.end])
	r.buf, r.roomy = buf, 0
}

// one reads until there is a frame, for the exchange of hellos.
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

// decoder holds what decoding message frames needs, so that none of them allocates.
type decoder struct {
	message session.Message
	queues  []string
	names   map[string]string
}

// decode reads a message frame. What it returns is valid until the next call.
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
