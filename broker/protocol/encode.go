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

// SubjectHeader has the subject of a message that is delivered under another one.
const SubjectHeader = "Carillon-Subject"

// AppendHMsgOn appends the part of an HMSG line after the sid, and what comes before the rest of
// the message, for a message on the subject that is delivered under another one. The message's
// first header bytes are headers. The subject is the first of its headers then, so that no line of
// the publisher's hides it. A header block without a version is left out, and one whose next line
// some clients would take for a part of the subject, or for one before it.
func AppendHMsgOn(dst, subject, reply, data []byte, header int) (_, rest []byte) {
	block, payload := SplitData(data, header)
	_, lines, _ := bytes.Cut(block, []byte{'\n'})
	version := block[:len(block)-len(lines)]
	if !bytes.HasPrefix(version, []byte(headerVersion)) || !isLine(version) || len(lines) > 0 && (lines[0] == ' ' || lines[0] == '\t') {
		version, lines = []byte(headerVersion+CRLF), nil
	}
	if len(lines) > 0 {
		rest = data[len(version):]
	} else {
		rest = payload
	}
	first := len(version) + len(SubjectHeader) + len(": ") + len(subject) + len(CRLF)
	if len(lines) == 0 {
		first += len(CRLF)
	}
	dst = AppendHMsgSuffix(dst, reply, first+len(lines), first+len(rest))
	dst = append(dst, version...)
	dst = append(dst, SubjectHeader+": "...)
	dst = append(append(dst, subject...), CRLF...)
	if len(lines) == 0 {
		dst = append(dst, CRLF...)
	}
	return dst, rest
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
