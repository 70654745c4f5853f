package route

import (
	"encoding/binary"
	"errors"
	"fmt"
	"strings"

	"github.com/carillon-mq/carillon/broker/session"
	"github.com/carillon-mq/carillon/broker/subject"
)

// frameType is the type of a frame. A frame is a length of four bytes, which counts what follows
// it, one byte of type, and a body. Numbers are big-endian.
type frameType byte

const (
	frameHello       frameType = 1 // JSON, see hello
	frameRefused     frameType = 2 // JSON, see Refusal; the last frame of its connection
	frameInterest    frameType = 3 // count u32, length of queue u16, queue, pattern
	frameInterestEnd frameType = 4 // empty: the sender's complete interest has been sent
	frameReady       frameType = 5 // empty: the sender has received the peer's complete interest
	frameMessage     frameType = 6 // see parseMessage
	framePing        frameType = 7 // u64 that the pong repeats
	framePong        frameType = 8
	frameLeaving     frameType = 9  // empty: the sender is about to shut down in order
	frameTopics      frameType = 10 // opaque: messages between Topics, see package forward
	frameNotice      frameType = 11 // opaque, see Mesh.Notify
	frameDemands     frameType = 12 // opaque, see Mesh.Report
)

const (
	lengthSize  = 4
	headerSize  = lengthSize + 1
	messageSize = 1 + 2 + 2 + 2 + 2 + 4 // flags, groups, route, subject, reply, header
	flagPlain   = 1
	flagKeep    = 2

	maxString = 1<<16 - 1
)

var (
	errFrameEmpty = errors.New("frame without a type")
	errTruncated  = errors.New("frame shorter than what it announces")
)

// splitFrame returns the first frame in b. n is its size in bytes with its header, or 0 if b ends
// before the frame does.
func splitFrame(b []byte, limit int) (t frameType, body []byte, n int, err error) {
	if len(b) < lengthSize {
		return 0, nil, 0, nil
	}
	size := binary.BigEndian.Uint32(b)
	if size == 0 {
		return 0, nil, 0, errFrameEmpty
	}
	if int64(size) > int64(limit) {
		return 0, nil, 0, fmt.Errorf("frame of %d bytes exceeds the limit of %d", size, limit)
	}
	n = lengthSize + int(size)
	if len(b) < n {
		return 0, nil, 0, nil
	}
	return frameType(b[lengthSize]), b[headerSize:n:n], n, nil
}

// parseInterest decodes the body of an interest frame. Its strings are copies.
func parseInterest(body []byte) (session.Interest, error) {
	if len(body) < 6 {
		return session.Interest{}, errTruncated
	}
	count := binary.BigEndian.Uint32(body)
	queue := int(binary.BigEndian.Uint16(body[4:]))
	body = body[6:]
	if len(body) < queue {
		return session.Interest{}, errTruncated
	}
	both := string(body)
	change := session.Interest{Pattern: both[queue:], Queue: both[:queue], Count: int(count)}
	if !subject.ValidPattern(body[queue:]) || strings.ContainsAny(change.Queue, " \t\r\n") {
		return session.Interest{}, fmt.Errorf("interest in the impossible subject %.80q, queue group %.80q", change.Pattern, change.Queue)
	}
	return change, nil
}

// parseMessage decodes the body of a message frame into m, whose slices alias body, and returns the
// packed names of the queue groups for nextName.
func parseMessage(body []byte, m *session.Message) (reach session.Reach, groups int, names []byte, err error) {
	if len(body) < messageSize {
		return reach, 0, nil, errTruncated
	}
	reach.Plain, reach.Keep = body[0]&flagPlain != 0, body[0]&flagKeep != 0
	groups = int(binary.BigEndian.Uint16(body[1:]))
	toRoute := int(binary.BigEndian.Uint16(body[3:]))
	toSubject := toRoute + int(binary.BigEndian.Uint16(body[5:]))
	toReply := toSubject + int(binary.BigEndian.Uint16(body[7:]))
	header := binary.BigEndian.Uint32(body[9:])
	rest := body[messageSize:]
	if toSubject == toRoute {
		return reach, 0, nil, errors.New("message without a subject")
	}
	if len(rest) < toReply {
		return reach, 0, nil, errTruncated
	}
	m.To, m.Subject, m.Reply = rest[:toRoute:toRoute], rest[toRoute:toSubject:toSubject], rest[toSubject:toReply:toReply]
	rest = rest[toReply:]
	end := 0
	for range groups {
		if len(rest)-end < 2 {
			return reach, 0, nil, errTruncated
		}
		end += 2 + int(binary.BigEndian.Uint16(rest[end:]))
		if end > len(rest) {
			return reach, 0, nil, errTruncated
		}
	}
	names, m.Data = rest[:end], rest[end:]
	if int64(header) > int64(len(m.Data)) {
		return reach, 0, nil, fmt.Errorf("message with %d bytes of headers in %d bytes of data", header, len(m.Data))
	}
	m.Header = int(header)
	return reach, groups, names, nil
}

// nextName splits off the first of the names that parseMessage returned.
func nextName(names []byte) (name, rest []byte) {
	end := 2 + int(binary.BigEndian.Uint16(names))
	return names[2:end], names[end:]
}

// parseToken decodes the body of a ping or pong.
func parseToken(body []byte) (uint64, error) {
	if len(body) != 8 {
		return 0, errTruncated
	}
	return binary.BigEndian.Uint64(body), nil
}
