package protocol

import (
	"bytes"
	"strconv"
)

// Constant lines, and the end of every line and payload.
const (
	CRLF     = "\r\n"
	LineOK   = "+OK\r\n"
	LinePing = "PING\r\n"
	LinePong = "PONG\r\n"
)

// A message to a subscriber is a control line, headers and payload, and a CRLF. Between the
// subscribers of a message only the sid differs. So the line is encoded in two parts, once per
// message and form, and each delivery appends
//
//	prefix, sid, suffix, data, CRLF
//
// The form with headers is HMSG. Clients without header support get MSG with the payload only.

// AppendMsgPrefix appends the part of a MSG line before the sid.
func AppendMsgPrefix(dst, subject []byte) []byte {
	dst = append(dst, "MSG "...)
	dst = append(dst, subject...)
	return append(dst, ' ')
}

// AppendMsgSuffix appends the part of a MSG line after the sid, including CRLF, for a payload of
// size bytes.
func AppendMsgSuffix(dst, reply []byte, size int) []byte {
	dst = appendReply(dst, reply)
	dst = strconv.AppendUint(dst, uint64(size), 10)
	return append(dst, CRLF...)
}

// AppendHMsgPrefix appends the part of an HMSG line before the sid.
func AppendHMsgPrefix(dst, subject []byte) []byte {
	dst = append(dst, "HMSG "...)
	dst = append(dst, subject...)
	return append(dst, ' ')
}

// AppendHMsgSuffix appends the part of an HMSG line after the sid, including CRLF, for header bytes
// of headers in a total of size bytes.
func AppendHMsgSuffix(dst, reply []byte, header, size int) []byte {
	dst = appendReply(dst, reply)
	dst = strconv.AppendUint(dst, uint64(header), 10)
	dst = append(dst, ' ')
	dst = strconv.AppendUint(dst, uint64(size), 10)
	return append(dst, CRLF...)
}

// Headers of what is delivered under another subject.
const (
	// SubjectHeader has the subject of a message that is delivered under another one.
	SubjectHeader = "Carillon-Subject"
	// QueryHeader says what a notice tells that is delivered under the same subject.
	QueryHeader = "Carillon-Query"
)

// keptLines bounds the lines of a publisher's headers that are copied, since some lines between
// them are left out. Headers are far shorter.
const keptLines = 4 << 10

// AppendHMsgOn appends the part of an HMSG line after the sid, and what comes before the rest of
// the message, for a message on the subject that is delivered under another one. The message's
// first header bytes are headers. The subject is the first of its headers then.
//
// Lines of the publisher's that some client could take for a SubjectHeader or QueryHeader are left
// out, and, if more than keptLines bytes are left then, all of its headers. So is a header block
// without a version, and one whose next line some clients would take for a part of the subject, or
// for one before it.
func AppendHMsgOn(dst, subject, reply, data []byte, header int) (_, rest []byte) {
	block, payload := SplitData(data, header)
	_, lines, _ := bytes.Cut(block, []byte{'\n'})
	version := block[:len(block)-len(lines)]
	if !bytes.HasPrefix(version, []byte(headerVersion)) || !isLine(version) || len(lines) > 0 && (lines[0] == ' ' || lines[0] == '\t') {
		version, lines = []byte(headerVersion+CRLF), nil
	}
	var copied []byte
	switch honest := honestLines(lines); {
	case len(lines) == 0:
		rest = payload
	case len(honest) == len(lines):
		rest = data[len(version):]
	default:
		copied, lines, rest = honest, nil, payload
	}
	end := CRLF
	if len(lines) > 0 || len(copied) > 0 {
		end = "" // the lines have it
	}
	first := len(version) + len(SubjectHeader) + len(": ") + len(subject) + len(CRLF) + len(copied) + len(end)
	dst = AppendHMsgSuffix(dst, reply, first+len(lines), first+len(rest))
	dst = append(dst, version...)
	dst = append(dst, SubjectHeader+": "...)
	dst = append(append(dst, subject...), CRLF...)
	dst = append(append(dst, copied...), end...)
	return dst, rest
}

// honestLines returns the lines of a header block without those that could be taken for a
// SubjectHeader or QueryHeader, and without what continues these. If there are none, it returns the
// same lines, and nothing if what is left is too long.
func honestLines(lines []byte) []byte {
	var kept []byte
	forged, some := false, false
	for at := 0; at < len(lines); {
		line := lines[at:lineEnd(lines, at)]
		continues := line[0] == ' ' || line[0] == '\t'
		if forged = isOwn(line) || forged && continues; forged && !some {
			some, kept = true, append(kept, lines[:min(at, keptLines+1)]...)
		} else if some && !forged {
			kept = append(kept, line[:min(len(line), keptLines+1)]...)
		}
		if at += len(line); len(kept) > keptLines {
			return nil
		}
	}
	if !some {
		return lines
	}
	return kept
}

// lineEnd returns where the line at i ends, with its end. Some clients take a CR alone for an end.
func lineEnd(b []byte, i int) int {
	end := len(b)
	if n := bytes.IndexByte(b[i:], '\n'); n >= 0 {
		end = i + n + 1
	}
	if n := bytes.IndexByte(b[i:end], '\r'); n >= 0 && i+n+2 != end {
		end = i + n + 1
	}
	return end
}

// isOwn reports whether a line of headers could be taken for one that the broker sets: also in
// other letters, or with what some client trims.
func isOwn(line []byte) bool {
	name, _, named := bytes.Cut(line, []byte{':'})
	if !named || len(name) < len(QueryHeader) {
		return false
	}
	name = bytes.TrimFunc(name, func(r rune) bool {
		return r != '-' && (r < '0' || r > '9') && (r|0x20 < 'a' || r|0x20 > 'z')
	})
	return bytes.EqualFold(name, []byte(SubjectHeader)) || bytes.EqualFold(name, []byte(QueryHeader))
}

// isLine reports whether b is one line with its end, also for who takes a CR alone for an end.
func isLine(b []byte) bool {
	text, ended := bytes.CutSuffix(b, []byte{'\n'})
	return ended && bytes.IndexByte(bytes.TrimSuffix(text, []byte{'\r'}), '\r') < 0
}

func appendReply(dst, reply []byte) []byte {
	dst = append(dst, ' ')
	if len(reply) > 0 {
		dst = append(dst, reply...)
		dst = append(dst, ' ')
	}
	return dst
}

// AppendErr appends an -ERR line with the text in quotes.
func AppendErr(dst []byte, text string) []byte {
	dst = append(dst, "-ERR '"...)
	dst = append(dst, text...)
	return append(dst, "'\r\n"...)
}

// AppendNoResponders appends the header block of the status that subject has no responders. It is
// delivered, without payload, to the requester's own subscription on its reply subject.
func AppendNoResponders(dst, subject []byte) []byte {
	dst = append(dst, "NATS/1.0 503\r\nNats-Subject: "...)
	dst = append(dst, subject...)
	return append(dst, "\r\n\r\n"...)
}
