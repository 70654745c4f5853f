package topic

import (
	"sync"

	"github.com/carillon-mq/carillon/broker/acking"
	"github.com/carillon-mq/carillon/broker/attribute"
	"github.com/carillon-mq/carillon/broker/batching"
	"github.com/carillon-mq/carillon/broker/counting"
	"github.com/carillon-mq/carillon/broker/expiring"
	"github.com/carillon-mq/carillon/broker/forward"
	"github.com/carillon-mq/carillon/broker/log"
	"github.com/carillon-mq/carillon/broker/protocol"
	"github.com/carillon-mq/carillon/broker/publish"
	"github.com/carillon-mq/carillon/broker/removing"
	"github.com/carillon-mq/carillon/broker/republish"
	"github.com/carillon-mq/carillon/broker/sender"
	"github.com/carillon-mq/carillon/broker/sourcing"
	"github.com/carillon-mq/carillon/broker/stamping"
)

// intake is the work of one Shard.arrive: messages of one sender on their way to batches.
type intake struct {
	records []log.Record
	append  log.Append
	first   bool // the next message is the first with an id: the log must be marked before
	alone   bool // the next message, or the last one that was gathered, is a batch of its own
	gone    bool // leadership has ended

	parts []protocol.Message // of the next message, an atomic batch; when it waits, those from the one that does
	rules batching.Rules

	stored int64  // bytes of the shard, with this batch; 0: not looked at yet
	lookup uint64 // not 0: the next message waits for the last record of a subject (indexing.Lasts)

	extensions []log.Extension

	stamps  stamping.Writer  // the attributes of the subjects of records
	stamped int              // of records, how many it has
	look    *attribute.Store // where it looks for them; nil: nowhere
	text    string           // of the last subject
	copies  bool             // the attributes are those that sourced has

	noted     bool               // what follows may be of a message before the next one
	displaced removing.Displaced // what the next message would remove
	removed   removing.Batch     // what the messages of the batch remove
	counted   counting.Record    // what the next message is stored as, if it increments a counter
	unread    uint64             // whose total the next message waits for
	fired     expiring.Fired     // the schedule that has published the next message
	previous  republish.Note     // what the next message is published again with
	again     []republish.Note

	sourced   *sourcing.Batch // nil: messages that a sender brought
	from      *sender.Arrival
	back      sender.Back
	seq       uint64 // of the next message
	why       error  // why new messages are refused, or nil
	gap       bool   // messages before the next one are missing
	origin    *forward.Origin
	spans     []forward.Span  // the numbers of the batch
	answers   forward.Answers // due at once
	refusals  *acking.Pending // refusals that wait for a barrier round; nil: none
	signature []byte
	head      []byte
}

// The values of intake.lookup while a message waits for removing.Keeper.Mark, or for a total.
const (
	awaitsMark  = ^uint64(0)
	awaitsTotal = awaitsMark - 1
)

var intakes = sync.Pool{New: func() any { return &intake{} }}

// finish sends the answers that are due at once, and frees in.
func (in *intake) finish(p *Shard) {
	in.head = in.back.Carry(&in.answers, p.at(), in.head)
	clear(in.parts[:cap(in.parts)])
	in.removed.Reset() // a message may have been refused behind what it noted there
	in.counted = counting.Record{}
	in.stamps.Drop()
	in.look, in.text = nil, ""
	in.from, in.back, in.origin, in.sourced, in.why, in.gap, in.gone, in.lookup = nil, sender.Back{}, nil, nil, nil, false, false, 0
	intakes.Put(in)
}

// refuseAll refuses all messages.
func (in *intake) refuseAll(p *Shard, messages []protocol.Message, err error) {
	for range messages {
		in.refuse(p, err)
		in.seq++
	}
}

// refuse answers at once that the next message is not kept.
func (in *intake) refuse(p *Shard, err error) {
	if in.sourced != nil {
		in.sourced.Err = err
		return
	}
	p.topic.service.counts.refused.Note(err)
	in.answers.Refused(in.seq, p.topic.service.config.Codec, p.topic.name, err)
	if in.origin != nil {
		in.origin.Settle(in.seq, forward.Outcome{Err: err})
	}
}

// note notes that the next message was judged, for retries. If it is kept, its first record is at
// offset, and its number goes to the batch. mu is held.
func (in *intake) note(keep bool, offset uint64, records int) {
	if in.sourced != nil {
		if in.sourced.Err == nil {
			in.sourced.Taken++
		}
		return
	}
	o, seq := in.origin, in.seq
	o.Last = seq
	switch n := len(in.spans); {
	case !keep:
		if _, said := o.Settled[seq]; !said { // the Topic doesn't keep its subject
			o.Settle(seq, forward.Outcome{})
			in.answers.Refused(seq, nil, "", nil)
		}
	case n > 0 && records == 0 && in.spans[n-1].End() == seq:
		in.spans[n-1].Count++
	default:
		in.spans = append(in.spans, forward.Span{First: seq, Offset: offset, Count: 1, Records: uint32(records)})
	}
}

// gatherRecords adds the records that a message carries, as a batch of its own. mu is held.
func (in *intake) gatherRecords(m *protocol.Message, c *publish.Conditions, now int64) {
	if len(c.ID) > 0 {
		in.extensions = append(in.extensions, log.Extension{Type: publish.MessageID, Data: c.ID})
	}
	in.append.Packed = log.Packed{Subject: m.Subject, Time: now, Count: c.Records, Records: m.Data[m.Header:]}
	in.alone = true
}

// sign adds the sender and the numbers of the messages to the batch, as an extension.
func (in *intake) sign(source, floor uint64) {
	in.signature = forward.AppendExtension(in.signature[:0], source, floor, in.spans)
	in.extensions = append(in.extensions, log.Extension{Type: forward.ExtensionType, Data: in.signature})
}

// record returns what a message is stored as.
func (in *intake) record(m *protocol.Message, now int64) log.Record {
	if in.counted.Data != nil {
		return log.Record{Time: now, Subject: m.Subject, Header: in.counted.Header, Data: in.counted.Data}
	}
	return in.fired.Record(log.Record{Time: now, Subject: m.Subject, Header: m.Header, Data: m.Data})
}

// appended notes whether the messages of the batch were appended. mu is held.
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

// announceOpen notifies the senders that wait: the shard takes their messages now.
func (p *Shard) announceOpen() { p.waiters.Ready(p.at()) }

// announceSoon is announceOpen for senders that wait for what other replicas do.
func (p *Shard) announceSoon() { p.waiters.ReadySoon(markRest, p.at) }
