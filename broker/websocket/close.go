package websocket

import (
	"encoding/binary"
	"fmt"
	"unicode/utf8"
)

// Status is the code in a close frame (RFC 6455, section 7.4.1).
type Status uint16

// The statuses that this broker sends. Protocol errors of NATS have those of nats-server.
const (
	NoStatus    Status = 0 // a close frame without one
	Normal      Status = 1000
	GoingAway   Status = 1001 // the broker leaves, or the client is silent
	Protocol    Status = 1002
	InvalidText Status = 1007
	Policy      Status = 1008 // authentication, connections
	TooBig      Status = 1009
)

// valid reports whether a client may send the status.
func (s Status) valid() bool {
	switch {
	case s < 1000, s == 1004, s == 1005, s == 1006, s >= 1015 && s < 3000, s >= 5000:
		return false
	}
	return true
}

// End is the end of a client's stream.
type End struct {
	Status   Status // to answer with
	Text     string // what the client did wrong; empty if it closed in order
	ByClient bool   // the client sent a close frame
}

// Error returns what the client did.
func (e *End) Error() string {
	if e.ByClient {
		return fmt.Sprintf("websocket: the client closed with status %d", e.Status)
	}
	return "websocket: " + e.Text
}

// AppendClose appends a close frame. A text that is too long is cut.
func AppendClose(dst []byte, s Status, text string) []byte {
	if s == NoStatus {
		return appendControl(dst, opClose, nil)
	}
	if limit := maxControl - shortHeader; len(text) > limit {
		for limit > 0 && !utf8.RuneStart(text[limit]) {
			limit--
		}
		text = text[:limit]
	}
	payload := binary.BigEndian.AppendUint16(make([]byte, 0, maxControl), uint16(s))
	return appendControl(dst, opClose, append(payload, text...))
}

// closedWith returns the end that a client's close frame makes.
func closedWith(payload []byte) *End {
	if len(payload) == 0 {
		return &End{Status: NoStatus, ByClient: true}
	}
	if len(payload) == 1 {
		return violation("a close frame with half a status")
	}
	s := Status(binary.BigEndian.Uint16(payload))
	switch {
	case !s.valid():
		return violation(fmt.Sprintf("a close frame with the status %d", s))
	case !utf8.Valid(payload[2:]):
		return &End{Status: InvalidText, Text: "the reason in a close frame is not UTF-8"}
	}
	return &End{Status: s, ByClient: true}
}

func violation(text string) *End { return &End{Status: Protocol, Text: text} }
