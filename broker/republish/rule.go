package republish

import (
	"bytes"
	"strconv"
	"time"

	"github.com/carillon-mq/carillon/broker/coordination"
	"github.com/carillon-mq/carillon/broker/log"
	"github.com/carillon-mq/carillon/broker/protocol"
	"github.com/carillon-mq/carillon/broker/subject"
	"github.com/carillon-mq/carillon/broker/transform"
)

// Rule says which messages of a stream are published again, and how. It never changes. A nil Rule
// takes none.
type Rule struct {
	stream      string
	user        string // on whose behalf; empty: nobody's
	source      []byte
	by          *transform.Transform
	headersOnly bool
	own         []byte // the header line of a message that this stream has published again
}

// RuleOf returns the rule of a Topic, or nil.
func RuleOf(name string, spec *coordination.TopicSpec) *Rule {
	r := spec.Stream.Republish
	if r == nil {
		return nil
	}
	by, err := transform.New(r.Source, r.Destination)
	if err != nil || by == nil {
		return nil // it was checked when it was asked for
	}
	return &Rule{
		stream: name, user: spec.Stream.User, source: []byte(r.Source), by: by, headersOnly: r.HeadersOnly,
		own: []byte("\r\nNats-Stream: " + name + "\r\n"),
	}
}

// Takes reports whether messages on a subject are published again.
func (r *Rule) Takes(name []byte) bool { return r != nil && subject.Matches(r.source, name) }

const (
	headerBegin = "NATS/1.0\r\n"
	lineEnd     = "\r\n"
)

// append appends to dst a record as it is published again, and returns it as a message. ok is false
// if it is not published: its subject would be invalid, or the stream has published it before.
func (r *Rule) append(dst []byte, rec *log.Record, n *Note, last uint64) (m protocol.Message, _ []byte, ok bool) {
	header, payload := rec.Data[:rec.Header], rec.Data[rec.Header:]
	if bytes.Contains(header, r.own) {
		return m, dst, false
	}
	begin := len(dst)
	if dst, ok = r.by.Apply(dst, rec.Subject); !ok {
		return m, dst, false
	}
	head := len(dst)
	if header, found := bytes.CutSuffix(header, []byte(lineEnd)); found {
		dst = appendKept(dst, header)
	} else {
		dst = append(dst, headerBegin...)
	}
	dst = append(append(dst, "Nats-Stream: "...), r.stream...)
	dst = append(append(dst, "\r\nNats-Subject: "...), rec.Subject...)
	dst = strconv.AppendUint(append(dst, "\r\nNats-Sequence: "...), rec.Offset, 10)
	dst = time.Unix(0, rec.Time).UTC().AppendFormat(append(dst, "\r\nNats-Time-Stamp: "...), time.RFC3339Nano)
	if n.Known {
		dst = strconv.AppendUint(append(dst, "\r\nNats-Last-Sequence: "...), last, 10)
	}
	if r.headersOnly {
		dst = strconv.AppendInt(append(dst, "\r\nNats-Msg-Size: "...), int64(len(payload)), 10)
		payload = nil
	}
	dst = append(dst, "\r\n\r\n"...)
	body := len(dst)
	dst = append(dst, payload...)
	return protocol.Message{Subject: dst[begin:head:head], Data: dst[head:len(dst):len(dst)], Header: body - head}, dst, true
}
