package jsapi

import (
	"bytes"
	"strconv"
	"time"
)

// StoredMessage is a message in the answer to a MessageGet.
type StoredMessage struct {
	Subject  string    `json:"subject"`
	Sequence uint64    `json:"seq"`
	Header   []byte    `json:"hdrs,omitempty"`
	Data     []byte    `json:"data,omitempty"`
	Time     time.Time `json:"time"`
}

// MessageResponse is the answer to a MessageGet.
type MessageResponse struct {
	Response
	Message *StoredMessage `json:"message,omitempty"`
}

// DirectMessage is a message of a stream in the answer to a direct get.
type DirectMessage struct {
	Stream   []byte
	Subject  []byte
	Sequence uint64
	Time     int64  // nanoseconds since 1970
	Header   []byte // header block; may be empty
	// Batch: the message is one of several. Pending are left after it, and Last is the sequence of
	// the one before it, or 0.
	Batch         bool
	Pending, Last uint64
}

// AppendHeader appends the header block of a direct get's answer: the message's own headers and its
// origin.
func (k *DirectMessage) AppendHeader(dst []byte) []byte {
	dst = appendOwn(dst, k.Header)
	dst = append(dst, "Nats-Stream: "...)
	dst = append(dst, k.Stream...)
	dst = append(dst, "\r\nNats-Subject: "...)
	dst = append(dst, k.Subject...)
	dst = append(dst, "\r\nNats-Sequence: "...)
	dst = strconv.AppendUint(dst, k.Sequence, 10)
	dst = append(dst, "\r\nNats-Time-Stamp: "...)
	dst = time.Unix(0, k.Time).UTC().AppendFormat(dst, time.RFC3339Nano)
	if k.Batch {
		dst = appendPending(dst, k.Pending, k.Last)
	}
	return append(dst, "\r\n\r\n"...)
}

// appendPending appends where a batch is: how many messages are left, and the last sequence.
func appendPending(dst []byte, pending, last uint64) []byte {
	dst = append(dst, "\r\nNats-Num-Pending: "...)
	dst = strconv.AppendUint(dst, pending, 10)
	dst = append(dst, "\r\nNats-Last-Sequence: "...)
	return strconv.AppendUint(dst, last, 10)
}

// AppendEndOfBatch appends the header block that ends a direct get of several messages. upTo is the
// last sequence that a get of last messages has looked at; 0: it is none.
func AppendEndOfBatch(dst []byte, pending, last, upTo uint64) []byte {
	dst = append(dst, headerLine+" 204 EOB"...)
	dst = appendPending(dst, pending, last)
	if upTo > 0 {
		dst = append(dst, "\r\nNats-UpTo-Sequence: "...)
		dst = strconv.AppendUint(dst, upTo, 10)
	}
	return append(dst, "\r\n\r\n"...)
}

// AppendHeadersOnly appends the header block of a message without its payload, with the payload's
// size in a header.
func AppendHeadersOnly(dst, header []byte, payload int) []byte {
	dst = appendOwn(dst, header)
	dst = append(dst, "Nats-Msg-Size: "...)
	dst = strconv.AppendInt(dst, int64(payload), 10)
	return append(dst, "\r\n\r\n"...)
}

// HeadersOnlySize returns the number of bytes that AppendHeadersOnly appends.
func HeadersOnlySize(header []byte, payload int) int {
	var memory [64]byte
	return max(len(header)-len("\r\n\r\n"), len(headerLine)) + len(AppendHeadersOnly(memory[:0], nil, payload)) - len(headerLine)
}

// appendOwn appends a message's header block without its final blank line, or the first line of a
// new block.
func appendOwn(dst, header []byte) []byte {
	own, ended := bytes.CutSuffix(header, []byte("\r\n\r\n"))
	if !ended || !bytes.HasPrefix(own, []byte(headerLine)) {
		return append(dst, headerLine+"\r\n"...)
	}
	dst = append(dst, own...)
	return append(dst, "\r\n"...)
}
