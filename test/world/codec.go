package world

import (
	"bytes"
	"fmt"
	"strconv"
	"time"

	"github.com/carillon-mq/carillon/broker/jetstream"
	"github.com/carillon-mq/carillon/broker/jsapi"
	"github.com/carillon-mq/carillon/broker/log"
	"github.com/carillon-mq/carillon/broker/protocol"
	"github.com/carillon-mq/carillon/broker/publish"
	"github.com/carillon-mq/carillon/broker/scheduling"
)

// codec encodes answers as text, where JetStream uses JSON.
type codec struct{}

var _ publish.FastCodec = codec{}

const (
	headerID        = "Id"
	headerLast      = "Nats-Expected-Last" // copies of a message in other streams lack it by this name
	headerBySubject = "Nats-Expected-Last-By-Subject"
	headerOf        = "Nats-Expected-Of" // the subject of that, or a pattern
	headerRollup    = "Rollup"           // rollupSubject or rollupAll
	headerIncrement = "Increment"
	headerValue     = "Value" // of a message whose payload is the total of a counter
	headerBatch     = "Nats-Batch-Id"
	headerSequence  = "Nats-Batch-Sequence"
	headerCommit    = "Nats-Batch-Commit" // commitWith or commitBefore

	headerWritten = "Nats-Expected-Last-Subject-Sequence" // of what a View writes

	countMark = "of " // before the number of messages of a batch, in its answer

	rollupSubject, rollupAll = "sub", "all"
	commitWith, commitBefore = "1", "eob"
)

func (codec) Conditions(header []byte) (c publish.Conditions, refusal error) {
	if len(header) == 0 {
		return c, nil
	}
	h := protocol.Header(header)
	_, ttl := h.Get(headerTTL) // markers have one, too
	_, schedule := h.Get(headerSchedule)
	_, written := h.Get(headerWritten)
	if _, fires := h.Get(scheduling.Header); ttl || schedule || fires || written {
		return jetstream.PublishCodec{}.Conditions(header)
	}
	c.ID, _ = h.Get(headerID)
	if value, ok := h.Get(headerLast); ok {
		if c.ExpectedLast, refusal = strconv.ParseUint(string(value), 10, 64); refusal != nil {
			return c, refusal
		}
		c.ExpectsLast = true
	}
	if value, ok := h.Get(headerBySubject); ok {
		if c.ExpectedLastBySubject, refusal = strconv.ParseUint(string(value), 10, 64); refusal != nil {
			return c, refusal
		}
		c.ExpectsLastBySubject = true
	}
	c.ExpectedSubject, _ = h.Get(headerOf)
	switch value, _ := h.Get(headerRollup); string(value) {
	case rollupSubject:
		c.Rollup = publish.RollupSubject
	case rollupAll:
		c.Rollup = publish.RollupAll
	}
	c.Increment, _ = h.Get(headerIncrement)
	_, c.Part = h.Get(headerBatch)
	return c, nil
}

func (codec) AppendAck(dst []byte, shard string, a publish.Ack) []byte {
	verb := "ack"
	if a.Duplicate {
		verb = "dup"
	}
	dst = fmt.Appendf(dst, "%s %s %d", verb, shard, a.Offset)
	if len(a.Batch) > 0 {
		dst = fmt.Appendf(dst, " %s%d", countMark, a.Records)
	}
	if len(a.Total) > 0 {
		dst = fmt.Appendf(dst, " %s", a.Total)
	}
	return dst
}

func (codec) AppendRefusal(dst []byte, shard string, err error) []byte {
	if wrong, ok := err.(*publish.WrongLastError); ok {
		return fmt.Appendf(dst, "last %s %d", shard, wrong.Last)
	}
	return fmt.Appendf(dst, "no %s", err)
}

func (codec) Part(header []byte) (p publish.Part, ok bool) {
	h := protocol.Header(header)
	if p.Batch, ok = h.Get(headerBatch); !ok {
		return p, false
	}
	if value, there := h.Get(headerSequence); there {
		n, err := strconv.ParseUint(string(value), 10, 64)
		p.Sequence, p.Sequenced = n, err == nil
	}
	switch value, _ := h.Get(headerCommit); string(value) {
	case commitWith:
		p.Commit = publish.CommitWith
	case commitBefore:
		p.Commit = publish.CommitBefore
	}
	return p, true
}

// IsFast reads a reply as JetStream has it.
func (codec) IsFast(reply []byte) bool { return jsapi.IsFast(reply) }

// Fast reads a reply as JetStream has it.
func (codec) Fast(reply, header []byte) (p publish.FastPart, ok bool) {
	return jsapi.ParseFast(reply, protocol.Header(header))
}

func (codec) AppendFlow(dst []byte, sequence uint64, every uint16) []byte {
	return fmt.Appendf(dst, "flow %d %d", sequence, every)
}

func (codec) AppendGap(dst []byte, expected, came uint64) []byte {
	return fmt.Appendf(dst, "gap %d %d", expected, came)
}

func (codec) AppendFailed(dst []byte, sequence uint64, refusal []byte) []byte {
	return fmt.Appendf(dst, "err %d %s", sequence, refusal)
}

func (codec) AppendCommit(dst, header []byte) []byte {
	dst = append(dst, bytes.TrimSuffix(header, []byte("\r\n"))...)
	return append(dst, headerCommit+": "+commitWith+"\r\n\r\n"...)
}

// Counter reads the total of a counter. No client of a world writes totals of other streams.
func (codec) Counter(header, payload []byte) (total, sources []byte, ok bool) {
	_, ok = protocol.Header(header).Get(headerIncrement)
	return payload, nil, ok
}

// CounterSource has no source: no counter of a world has one.
func (codec) CounterSource(_ []byte, _, _, _ string) (updated []byte, before string, ok bool) {
	return nil, "", false
}

func (codec) AppendCounter(dst, header []byte, total, _ string, _ []byte) (record []byte, headerSize int) {
	return append(append(dst, header...), total...), len(header)
}

func (codec) AppendMarker(dst []byte, ttl time.Duration, last uint64) []byte {
	return jetstream.PublishCodec{}.AppendMarker(dst, ttl, last)
}

// contentOf returns the value that was published as a record, and the total of a counter; empty: it
// is no counter.
func contentOf(r *log.Record) (value, total string) {
	payload := string(bytes.TrimRight(r.Data[r.Header:], ".")) // few bytes of a flood are copied
	if r.Header > 0 {
		h := protocol.Header(r.Data[:r.Header])
		if v, ok := h.Get(headerValue); ok {
			return string(v), payload
		}
		if _, fired := h.Get(headerScheduler); fired {
			return firedTitle + payload, ""
		}
		if _, marker := h.Get(headerMarker); marker {
			of, _ := h.Get(headerMarked)
			return markerTitle + string(of), ""
		}
	}
	return payload, ""
}
