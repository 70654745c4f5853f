package jsapi

import (
	"bytes"
	"encoding/json"
	"math"
	"strconv"
	"time"
)

// Pull asks a consumer for messages.
type Pull struct {
	Batch     int           `json:"batch,omitempty"`          // at least 1
	MaxBytes  int           `json:"max_bytes,omitempty"`      // 0: no bound
	Expires   time.Duration `json:"expires,omitempty"`        // 0: never
	NoWait    bool          `json:"no_wait,omitempty"`        // only what is there, or wait until Expires for something
	Heartbeat time.Duration `json:"idle_heartbeat,omitempty"` // 0: none

	// For consumers with a priority policy, which are not served yet.
	Group         string `json:"group,omitempty"`
	MinPending    int64  `json:"min_pending,omitempty"`
	MinAckPending int64  `json:"min_ack_pending,omitempty"`
	ID            string `json:"id,omitempty"`
	Priority      int    `json:"priority,omitempty"`
}

// ParsePull reads a pull request: JSON, a bare number of messages, or nothing for one message.
// What is none of these asks for one message, too. refusal is the header block of the status that
// answers a request that can't be served, and empty otherwise.
func ParsePull(payload []byte) (p Pull, refusal []byte) {
	p.Batch = 1
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

// parsePullJSON stands apart since what it reads into escapes to the heap.
func parsePullJSON(text []byte) (p Pull, refusal []byte) {
	if err := json.Unmarshal(text, &p); err != nil {
		return Pull{}, badPull(err.Error())
	}
	p.Batch, p.MaxBytes, p.Heartbeat = max(p.Batch, 1), max(p.MaxBytes, 0), max(p.Heartbeat, 0)
	switch {
	case p.Expires < 0:
		return Pull{}, badPull("expires can not be negative")
	case p.Heartbeat > p.Expires/2:
		return Pull{}, badPull("heartbeat value too large")
	case p.MinPending != 0, p.MinAckPending != 0:
		return Pull{}, badPull("Not a Overflow Priority consumer")
	case p.ID != "":
		return Pull{}, badPull("Not a Pinned Client Priority consumer")
	case p.Priority < 0 || p.Priority > 9:
		return Pull{}, badPull("Priority must be between 0 and 9")
	}
	return p, nil
}

func badPull(why string) []byte {
	return AppendStatus(nil, Status("400 Bad Request - "+OneLine(why)))
}

// Within holds the request to what the consumer allows. The refusal is as that of ParsePull.
func (p *Pull) Within(config *ConsumerConfig) (refusal []byte) {
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

// Status is what a message without a payload says in the first line of its header block. Clients
// match the number and the words, so both are as nats-server has them.
type Status string

// The statuses.
const (
	NoMessages       Status = "404 No Messages"
	RequestTimeout   Status = "408 Request Timeout"               // with what is left
	BatchCompleted   Status = "409 Batch Completed"               // with what is left: MaxBytes was reached
	MaxBytesExceeded Status = "409 Message Size Exceeds MaxBytes" // with what is left
	// MaxWaitingExceeded is not sent to a request with a heartbeat: its client would ask again
	// at once, and again. It finds out by the missing heartbeats.
	MaxWaitingExceeded Status = "409 Exceeded MaxWaiting"
	ConsumerDeleted    Status = "409 Consumer Deleted"
	LeadershipChange   Status = "409 Leadership Change"
	ServerShutdown     Status = "409 Server Shutdown" // with what is left

	MessageNotFound  Status = "404 Message Not Found" // the statuses of direct gets, this and below
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

// AppendStatusLeft appends the header block of a status that ends a pull request, with the messages
// and bytes that it asked for and didn't get. Clients take these off what they have asked for:
// with wrong numbers they stop asking.
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

// AppendHeartbeat appends the header block that says "nothing new, and still here" to a waiting
// request, with the sequences that were delivered last, so that an ordered consumer sees a gap.
func AppendHeartbeat(dst []byte, lastConsumer, lastStream uint64) []byte {
	dst = append(dst, headerLine+" 100 Idle Heartbeat\r\nNats-Last-Consumer: "...)
	dst = strconv.AppendUint(dst, lastConsumer, 10)
	dst = append(dst, "\r\nNats-Last-Stream: "...)
	dst = strconv.AppendUint(dst, lastStream, 10)
	return append(dst, "\r\n\r\n"...)
}
