package protocol

import (
	"bytes"

	"github.com/carillon-mq/carillon/broker/limits"
)

// Next parses the operation at the start of buf into op, whose slices alias buf. n is its size in
// bytes.
//
// If n is 0 and err is nil, buf holds a part of an operation only. Then need, if not 0, is the size
// of the complete operation. It is known once the control line of a PUB is complete, so that a
// reader can size its buffer.
//
// An error is always an *Error. After it, op and the rest of the stream are unusable.
func Next(buf []byte, lim Limits, op *Op) (n, need int, err error) {
	*op = Op{}
	if lim.ControlLine == 0 {
		lim.ControlLine = limits.ControlLine
	}
	if len(buf) == 0 {
		return 0, 0, nil
	}
	// The most frequent verb is checked first.
	if len(buf) > 3 && buf[0]|0x20 == 'p' && buf[1]|0x20 == 'u' && buf[2]|0x20 == 'b' && isSpace(buf[3]) {
		return nextPub(buf, lim, op)
	}
	verb, word := verbOf(buf)
	if verb == VerbNone {
		return 0, 0, ErrUnknownOperation
	}
	whole, ok := match(buf, word)
	if !ok {
		return 0, 0, ErrUnknownOperation
	}
	if !whole {
		return 0, 0, nil
	}
	start := len(word)
	switch verb {
	case VerbPub, VerbSub, VerbUnsub, VerbErr:
		if start == len(buf) {
			return 0, 0, nil
		}
		if !isSpace(buf[start]) {
			return 0, 0, ErrUnknownOperation
		}
		start++
	}
	if verb == VerbPub {
		return nextHPub(buf, lim, op)
	}
	arg, n, err := line(buf, start, lim.ControlLine)
	if n == 0 {
		return 0, 0, err
	}
	op.Verb = verb
	switch verb {
	case VerbSub:
		err = parseSub(arg, op)
	case VerbUnsub:
		err = parseUnsub(arg, op)
	case VerbConnect, VerbInfo:
		op.JSON = trim(arg)
	case VerbErr:
		op.Data = trim(arg)
	}
	// PING, PONG and +OK have no arguments, but nats-server accepts and ignores some.
	if err != nil {
		return 0, 0, err
	}
	return n, 0, nil
}

// verbOf returns the verb that the first bytes of buf suggest, and its lower-case spelling, which
// the caller matches against the rest. If they leave a choice, any of the candidates will do.
func verbOf(buf []byte) (verb Verb, word string) {
	switch buf[0] {
	case 'P', 'p':
		if len(buf) == 1 {
			return VerbPing, "ping"
		}
		switch buf[1] {
		case 'U', 'u':
			// A complete "PUB " was handled before.
			return VerbPub, "pub"
		case 'O', 'o':
			return VerbPong, "pong"
		default:
			return VerbPing, "ping"
		}
	case 'H', 'h':
		return VerbPub, "hpub"
	case 'S', 's':
		return VerbSub, "sub"
	case 'U', 'u':
		return VerbUnsub, "unsub"
	case 'C', 'c':
		return VerbConnect, "connect"
	case 'I', 'i':
		return VerbInfo, "info"
	case '+':
		return VerbOK, "+ok"
	case '-':
		return VerbErr, "-err"
	}
	return VerbNone, ""
}

// match compares the start of buf with word, ignoring case. ok reports that buf, as far as it goes,
// equals word; whole, that all of word was there.
func match(buf []byte, word string) (whole, ok bool) {
	for i := range len(word) {
		if i == len(buf) {
			return false, true
		}
		c := buf[i]
		if 'A' <= c && c <= 'Z' {
			c |= 0x20
		}
		if c != word[i] {
			return false, false
		}
	}
	return true, true
}

// line returns the control line from start to its end, LF or CRLF, and the index after it. n is 0
// if the line is incomplete, or longer than limit, which is an error.
func line(buf []byte, start, limit int) (arg []byte, n int, err error) {
	arg = buf[start:]
	i := bytes.IndexByte(arg[:min(len(arg), limit+2)], '\n')
	if i < 0 {
		if len(arg) > limit+1 || len(arg) == limit+1 && arg[limit] != '\r' {
			return nil, 0, ErrMaxControlLine
		}
		return nil, 0, nil
	}
	n = start + i + 1
	if i > 0 && arg[i-1] == '\r' {
		i--
	}
	if i > limit {
		return nil, 0, ErrMaxControlLine
	}
	return arg[:i], n, nil
}

// nextPub parses a buffer that begins with "PUB ".
func nextPub(buf []byte, lim Limits, op *Op) (n, need int, err error) {
	arg, start, err := line(buf, len("PUB "), lim.ControlLine)
	if start == 0 {
		return 0, 0, err
	}
	var f [4][]byte
	var size []byte
	switch fields(arg, &f) {
	case 2:
		size = f[1]
	case 3:
		op.Reply, size = f[1], f[2]
	case fieldsCR:
		return 0, 0, errArgumentCR
	default:
		return 0, 0, errPubArgs
	}
	op.Verb, op.Subject = VerbPub, f[0]
	total := parseSize(size)
	if total < 0 {
		return 0, 0, errPubSize
	}
	return payload(buf, start, total, lim, op)
}

// nextHPub parses a buffer that begins with "HPUB ".
func nextHPub(buf []byte, lim Limits, op *Op) (n, need int, err error) {
	arg, start, err := line(buf, len("HPUB "), lim.ControlLine)
	if start == 0 {
		return 0, 0, err
	}
	var f [4][]byte
	var header, size []byte
	switch fields(arg, &f) {
	case 3:
		header, size = f[1], f[2]
	case 4:
		op.Reply, header, size = f[1], f[2], f[3]
	case fieldsCR:
		return 0, 0, errArgumentCR
	default:
		return 0, 0, errHPubArgs
	}
	op.Verb, op.Subject, op.HasHeader = VerbPub, f[0], true
	op.Header = parseSize(header)
	total := parseSize(size)
	switch {
	case op.Header < 0:
		return 0, 0, errHPubHeader
	case total < 0:
		return 0, 0, errHPubTotal
	case op.Header > total:
		return 0, 0, errHPubExceeds
	}
	return payload(buf, start, total, lim, op)
}

// payload takes total bytes from start and their CRLF. A single LF is not accepted here.
func payload(buf []byte, start, total int, lim Limits, op *Op) (n, need int, err error) {
	if total > lim.Payload {
		return 0, 0, ErrMaxPayload
	}
	end := start + total
	if len(buf) > end && buf[end] != '\r' || len(buf) > end+1 && buf[end+1] != '\n' {
		return 0, 0, errPayloadEnd
	}
	if len(buf) < end+2 {
		return 0, end + 2, nil
	}
	op.Data = buf[start:end:end]
	return end + 2, 0, nil
}

func parseSub(arg []byte, op *Op) error {
	var f [4][]byte
	switch fields(arg, &f) {
	case 2:
		op.Subject, op.SID = f[0], f[1]
	case 3:
		op.Subject, op.Queue, op.SID = f[0], f[1], f[2]
	case fieldsCR:
		return errArgumentCR
	default:
		return errSubArgs
	}
	return nil
}

func parseUnsub(arg []byte, op *Op) error {
	var f [4][]byte
	switch fields(arg, &f) {
	case 1:
		op.SID = f[0]
	case 2:
		// As in nats-server, an invalid maximum counts as none: the subscription ends now.
		op.SID, op.Max = f[0], max(parseSize(f[1]), 0)
	case fieldsCR:
		return errArgumentCR
	default:
		return errUnsubArgs
	}
	return nil
}

// Results of fields instead of a number of fields.
const (
	fieldsTooMany = -1
	fieldsCR      = -2
)

// Kinds of bytes in the arguments of an operation.
const (
	inField byte = iota
	blank        // between fields
	lone         // a CR that does not end the line
)

// kindOf has the kind of each byte: one look-up takes half as long as three comparisons.
var kindOf = [256]byte{' ': blank, '\t': blank, '\r': lone}

// fields splits arg at runs of spaces and tabs and returns the number of fields.
func fields(arg []byte, f *[4][]byte) int {
	n := 0
	for i := 0; i < len(arg); {
		if kindOf[arg[i]] == blank {
			i++
			continue
		}
		start := i
		for i < len(arg) && kindOf[arg[i]] == inField {
			i++
		}
		if i < len(arg) && kindOf[arg[i]] == lone {
			return fieldsCR
		}
		if n == len(f) {
			return fieldsTooMany
		}
		f[n] = arg[start:i:i]
		n++
	}
	return n
}

// parseSize parses a decimal number. It returns -1 if there is none or it has too many digits.
func parseSize(digits []byte) int {
	if len(digits) == 0 || len(digits) > maxSizeDigits {
		return -1
	}
	n := 0
	for _, c := range digits {
		c -= '0'
		if c > 9 {
			return -1
		}
		n = n*10 + int(c)
	}
	return n
}

func isSpace(c byte) bool { return c == ' ' || c == '\t' }

// trim removes spaces and tabs from both ends.
func trim(b []byte) []byte {
	for len(b) > 0 && isSpace(b[0]) {
		b = b[1:]
	}
	for len(b) > 0 && isSpace(b[len(b)-1]) {
		b = b[:len(b)-1]
	}
	return b
}
