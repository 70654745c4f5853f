package bench

import (
	"bytes"
	"fmt"
	"sync/atomic"
)

// A floodSubscriber receives everything that a flood publishes. Its reading goroutine owns all but
// the atomics, until the connection has ended.
type floodSubscriber struct {
	flood      *flood
	conn       *wire
	line       []byte // in front of every payload
	accounts   []sequenceAccount
	probed     []atomic.Bool // by publisher
	at         int64         // when the bytes in hand were read
	fresh      int64         // messages in them
	counted    int64         // messages read since flood.from
	last       int64         // when the last of these came
	unexpected int64
	refused    string // the last -ERR
	received   atomic.Int64
	over       atomic.Bool // the connection has ended
}

func newFloodSubscriber(f *flood, conn *wire, publishers int) *floodSubscriber {
	return &floodSubscriber{
		flood: f, conn: conn, line: fmt.Appendf(nil, "MSG %s 1 %d\r\n", f.subject, f.size),
		accounts: make([]sequenceAccount, publishers), probed: make([]atomic.Bool, publishers),
	}
}

func (s *floodSubscriber) read() error {
	return s.conn.readBy(s.parse, max(floodReadBytes, 2*(s.flood.size+maxLineBytes)), 0, s.count)
}

// parse takes the frames that look as expected by comparison, and leaves the others to parseFrames.
func (s *floodSubscriber) parse(data []byte) (used int, err error) {
	if len(data) > 0 {
		s.at = now()
	}
	step := len(s.line) + s.flood.size + len(crlf)
	for len(data)-used >= step && bytes.Equal(data[used:used+len(s.line)], s.line) {
		frame := data[used : used+step]
		if frame[step-2] != '\r' || frame[step-1] != '\n' {
			return used, errFraming
		}
		s.onMessage(nil, nil, frame[len(s.line):step-len(crlf)])
		used += step
	}
	if used == len(data) || bytes.HasPrefix(data[used:], s.line) {
		return used, nil
	}
	rest, err := parseFrames(data[used:], s)
	return used + rest, err
}

func (s *floodSubscriber) onMessage(_, _, payload []byte) {
	stamp, whole := readFloodStamp(payload, uint32(s.flood.id), s.flood.filler)
	number := int(stamp.publisher &^ floodProbe)
	switch {
	case !whole || number >= len(s.accounts):
		s.unexpected++
	case stamp.publisher&floodProbe != 0:
		s.probed[number].Store(true)
	default:
		before := s.accounts[number].distinct
		s.accounts[number].observe(stamp.sequence)
		s.fresh += int64(s.accounts[number].distinct - before)
	}
}

// count enters what one read brought.
func (s *floodSubscriber) count() error {
	if s.fresh == 0 {
		return nil
	}
	if s.at >= s.flood.from.Load() {
		s.counted += s.fresh
		s.last = s.at
	}
	s.received.Add(s.fresh)
	s.fresh = 0
	return nil
}

func (s *floodSubscriber) onInfo([]byte)       {}
func (s *floodSubscriber) onPing()             { _ = s.conn.out.write(pong) }
func (s *floodSubscriber) onPong()             {}
func (s *floodSubscriber) onError(text []byte) { s.refused = string(text) }
