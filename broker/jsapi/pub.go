package jsapi

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/carillon-mq/carillon/broker/protocol"
	"github.com/carillon-mq/carillon/broker/publish"
	"github.com/carillon-mq/carillon/broker/scheduling"
)

// Publish holds the headers of a published message that concern its stream. Its slices alias the
// header block. Headers for other clients, such as KV-Operation, are not in it.
type Publish struct {
	ID             []byte // message id for deduplication; empty: none
	ExpectedStream []byte
	ExpectedLastID []byte
	// ExpectedLast is the sequence that the stream's last message must have, if ExpectsLast.
	ExpectedLast uint64
	ExpectsLast  bool
	// ExpectedLastBySubject is the sequence that the last message of ExpectedSubject must have, if
	// ExpectsLastBySubject. An empty ExpectedSubject means the message's own. 0: there must be no
	// such message.
	ExpectedLastBySubject uint64
	ExpectsLastBySubject  bool
	ExpectedSubject       []byte
	// Records is the number of records that the message carries. 0: the message is one record.
	Records int
	After   []byte // id of a message that must have been stored before; empty: none
	Rollup  publish.Rollup
	TTL     time.Duration // 0: none; publish.Never: it never expires
	Copied  bool          // it says that it is a copy of another stream's message
	Marks   bool          // it says that its subject has no other message
	Part    bool          // it belongs to an atomic batch
	// Schedule is what it says of schedules, and Fires the value of scheduling.Header; empty: nothing.
	Schedule *scheduling.Request
	Fires    []byte
	// Increment is what the message adds to the counter of its subject, a decimal number.
	Increment []byte
}

// Publish headers.
const (
	headerID                 = "Nats-Msg-Id"
	headerExpectedStream     = "Nats-Expected-Stream"
	headerExpectedLast       = "Nats-Expected-Last-Sequence"
	headerExpectedLastID     = "Nats-Expected-Last-Msg-Id"
	headerExpectedBySubject  = "Nats-Expected-Last-Subject-Sequence"
	headerExpectedForSubject = "Nats-Expected-Last-Subject-Sequence-Subject"
	headerRecords            = "Carillon-Records"
	headerAfter              = "Carillon-After"
	headerRollup             = "Nats-Rollup"
	headerTTL                = "Nats-TTL"
	headerMarkerReason       = "Nats-Marker-Reason"
	headerKVOperation        = "KV-Operation"
	headerBatchID            = "Nats-Batch-Id"
	headerBatchSequence      = "Nats-Batch-Sequence"
	headerBatchCommit        = "Nats-Batch-Commit"
	headerRequiredLevel      = "Nats-Required-Api-Level"
	headerStreamSource       = "Nats-Stream-Source"
	headerIncrement          = "Nats-Incr"
	headerCounterSources     = "Nats-Counter-Sources"
)

// refusedHeaders require features that Carillon does not support yet. They are refused as
// nats-server does for a stream without the feature. Remove a line when the feature is supported.
var refusedHeaders = [...]struct {
	name string
	err  *Error
}{}

// ParsePublish parses the headers of a published message, the first one of each name. It returns an
// error if they require an unsupported feature.
func ParsePublish(header protocol.Header) (p Publish, _ *Error) {
	if !bytes.Contains(header, []byte("\nNats-")) && !bytes.Contains(header, []byte("\nCarillon-")) && !bytes.Contains(header, []byte("\nKV-")) {
		return p, nil // the usual case: no such header
	}
	var seen struct{ increment, id, stream, last, lastID, bySubject, forSubject, records, after, rollup, ttl, operation bool }
	first := func(seen *bool) bool { was := *seen; *seen = true; return !was }
	for key, value := range header.All() {
		if string(key) == headerRecords && first(&seen.records) {
			n, number := ParseUint(value)
			if !number || n == 0 || n > math.MaxUint16+1 {
				return Publish{}, ErrRecords.With(fmt.Sprintf("%s is %.32q (write how many records the payload has, 1 to %d)", headerRecords, value, math.MaxUint16+1))
			}
			p.Records = int(n)
		}
		if string(key) == headerAfter && first(&seen.after) {
			p.After = value
		}
		if string(key) == scheduling.Header && p.Fires == nil {
			p.Fires = value
		}
		if p.noteSchedule(key, value) {
			continue
		}
		if string(key) == headerKVOperation && first(&seen.operation) && string(value) == "PURGE" {
			p.Marks = true
		}
		if !bytes.HasPrefix(key, []byte("Nats-")) || len(value) == 0 {
			continue
		}
		ok := true
		switch string(key) {
		case headerID:
			if first(&seen.id) {
				p.ID = value
			}
		case headerExpectedStream:
			if first(&seen.stream) {
				p.ExpectedStream = value
			}
		case headerExpectedLastID:
			if first(&seen.lastID) {
				p.ExpectedLastID = value
			}
		case headerExpectedForSubject:
			if first(&seen.forSubject) {
				p.ExpectedSubject = value
			}
		case headerExpectedLast:
			if first(&seen.last) {
				p.ExpectedLast, ok = ParseUint(value)
				p.ExpectsLast = true
			}
		case headerExpectedBySubject:
			if first(&seen.bySubject) {
				p.ExpectedLastBySubject, ok = ParseUint(value)
				p.ExpectsLastBySubject = true
			}
		case headerRollup:
			if !first(&seen.rollup) {
				break
			}
			switch string(value) {
			case "sub":
				p.Rollup = publish.RollupSubject
			case "all":
				p.Rollup = publish.RollupAll
			default:
				return Publish{}, ErrStreamRollupFailed.With(fmt.Sprintf("rollup value invalid: %.32q", value))
			}
		case headerTTL:
			if !first(&seen.ttl) {
				break
			}
			ttl, valid := parseTTL(string(value))
			if !valid {
				return Publish{}, ErrMessageTTLInvalid
			}
			p.TTL = ttl
		case headerStreamSource:
			p.Copied = true
		case headerMarkerReason:
			p.Marks = true
		case headerBatchID:
			p.Part = true
		case headerIncrement:
			if !first(&seen.increment) {
				break
			}
			if p.Increment = value; !isNumber(value) {
				return Publish{}, ErrMessageIncrInvalid
			}
		default:
			if err := refusedHeader(key); err != nil {
				return Publish{}, err
			}
		}
		if !ok {
			return Publish{}, ErrBadRequest
		}
	}
	if len(p.ExpectedSubject) > 0 && !p.ExpectsLastBySubject {
		return Publish{}, ErrStreamExpectedLastSeqPerSubjectInvalid
	}
	p.finishSchedule()
	return p, nil
}

// maxTTL is the longest TTL: what exceeds it expires as late.
const maxTTL = math.MaxInt64 / int64(time.Second)

// parseTTL parses the value of a Nats-TTL: "never", a duration as Go writes it of at least a
// second, or a number of seconds. Fractions of a second don't count.
func parseTTL(value string) (ttl time.Duration, ok bool) {
	if strings.EqualFold(value, "never") {
		return publish.Never, true
	}
	if d, err := time.ParseDuration(value); err == nil {
		return d.Truncate(time.Second), d >= time.Second
	}
	n, ok := ParseUint([]byte(value))
	return time.Duration(min(n, uint64(maxTTL))) * time.Second, ok
}

// AppendMarker appends the header of a marker, as nats-server writes it, with the condition that
// the last message of the subject has that sequence.
func AppendMarker(dst []byte, ttl time.Duration, last uint64) []byte {
	return fmt.Appendf(dst, "NATS/1.0\r\n%s: MaxAge\r\n%s: %s\r\n%s: sub\r\n%s: %d\r\n\r\n",
		headerMarkerReason, headerTTL, ttl, headerRollup, headerExpectedBySubject, last)
}

func refusedHeader(key []byte) *Error {
	for i := range refusedHeaders {
		if string(key) == refusedHeaders[i].name {
			return refusedHeaders[i].err
		}
	}
	return nil
}

// ParsePart parses the headers that say how a message belongs to an atomic batch, the first one of
// each name. ok is false if it belongs to none.
func ParsePart(header protocol.Header) (p publish.Part, ok bool) {
	if !bytes.Contains(header, []byte(headerBatchID)) {
		return p, false // the usual case
	}
	if p.Batch, _ = header.Get(headerBatchID); len(p.Batch) == 0 {
		return p, false
	}
	if value, ok := header.Get(headerBatchSequence); ok {
		p.Sequence, p.Sequenced = ParseUint(value)
	}
	if value, ok := header.Get(headerBatchCommit); ok {
		switch string(value) {
		case "1":
			p.Commit = publish.CommitWith
		case "eob":
			p.Commit = publish.CommitBefore
		default:
			p.Commit = publish.CommitInvalid
		}
	}
	if value, ok := header.Get(headerRequiredLevel); ok && len(value) > 0 {
		p.Unserved, p.Strip = !LevelServed(value), headerRequiredLevel
	}
	return p, true
}

// AppendCommit appends a header with the mark of the message that commits a batch.
func AppendCommit(dst []byte, header protocol.Header) []byte {
	dst = append(dst, bytes.TrimSuffix(header, []byte("\r\n"))...)
	return append(dst, headerBatchCommit+": 1\r\n\r\n"...)
}

// isNumber reports whether text is a decimal number, with an optional sign.
func isNumber(text []byte) bool {
	if len(text) > 0 && (text[0] == '+' || text[0] == '-') {
		text = text[1:]
	}
	return len(text) > 0 && len(bytes.Trim(text, "0123456789")) == 0
}

// ParseCounter parses a message of a counter: its total, and what its header says of other streams,
// or nothing. ok is false if it is no such message.
func ParseCounter(header protocol.Header, payload []byte) (total, sources []byte, ok bool) {
	var counter struct {
		Val string `json:"val"`
	}
	if json.Unmarshal(payload, &counter) != nil || !isNumber([]byte(counter.Val)) {
		return nil, nil, false
	}
	if sources, _ = header.Get(headerCounterSources); len(sources) > 0 {
		var streams map[string]map[string]string
		if json.Unmarshal(sources, &streams) != nil {
			return nil, nil, false
		}
	}
	return []byte(counter.Val), sources, true
}

// CounterSource returns the value of Nats-Counter-Sources with another total of a stream's subject,
// as nats-server writes it, and the total before; empty: none. ok is false if sources, which may be
// empty, is no such value.
func CounterSource(sources []byte, stream, subject, total string) (updated []byte, before string, ok bool) {
	streams := map[string]map[string]string{}
	if len(sources) > 0 && (json.Unmarshal(sources, &streams) != nil || streams == nil) {
		return nil, "", false
	}
	before = streams[stream][subject]
	if streams[stream] == nil {
		streams[stream] = map[string]string{}
	}
	streams[stream][subject] = total
	updated, err := json.Marshal(streams)
	return updated, before, err == nil && (before == "" || isNumber([]byte(before)))
}

// AppendCounter appends a message of a counter: the header of the increment, with what is known of
// other streams, and the total. With other streams, a copy gets an increment of its own; empty: the
// header keeps the one it has. It returns the size of the header, too.
func AppendCounter(dst []byte, header protocol.Header, total, increment string, sources []byte) (message []byte, headerSize int) {
	from := len(dst)
	if len(sources) == 0 {
		dst = append(dst, header...)
	} else {
		dst = append(dst, "NATS/1.0\r\n"...)
		for key, value := range header.All() {
			if increment != "" && string(key) == headerIncrement {
				value = []byte(increment)
			}
			if string(key) != headerCounterSources {
				dst = fmt.Appendf(dst, "%s: %s\r\n", key, value)
			}
		}
		dst = fmt.Appendf(dst, "%s: %s\r\n\r\n", headerCounterSources, sources)
	}
	headerSize = len(dst) - from
	return fmt.Appendf(dst, `{"val":"%s"}`, total), headerSize
}

// AppendPubAck appends the answer to a message that was stored, now or earlier. For a message that
// carried records, sequence is the last record's, and the answer contains their number.
func AppendPubAck(dst []byte, stream string, a publish.Ack) []byte {
	dst = appendString(append(dst, `{"stream":`...), stream)
	dst = strconv.AppendUint(append(dst, `,"seq":`...), a.Offset, 10)
	if len(a.Batch) > 0 {
		dst = appendString(append(dst, `,"batch":`...), string(a.Batch))
	}
	if len(a.Total) > 0 && len(a.Batch) == 0 {
		dst = appendString(append(dst, `,"val":`...), string(a.Total))
	}
	if a.Records > 0 {
		dst = strconv.AppendInt(append(dst, `,"count":`...), int64(a.Records), 10)
	}
	if a.Duplicate {
		dst = append(dst, `,"duplicate":true`...)
	}
	return append(dst, '}')
}

// AppendPubRefusal appends the answer to a rejected message.
func AppendPubRefusal(dst []byte, stream string, err *Error) []byte {
	dst = strconv.AppendInt(append(dst, `{"error":{"code":`...), int64(err.Code), 10)
	dst = strconv.AppendInt(append(dst, `,"err_code":`...), int64(err.ErrCode), 10)
	dst = appendString(append(dst, `,"description":`...), err.Description)
	dst = appendString(append(dst, `},"stream":`...), stream)
	return append(dst, `,"seq":0}`...)
}

// appendString appends s, which is UTF-8, as a JSON string.
func appendString(dst []byte, s string) []byte {
	dst = append(dst, '"')
	plain := 0 // bytes that stand for themselves
	for plain < len(s) && s[plain] >= ' ' && s[plain] != '"' && s[plain] != '\\' {
		plain++
	}
	dst = append(dst, s[:plain]...)
	for i := plain; i < len(s); i++ {
		switch c := s[i]; {
		case c == '"' || c == '\\':
			dst = append(dst, '\\', c)
		case c < ' ':
			const digits = "0123456789abcdef"
			dst = append(dst, '\\', 'u', '0', '0', digits[c>>4], digits[c&15])
		default:
			dst = append(dst, c)
		}
	}
	return append(dst, '"')
}
