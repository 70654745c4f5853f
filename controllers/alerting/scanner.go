package alerting

import (
	"bytes"
	"errors"
	"fmt"
	"strconv"
)

// errMessage is a message that is larger than maxMessage.
var errMessage = errors.New("the broker sent a message that is too large")

var (
	lineEnd = []byte("\r\n")
	info    = []byte("INFO ")
)

// scanner checks what a server sends before nats.go sees it, which allocates whatever size a
// message is said to have, and reads lines without a bound. What is not written as brokers write it
// is refused, so that both see the same lines: nats.go accepts more, and takes a carriage return
// within a line in two ways. The zero value is at the start of a connection.
type scanner struct {
	line  []byte // of a control line that has not ended
	left  int    // bytes of a message's payload, with its line end
	spent int    // see maxSpent
}

// scan takes what comes next. After an error, the connection has to end, and p must not be used.
func (s *scanner) scan(p []byte) error {
	if s.spent += len(p); s.spent > maxSpent {
		return fmt.Errorf("the broker sent more than %d bytes in a turn", maxSpent)
	}
	for len(p) > 0 {
		switch {
		case s.left > len(lineEnd):
			n := min(s.left-len(lineEnd), len(p))
			s.left, p = s.left-n, p[n:]
		case s.left > 0:
			if p[0] != lineEnd[len(lineEnd)-s.left] {
				return errors.New("the broker sent a message without an end")
			}
			s.left, p = s.left-1, p[1:]
		default:
			n, ends := len(p), false
			if i := bytes.IndexByte(p, '\n'); i >= 0 {
				n, ends = i+1, true
			}
			if size := len(s.line) + n; size > maxInfo || size > maxLine && !bytes.HasPrefix(append(s.line, p[:n]...), info) {
				return errors.New("the broker sent a control line that is too long")
			}
			s.line, p = append(s.line, p[:n]...), p[n:]
			if !ends {
				return nil
			}
			if err := s.control(); err != nil {
				return err
			}
			s.line = s.line[:0]
		}
	}
	return nil
}

// control judges a whole control line.
func (s *scanner) control() error {
	if s.spent += lineCost; s.spent > maxSpent {
		return fmt.Errorf("the broker sent more than %d bytes in a turn", maxSpent)
	}
	line, ok := bytes.CutSuffix(s.line, lineEnd)
	if !ok || bytes.ContainsFunc(line, func(r rune) bool { return r < ' ' }) {
		return errors.New("the broker sent a malformed control line")
	}
	words := bytes.Split(line, []byte(" "))
	numbers := 0 // at the end of the line
	switch name := string(words[0]); {
	case name == "INFO", name == "-ERR", string(line) == "PING", string(line) == "PONG", string(line) == "+OK":
		return nil
	case name == "MSG" && (len(words) == 4 || len(words) == 5):
		numbers = 1
	case name == "HMSG" && (len(words) == 5 || len(words) == 6):
		numbers = 2
	default:
		return errors.New("the broker sent an unknown control line")
	}
	header, size := 0, 0
	for i, w := range words {
		if len(w) == 0 {
			return errors.New("the broker sent a malformed control line")
		}
		if i < len(words)-numbers {
			continue
		}
		n, err := strconv.ParseUint(string(w), 10, 64)
		switch {
		case errors.Is(err, strconv.ErrRange), err == nil && n > maxMessage:
			return errMessage
		case err != nil:
			return errors.New("the broker sent a malformed size")
		}
		header, size = size, int(n)
	}
	if header > size {
		return errors.New("the broker sent a header that is larger than its message")
	}
	s.left = size + len(lineEnd)
	return nil
}
