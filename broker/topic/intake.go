package topic

import (
	"sync"

	"github.com/carillon-mq/carillon/broker/forward"
	"github.com/carillon-mq/carillon/broker/log"
	"github.com/carillon-mq/carillon/broker/protocol"
	"github.com/carillon-mq/carillon/broker/publish"
	"github.com/carillon-mq/carillon/broker/sender"
)

// intake is what one call of Take works with.
type intake struct {
	records []log.Record
	append  log.Append
	first   bool // the next message is the first with an id, and the log has to say so before
	alone   bool // the next message, or the last one gathered, is a batch by itself
	gone    bool // the shard has ended

	extensions []log.Extension

	from      *sender.Arrival
	back      sender.Back
	seq       uint64 // of the next message
	why       error  // why nothing is taken, or nil
	gap       bool   // others have to come before the next message
	origin    *forward.Origin
	spans     []forward.Span  // what is kept in the batch
	answers   forward.Answers // that are due at once
	questions *pending        // refusals that wait until it is confirmed that this broker leads; nil: none
	signature []byte
	head      []byte
}

var intakes = sync.Pool{New: func() any { return &intake{} }}

// finish sends the answers that are due at once.
func (in *intake) finish(p *Shard) {
	in.head = in.back.Carry(&in.answers, p.at(), in.head)
	in.from, in.back, in.origin, in.why, in.gap, in.gone = nil, sender.Back{}, nil, nil, false, false
	intakes.Put(in)
}

func (in *intake) refuseAll(p *Shard, messages []protocol.Message, err error) {
	for range messages {
		in.refuse(p, err)
		in.seq++
	}
}

// refuse answers at once that a message is not kept.
func (in *intake) refuse(p *Shard, err error) {
	p.topic.service.counts.refused.Note(err)
	in.answers.Refused(in.seq, p.topic.service.config.Codec, p.topic.name, err)
	if in.origin != nil {
		in.origin.Settle(in.seq, forward.Outcome{Err: err})
	}
}

// note keeps that a forwarded message was judged, for when it comes again, and for the log if it is kept: with its first record at
// offset. mu is held.
func (in *intake) note(keep bool, offset uint64, records int) {
	o, seq := in.origin, in.seq
	o.Last = seq
	switch n := len(in.spans); {
	case !keep:
		if _, said := o.Settled[seq]; !said { // it was not meant to be kept
			o.Settle(seq, forward.Outcome{})
			in.answers.Refused(seq, nil, "", nil)
		}
	case n > 0 && records == 0 && in.spans[n-1].End() == seq:
		in.spans[n-1].Count++
	default:
		in.spans = append(in.spans, forward.Span{First: seq, Offset: offset, Count: 1, Records: uint32(records)})
	}
}

// gatherRecords adds the records of a message, which becomes a batch of its own. mu is held.
func (in *intake) gatherRecords(m *protocol.Message, c *publish.Conditions, now int64) {
	if len(c.ID) > 0 {
		in.extensions = append(in.extensions, log.Extension{Type: publish.MessageID, Data: c.ID})
	}
	in.append.Packed = log.Packed{Subject: m.Subject, Time: now, Count: c.Records, Records: m.Data[m.Header:]}
	in.alone = true
}

// sign has the batch say whose messages it holds.
func (in *intake) sign(source, floor uint64) {
	in.signature = forward.AppendExtension(in.signature[:0], source, floor, in.spans)
	in.extensions = append(in.extensions, log.Extension{Type: forward.ExtensionType, Data: in.signature})
}

// appended notes of the messages that were appended, or that they weren't. mu is held.
func (in *intake) appended(err error) {
	for i := range in.spans {
		k := &in.spans[i]
		if err == nil {
			in.origin.Keep(*k, in.origin.Heard)
			continue
		}
		for seq := k.First; seq < k.End(); seq++ {
			in.origin.Settle(seq, forward.Outcome{Err: err})
		}
	}
	in.spans = in.spans[:0]
}
