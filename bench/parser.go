package bench

import (
	"bytes"
	"errors"
	"fmt"
)

// The bounds of what a server may send: a line (INFO lists every broker of a cluster, so it
// is generous), and a message.
const (
	maxLineBytes    = 64 << 10
	maxMessageBytes = 8 << 20
)

// frames is told what a server sent. The slices are valid only during the call.
type frames interface {
	onMessage(subject, sid, payload []byte) // headers are cut off
	onInfo(json []byte)
	onPing()
	onPong()
	onError(text []byte)
}

// repliedFrames is told of messages with their reply subject and headers, instead of onMessage.
type repliedFrames interface {
	onReplied(reply, headers, payload []byte)
}

var (
	errLongLine = fmt.Errorf("server sent a line of more than %d bytes", maxLineBytes)
	errFraming  = errors.New("server sent a message whose end is not where its size says")
)

var crlf = []byte("\r\n")

// parseFrames hands every whole frame in data to f and returns how many bytes they took; the
// rest is the beginning of a frame, to be given again with what follows it.
func parseFrames(data []byte, f frames) (used int, err error) {
	for used < len(data) {
		rest := data[used:]
		eol := bytes.IndexByte(rest, '\n')
		if eol < 0 {
			if len(rest) > maxLineBytes {
				return used, errLongLine
			}
			return used, nil
		}
		if eol > maxLineBytes {
			return used, errLongLine
		}
		line := bytes.TrimSuffix(rest[:eol], crlf[:1])
		verb, arguments := cutField(line)
		size := eol + 1
		switch {
		case equalVerb(verb, "MSG"):
			body, err := parseMessage(arguments, rest[size:], false, f)
			if err != nil || body == 0 {
				return used, err
			}
			size += body
		case equalVerb(verb, "HMSG"):
			body, err := parseMessage(arguments, rest[size:], true, f)
			if err != nil || body == 0 {
				return used, err
			}
			size += body
		case equalVerb(verb, "PING"):
			f.onPing()
		case equalVerb(verb, "PONG"):
			f.onPong()
		case equalVerb(verb, "INFO"):
			f.onInfo(bytes.TrimSpace(arguments))
		case equalVerb(verb, "-ERR"):
			f.onError(bytes.Trim(arguments, "' \t"))
		case equalVerb(verb, "+OK"):
		default:
			return used, fmt.Errorf("server sent an unknown operation: %.32q", line)
		}
		used += size
	}
	return used, nil
}

// parseMessage reads "subject sid [reply] size" (or, with headers, "subject sid [reply]
// headers total") and the payload behind the line. It returns 0 while the payload is not
// whole yet, else its length with the line end.
func parseMessage(arguments, body []byte, headers bool, f frames) (int, error) {
	var fields [5][]byte
	n := 0
	for rest := arguments; ; n++ {
		field, after := cutField(rest)
		if len(field) == 0 {
			break
		}
		if n == len(fields) {
			return 0, fmt.Errorf("server sent a message line with too many fields: %.64q", arguments)
		}
		fields[n], rest = field, after
	}
	sizes := 1
	if headers {
		sizes = 2
	}
	if n != sizes+2 && n != sizes+3 {
		return 0, fmt.Errorf("server sent a message line with %d fields: %.64q", n, arguments)
	}
	total, ok := parseSize(fields[n-1])
	head := 0
	if ok && headers {
		head, ok = parseSize(fields[n-2])
	}
	if !ok || head > total {
		return 0, fmt.Errorf("server sent a message line with a wrong size: %.64q", arguments)
	}
	if len(body) < total+len(crlf) {
		return 0, nil
	}
	if !bytes.Equal(body[total:total+len(crlf)], crlf) {
		return 0, errFraming
	}
	if r, ok := f.(repliedFrames); ok {
		var reply []byte
		if n == sizes+3 {
			reply = fields[2]
		}
		r.onReplied(reply, body[:head], body[head:total])
		return total + len(crlf), nil
	}
	f.onMessage(fields[0], fields[1], body[head:total])
	return total + len(crlf), nil
}

// cutField returns the first run of bytes that are neither space nor tab, and what follows.
func cutField(line []byte) (field, rest []byte) {
	start := 0
	for start < len(line) && (line[start] == ' ' || line[start] == '\t') {
		start++
	}
	stop := start
	for stop < len(line) && line[stop] != ' ' && line[stop] != '\t' {
		stop++
	}
	return line[start:stop], line[stop:]
}

func equalVerb(verb []byte, want string) bool {
	if len(verb) != len(want) {
		return false
	}
	for i := range verb {
		c := verb[i]
		if 'a' <= c && c <= 'z' {
			c -= 'a' - 'A'
		}
		if c != want[i] {
			return false
		}
	}
	return true
}

func parseSize(digits []byte) (int, bool) {
	if len(digits) == 0 || len(digits) > 9 {
		return 0, false
	}
	n := 0
	for _, c := range digits {
		if c < '0' || c > '9' {
			return 0, false
		}
		n = n*10 + int(c-'0')
	}
	return n, n <= maxMessageBytes
}
