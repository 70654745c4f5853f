package subscription

import (
	"bytes"
	"fmt"
	"strconv"
	"time"

	"github.com/carillon-mq/carillon/broker/log"
	"github.com/carillon-mq/carillon/broker/protocol"
)

// The headers that a dead letter has besides those of the record.
const (
	// DeadHeader is the prefix of the others. A record's own headers of that prefix are replaced.
	DeadHeader        = "Carillon-Dead-"
	DeadReason        = DeadHeader + "Reason"         // a DeadReason value
	DeadAttempts      = DeadHeader + "Attempts"       // deliveries
	DeadFirstDelivery = DeadHeader + "First-Delivery" // a time in RFC 3339; absent: a former leader made it
	DeadLastDelivery  = DeadHeader + "Last-Delivery"  // as the first one
	DeadAnswer        = DeadHeader + "Answer"         // the last answer of a client with a text; absent: none
	DeadTopic         = DeadHeader + "Topic"          // the stream of the record: its Topic, or a shard of that
	DeadSubject       = DeadHeader + "Subject"        // of the record
	DeadOffset        = DeadHeader + "Offset"         // of the record
	DeadTime          = DeadHeader + "Time"           // of the record, in RFC 3339
	DeadSubscription  = DeadHeader + "Subscription"   // the Subscription's name
	DeadLeftOut       = DeadHeader + "Left-Out"       // DeadPayload or DeadHeaders; absent: nothing
	DeadByDeliveries  = "MaxDeliver"                  // reason: delivered as often as may be
	DeadByTermination = "Terminated"                  // reason: a client terminated it
	DeadPayload       = "Payload"                     // left out, since the message was too large
	DeadHeaders       = "Payload, Headers"            // left out, since it still was
	OriginalHeader    = "Carillon-Original-"          // before the names of headers that publishing acts on
	messageID         = "Nats-Msg-Id"
)

// actsOnPublish are the prefixes of headers that ask something of the Topic that a message is
// published into. The record's were for its own Topic.
var actsOnPublish = [][]byte{[]byte("Nats-"), []byte("Carillon-Records"), []byte("Carillon-After")}

// leftOut is what a dead letter lacks, because its Topic takes no message of that size.
type leftOut uint8

const (
	nothing leftOut = iota
	payload
	payloadAndHeaders // those of the record; not those that say why it is there
)

// deadLetterOf is what makes the dead letter of a record. It is pure.
type deadLetterOf struct {
	topic        string // the dead-letter Topic
	from         *servedShard
	subscription identity
	attempts     uint64
	terminated   bool
	leftOut      leftOut
	known        attempts
	at           func(now int64) time.Time
}

// message returns the dead letter. It is stored under the name of the dead-letter Topic with the
// record's subject behind it. Its message id is the same for each repetition.
func (o *deadLetterOf) message(r *log.Record) protocol.Message {
	header, body := protocol.SplitData(r.Data, r.Header)
	left := ""
	switch o.leftOut {
	case payload:
		left, body = DeadPayload, nil
	case payloadAndHeaders:
		left, body, header = DeadHeaders, nil, nil
	}
	data := make([]byte, 0, len(header)+len(body)+len(r.Subject)+640)
	data = append(data, "NATS/1.0\r\n"...)
	for key, value := range header.All() {
		if bytes.HasPrefix(key, []byte(DeadHeader)) {
			continue
		}
		for _, prefix := range actsOnPublish {
			if bytes.HasPrefix(key, prefix) {
				data = append(data, OriginalHeader...)
				break
			}
		}
		data = append(append(append(append(data, key...), ": "...), value...), "\r\n"...)
	}
	add := func(key, value string) {
		if value != "" {
			data = append(append(append(append(data, key...), ": "...), value...), "\r\n"...)
		}
	}
	reason := DeadByDeliveries
	if o.terminated {
		reason = DeadByTermination
	}
	add(DeadReason, reason)
	add(DeadLeftOut, left)
	add(DeadAttempts, strconv.FormatUint(o.attempts, 10))
	add(DeadFirstDelivery, o.time(o.known.first))
	add(DeadLastDelivery, o.time(o.known.last))
	add(DeadAnswer, o.known.answer)
	add(DeadTopic, o.from.name)
	add(DeadSubject, string(r.Subject))
	add(DeadOffset, strconv.FormatUint(r.Offset, 10))
	add(DeadTime, time.Unix(0, r.Time).UTC().Format(time.RFC3339Nano))
	add(DeadSubscription, o.subscription.name)
	add(messageID, fmt.Sprintf("dead/%s/%s/%d/%d", o.from.key, o.subscription.name, o.subscription.made, r.Offset))
	data = append(data, "\r\n"...)
	m := protocol.Message{Subject: deadLetterName(o.topic, r.Subject), Header: len(data)}
	m.Data = append(data, body...)
	return m
}

func (o *deadLetterOf) time(now int64) string {
	if now == 0 {
		return ""
	}
	return o.at(now).UTC().Format(time.RFC3339Nano)
}

// deadLetterName returns the subject of a dead letter. If it is too long, it ends after a token.
func deadLetterName(topic string, subject []byte) []byte {
	name := append(append(append(make([]byte, 0, len(topic)+1+len(subject)), topic...), '.'), subject...)
	if len(name) > deadLetterSubject {
		name = name[:deadLetterSubject]
		name = name[:max(bytes.LastIndexByte(name, '.'), len(topic))]
	}
	return name
}

// oneLine returns a text that fits into a header.
func oneLine(text []byte) string {
	text = text[:min(len(text), deadLetterText)]
	line := bytes.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f {
			return ' '
		}
		return r
	}, bytes.ToValidUTF8(text, nil))
	return string(bytes.TrimSpace(line))
}
