package jsapi

import (
	"bytes"
	"encoding/json"
	"math"
	"strconv"
	"time"
)

// AckPrefix is the prefix of the subjects that acks are published to.
const AckPrefix = "$JS.ACK."

// AckSubjects is the pattern of all ack subjects.
const AckSubjects = AckPrefix + ">"

// Delivery is the content of the ack subject of a delivered message, so that an ack can be routed
// and judged by its subject alone. After parsing, its slices alias the subject.
type Delivery struct {
	Stream      []byte
	Consumer    []byte
	Delivered   uint64 // deliveries of this message so far, including this one
	StreamSeq   uint64 // the record's offset
	ConsumerSeq uint64 // counts all deliveries of the consumer
	Time        int64  // of the record, in nanoseconds since 1970
	Pending     uint64 // messages that the consumer has not delivered yet
}

// AppendSubject appends the ack subject of the message.
func (d *Delivery) AppendSubject(dst []byte) []byte {
	dst = append(dst, AckPrefix...)
	dst = append(dst, d.Stream...)
	dst = append(dst, '.')
	dst = append(dst, d.Consumer...)
	dst = append(dst, '.')
	dst = strconv.AppendUint(dst, d.Delivered, 10)
	dst = append(dst, '.')
	dst = strconv.AppendUint(dst, d.StreamSeq, 10)
	dst = append(dst, '.')
	dst = strconv.AppendUint(dst, d.ConsumerSeq, 10)
	dst = append(dst, '.')
	dst = strconv.AppendInt(dst, d.Time, 10)
	dst = append(dst, '.')
	return strconv.AppendUint(dst, d.Pending, 10)
}

// ParseAckSubject parses a subject written by AppendSubject. It rejects others, including
// nats-server's second form with domain and account.
func ParseAckSubject(subject []byte) (d Delivery, ok bool) {
	rest, ok := bytes.CutPrefix(subject, []byte(AckPrefix))
	if !ok {
		return Delivery{}, false
	}
	d.Stream, rest, _ = bytes.Cut(rest, dot)
	d.Consumer, rest, ok = bytes.Cut(rest, dot)
	if !ok || len(d.Stream) == 0 || len(d.Consumer) == 0 {
		return Delivery{}, false
	}
	var numbers [5]uint64
	for i := range numbers {
		var token []byte
		var more bool
		token, rest, more = bytes.Cut(rest, dot)
		n, isNumber := ParseUint(token)
		if last := i == len(numbers)-1; !isNumber || more == last {
			return Delivery{}, false
		}
		numbers[i] = n
	}
	if numbers[3] > math.MaxInt64 {
		return Delivery{}, false
	}
	d.Delivered, d.StreamSeq, d.ConsumerSeq, d.Time, d.Pending = numbers[0], numbers[1], numbers[2], int64(numbers[3]), numbers[4]
	return d, true
}

// AckKind is the kind of an ack.
type AckKind uint8

// The kinds of acks.
const (
	AckUnknown  AckKind = iota // an unknown payload; it changes nothing
	AckDone                    // the message is processed
	AckRetry                   // deliver it again, after Delay
	AckProgress                // processing takes longer: restart the ack wait
	AckNext                    // the message is processed, and Next is a pull request
	AckTerm                    // never deliver it again, for Reason
)

// Ack is the payload of an ack. Its slices alias the payload.
type Ack struct {
	Kind   AckKind
	Delay  time.Duration // 0: the consumer's own
	Next   []byte        // a pull request; empty: one message
	Reason []byte
}

// ParseAck parses the payload of an ack. It matches words as nats-server does: exactly, or as a
// prefix where more may follow. An invalid delay counts as none.
func ParseAck(payload []byte) Ack {
	switch {
	case len(payload) == 0, string(payload) == "+ACK", string(payload) == "+OK":
		return Ack{Kind: AckDone}
	case string(payload) == "+WPI":
		return Ack{Kind: AckProgress}
	}
	if rest, ok := bytes.CutPrefix(payload, []byte("-NAK")); ok {
		return Ack{Kind: AckRetry, Delay: retryDelay(bytes.TrimSpace(rest))}
	}
	if rest, ok := bytes.CutPrefix(payload, []byte("+NXT")); ok {
		return Ack{Kind: AckNext, Next: bytes.TrimSpace(rest)}
	}
	if rest, ok := bytes.CutPrefix(payload, []byte("+TERM")); ok {
		return Ack{Kind: AckTerm, Reason: bytes.TrimSpace(rest)}
	}
	return Ack{}
}

func retryDelay(text []byte) time.Duration {
	if len(text) == 0 {
		return 0
	}
	var delay time.Duration
	if text[0] == '{' {
		var options struct {
			Delay time.Duration `json:"delay"`
		}
		if json.Unmarshal(text, &options) != nil {
			return 0
		}
		delay = options.Delay
	} else if parsed, err := time.ParseDuration(string(text)); err == nil {
		delay = parsed
	}
	return max(delay, 0)
}

var dot = []byte{'.'}

// ParseUint parses decimal digits without allocating. It accepts nothing else.
func ParseUint(s []byte) (n uint64, ok bool) {
	for _, c := range s {
		if c < '0' || c > '9' {
			return 0, false
		}
		digit := uint64(c - '0')
		if n > (math.MaxUint64-digit)/10 {
			return 0, false
		}
		n = n*10 + digit
	}
	return n, len(s) > 0
}
