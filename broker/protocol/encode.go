package protocol

import "strconv"

// Lines that never change, and what ends every line and payload.
const (
	CRLF     = "\r\n"
	LineOK   = "+OK\r\n"
	LinePing = "PING\r\n"
	LinePong = "PONG\r\n"
)

// A message to a subscriber is a control line, headers and payload, and a CRLF. Between the subscribers of one message
// only the sid differs, so the line is made in two parts, once per message and form,
// and each delivery appends
//
//	prefix, sid, suffix, data, CRLF
//
// The form with headers is HMSG; clients that do not know headers get MSG with the payload alone.

// AppendMsgPrefix appends what precedes the sid in a MSG line.
func AppendMsgPrefix(dst, subject []byte) []byte {
	dst = append(dst, "MSG "...)
	dst = append(dst, subject...)
	return append(dst, ' ')
}

// AppendMsgSuffix appends what follows the sid in a MSG line, its CRLF included, for a payload of size bytes.
func AppendMsgSuffix(dst, reply []byte, size int) []byte {
	dst = appendReply(dst, reply)
	dst = strconv.AppendUint(dst, uint64(size), 10)
	return append(dst, CRLF...)
}

// AppendHMsgPrefix appends what precedes the sid in an HMSG line.
func AppendHMsgPrefix(dst, subject []byte) []byte {
	dst = append(dst, "HMSG "...)
	dst = append(dst, subject...)
	return append(dst, ' ')
}

// AppendHMsgSuffix appends what follows the sid in an HMSG line, its CRLF included, for header
// bytes of headers in a total of size bytes.
func AppendHMsgSuffix(dst, reply []byte, header, size int) []byte {
	dst = appendReply(dst, reply)
	dst = strconv.AppendUint(dst, uint64(header), 10)
	dst = append(dst, ' ')
	dst = strconv.AppendUint(dst, uint64(size), 10)
	return append(dst, CRLF...)
}

func appendReply(dst, reply []byte) []byte {
	dst = append(dst, ' ')
	if len(reply) > 0 {
		dst = append(dst, reply...)
		dst = append(dst, ' ')
	}
	return dst
}

// AppendErr appends an -ERR line with the text in its quotes.
func AppendErr(dst []byte, text string) []byte {
	dst = append(dst, "-ERR '"...)
	dst = append(dst, text...)
	return append(dst, "'\r\n"...)
}

// AppendNoResponders appends the header block that tells a requester that nobody listens on
// subject. It is delivered to the requester's own subscription on its reply subject, with no payload.
func AppendNoResponders(dst, subject []byte) []byte {
	dst = append(dst, "NATS/1.0 503\r\nNats-Subject: "...)
	dst = append(dst, subject...)
	return append(dst, "\r\n\r\n"...)
}
