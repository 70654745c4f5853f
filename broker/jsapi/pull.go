package jsapi

import (
	"bytes"
	"encoding/json"
	"math"
	"strconv"
	"time"
)

// Pull requests messages from a consumer.
type Pull struct {
	Batch    int           `json:"batch,omitempty"`     // at least 1
	MaxBytes int           `json:"max_bytes,omitempty"` // 0: no bound
	Expires  time.Duration `json:"expires,omitempty"`   // 0: never
	// NoWait requests available messages only. With Expires it waits for the first one.
	NoWait    bool          `json:"no_wait,omitempty"`
	Heartbeat time.Duration `json:"idle_heartbeat,omitempty"` // 0: none

	// For consumers with a priority policy, see CheckPriority.
	Group         string `json:"group,omitempty"`
	MinPending    int64  `json:"min_pending,omitempty"`
	MinAckPending int64  `json:"min_ack_pending,omitempty"`
	ID            string `json:"id,omitempty"`
	Priority      int    `json:"priority,omitempty"`
	formal        bool   // it is JSON; only such a request needs a Group
}

// plainPriority is the priority of a request that is not JSON: after all others.
const plainPriority = 10

// ParsePull parses a pull request: JSON, a plain number of messages, or nothing, which is one
// message. Any other text counts as one message, too. refusal is the header block of the status for
// an invalid request, and empty otherwise.
func ParsePull(payload []byte) (p Pull, refusal []byte) {
	p.Batch, p.Priority = 1, plainPriority
	text := bytes.TrimSpace(payload)
	if len(text) == 0 {
		return p, nil
	}
	if text[0] != '{' {
		if n, ok := ParseUint(text); ok {
			p.Batch = int(max(min(n, math.MaxInt), 1))
		}
		return p, nil
	}
	return parsePullJSON(text)
}

// parsePullJSON is a function of its own because p escapes to the heap here.
func parsePullJSON(text []byte) (p Pull, refusal []byte) {
	p.formal = true
	if err := json.Unmarshal(text, &p); err != nil {
		return Pull{}, badPull(err.Error())
	}
	p.Batch, p.MaxBytes, p.Heartbeat = max(p.Batch, 1), max(p.MaxBytes, 0), max(p.Heartbeat, 0)
	switch {
	case p.Expires < 0:
		return Pull{}, badPull("expires can not be negative")
	case p.Heartbeat > p.Expires/2:
		return Pull{}, badPull("heartbeat value too large")
	case p.Priority < 0 || p.Priority > 9:
		return Pull{}, badPull("Priority must be between 0 and 9")
	}
	return p, nil
}

func badPull(why string) []byte {
	return AppendStatus(nil, Status("400 Bad Request - "+OneLine(why)))
}

// CheckLimits checks the request against the consumer's limits. refusal is as in ParsePull.
func (p *Pull) CheckLimits(config *ConsumerConfig) (refusal []byte) {
	switch {
	case config.MaxRequestBatch > 0 && p.Batch > config.MaxRequestBatch:
		return AppendStatus(nil, Status("409 Exceeded MaxRequestBatch of "+strconv.Itoa(config.MaxRequestBatch)))
	case config.MaxRequestExpires > 0 && p.Expires > config.MaxRequestExpires:
		return AppendStatus(nil, Status("409 Exceeded MaxRequestExpires of "+config.MaxRequestExpires.String()))
	case config.MaxRequestMaxBytes > 0 && p.MaxBytes > config.MaxRequestMaxBytes:
		return AppendStatus(nil, Status("409 Exceeded MaxRequestMaxBytes of "+strconv.Itoa(config.MaxRequestMaxBytes)))
	}
	return nil
}

// Status is the first line of the header block of a message without payload. Clients match its
// number and its words, so both are nats-server's.
type Status string

// The statuses.
const (
	NoMessages       Status = "404 No Messages"
	RequestTimeout   Status = "408 Request Timeout"               // as in AppendStatusLeft
	BatchCompleted   Status = "409 Batch Completed"               // as there; MaxBytes was reached
	MaxBytesExceeded Status = "409 Message Size Exceeds MaxBytes" // as there
	// MaxWaitingExceeded is not sent for a pull with a heartbeat, whose client would pull again at
	// once and in a loop. It learns by the missing heartbeats.
	MaxWaitingExceeded Status = "409 Exceeded MaxWaiting"
	ConsumerDeleted    Status = "409 Consumer Deleted"
	ConsumerIsPush     Status = "409 Consumer is push based"
	PinMismatch        Status = "423 Nats-Pin-Id mismatch"
	WrongPin           Status = "423 Nats-Wrong-Pin-Id" // as there
	LeadershipChange   Status = "409 Leadership Change"
	ServerShutdown     Status = "409 Server Shutdown" // as there

	MessageNotFound  Status = "404 Message Not Found" // statuses of direct gets, from here on
	NoResults        Status = "404 No Results"
	TooManyResults   Status = "413 Too Many Results"
	EmptyRequest     Status = "408 Empty Request"
	MalformedRequest Status = "408 Malformed Request"
	BadRequest       Status = "408 Bad Request"
	LevelRequired    Status = "412 Required Api Level"
)

const headerLine = "NATS/1.0"

// AppendStatus appends the header block of a status message.
func AppendStatus(dst []byte, s Status) []byte {
	dst = append(dst, headerLine...)
	dst = append(dst, ' ')
	dst = append(dst, s...)
	return append(dst, "\r\n\r\n"...)
}

// AppendStatusLeft appends the header block of a status that ends a pull, with the messages and
// bytes that were requested and not delivered. Clients subtract these numbers from what they have
// requested: with wrong numbers they stop pulling.
func AppendStatusLeft(dst []byte, s Status, messages, bytes int) []byte {
	dst = append(dst, headerLine...)
	dst = append(dst, ' ')
	dst = append(dst, s...)
	dst = append(dst, "\r\nNats-Pending-Messages: "...)
	dst = strconv.AppendInt(dst, int64(messages), 10)
	dst = append(dst, "\r\nNats-Pending-Bytes: "...)
	dst = strconv.AppendInt(dst, int64(bytes), 10)
	return append(dst, "\r\n\r\n"...)
}

// AppendHeartbeat appends the header block of an idle heartbeat for a waiting pull or a push
// consumer. It has the sequences that were delivered last, so that an ordered consumer detects a
// gap. stalled, if not nil, is the flow control request that has to be answered before anything
// else is sent.
func AppendHeartbeat(dst []byte, lastConsumer, lastStream uint64, stalled *Flow) []byte {
	dst = append(dst, headerLine+" 100 Idle Heartbeat\r\nNats-Last-Consumer: "...)
	dst = strconv.AppendUint(dst, lastConsumer, 10)
	dst = append(dst, "\r\nNats-Last-Stream: "...)
	dst = strconv.AppendUint(dst, lastStream, 10)
	if stalled != nil {
		dst = append(dst, "\r\nNats-Consumer-Stalled: "...)
		dst = stalled.AppendSubject(dst)
	}
	return append(dst, "\r\n\r\n"...)
}
