package protocol

import (
	"bytes"
	"iter"
)

// headerVersion begins every header block.
const headerVersion = "NATS/1.0"

// Header is a message's header block as received: a version line with an optional status, then
// lines of "Key: Value", then a blank line. Reading it allocates nothing. Malformed lines are
// skipped and never reported, since servers forward headers without checking them.
type Header []byte

// SplitData splits a message's data into its header block, the first header bytes, and its payload.
func SplitData(data []byte, header int) (Header, []byte) {
	if header <= 0 || header > len(data) {
		return nil, data
	}
	return Header(data[:header:header]), data[header:]
}

// Get returns the first value of key without surrounding spaces. Keys are case-sensitive, as in
// nats-server.
func (h Header) Get(key string) (value []byte, ok bool) {
	for k, v := range h.All() {
		if string(k) == key {
			return v, true
		}
	}
	return nil, false
}

// Without returns a copy without the lines of a key, or nil if none is left.
func (h Header) Without(key string) Header {
	out, left := make(Header, 0, len(h)), false
	for rest := []byte(h); len(rest) > 0; {
		end := bytes.IndexByte(rest, '\n') + 1
		if end == 0 {
			end = len(rest)
		}
		line := rest[:end]
		rest = rest[end:]
		name, _, found := bytes.Cut(line, []byte{':'})
		if found && len(out) > 0 && string(name) == key {
			continue
		}
		left = left || found && len(out) > 0
		out = append(out, line...)
	}
	if !left {
		return nil
	}
	return out
}

// All yields the keys and values in order.
func (h Header) All() iter.Seq2[[]byte, []byte] {
	return func(yield func(key, value []byte) bool) {
		_, rest, found := h.version()
		for found && len(rest) > 0 {
			var line []byte
			line, rest = cutLine(rest)
			if len(line) == 0 {
				return
			}
			colon := bytes.IndexByte(line, ':')
			if colon <= 0 {
				continue
			}
			if !yield(line[:colon], trim(line[colon+1:])) {
				return
			}
		}
	}
}

// Status returns the status of the version line and its description. code is 0 if there is none.
func (h Header) Status() (code int, description []byte) {
	status, _, found := h.version()
	if !found {
		return 0, nil
	}
	status = trim(status)
	digits := status
	if i := bytes.IndexByte(status, ' '); i >= 0 {
		digits, description = status[:i], trim(status[i:])
	}
	if len(digits) != 3 {
		return 0, nil
	}
	if code = parseSize(digits); code < 0 {
		return 0, nil
	}
	return code, description
}

// version returns the rest of the first line after the version, and the lines after it.
func (h Header) version() (status, rest []byte, found bool) {
	first, rest := cutLine(h)
	status, found = bytes.CutPrefix(first, []byte(headerVersion))
	return status, rest, found
}

// cutLine returns the bytes before the first LF or CRLF and those after it.
func cutLine(b []byte) (line, rest []byte) {
	i := bytes.IndexByte(b, '\n')
	if i < 0 {
		return b, nil
	}
	line, rest = b[:i], b[i+1:]
	if i > 0 && line[i-1] == '\r' {
		line = line[:i-1]
	}
	return line, rest
}
