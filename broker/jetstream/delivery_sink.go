package jetstream

import (
	"github.com/carillon-mq/carillon/broker/jsapi"
	"github.com/carillon-mq/carillon/broker/log"
	"github.com/carillon-mq/carillon/broker/protocol"
	"github.com/carillon-mq/carillon/broker/subscription"
	"github.com/carillon-mq/carillon/broker/topic"
	"github.com/carillon-mq/carillon/broker/work"
)

// deliverySink sends the deliveries of one consumer as JetStream messages. What it gathers until
// Flush is in memory that all sinks share, so an idle consumer holds none, and a delivery does not
// allocate.
type deliverySink struct {
	server           *Server
	stream, consumer []byte
	batch            *batch      // nil if nothing is gathered
	behind           work.Behind // what was sent since the last wait in Flush waits there
}

// batch holds messages and the memory that their slices alias.
type batch struct {
	messages []protocol.Message
	memory   []byte
	passed   protocol.Message // to the relay of another broker
	home     string           // id of that broker
}

// Sink returns the DeliverySink of a consumer. It implements subscription.Config.Sink.
func (s *Server) Sink(t *topic.Shard, name string) subscription.DeliverySink {
	return &deliverySink{server: s, stream: []byte(t.Name()), consumer: []byte(name)}
}

func (o *deliverySink) gather() *batch {
	if o.batch == nil {
		o.batch = o.server.outgoing.Get().(*batch)
	}
	return o.batch
}

// Deliver sends a record under its own subject to the requester. The reply subject is for its ack.
func (o *deliverySink) Deliver(to []byte, d *subscription.Delivery, r *log.Record) {
	b := o.gather()
	m := protocol.Message{To: b.copyIn(to), Subject: b.copyIn(r.Subject)}
	ack := o.ack(d)
	m.Reply = b.appended(len(b.memory), ack.AppendSubject(b.memory))
	if d.HeadersOnly || d.Pin != "" {
		b.addHeaders(&m, d, r)
	} else {
		m.Data, m.Header = b.copyIn(r.Data), r.Header
	}
	o.add(m)
	o.server.delivered.Add(1)
}

// addHeaders sets the message's data to that of the record, with headers of the delivery.
func (b *batch) addHeaders(m *protocol.Message, d *subscription.Delivery, r *log.Record) {
	header, payload := protocol.SplitData(r.Data, r.Header)
	if d.Pin != "" {
		header = b.appended(len(b.memory), jsapi.AppendPinned(b.memory, header, d.Pin))
	}
	start := len(b.memory)
	if d.HeadersOnly {
		m.Data = b.appended(start, jsapi.AppendHeadersOnly(b.memory, header, len(payload)))
		m.Header = len(m.Data)
		return
	}
	m.Data, m.Header = b.appended(start, append(append(b.memory, header...), payload...)), len(header)
}

func (o *deliverySink) ack(d *subscription.Delivery) jsapi.Delivery {
	return jsapi.Delivery{
		Stream: o.stream, Consumer: o.consumer, Delivered: d.Delivered,
		StreamSeq: d.Offset, ConsumerSeq: d.Sequence, Time: d.Time, Pending: d.Pending,
	}
}

// Size returns the bytes that clients count towards max_bytes.
func (o *deliverySink) Size(d *subscription.Delivery, r *log.Record) int {
	var memory [2 * jsapi.MaxName]byte
	ack := o.ack(d)
	size := len(r.Subject) + len(ack.AppendSubject(memory[:0]))
	if !d.HeadersOnly {
		return size + len(r.Data)
	}
	header, payload := protocol.SplitData(r.Data, r.Header)
	return size + jsapi.HeadersOnlySize(header, len(payload))
}

// End sends the status that ends a pull.
func (o *deliverySink) End(to []byte, why subscription.End, messages, bytes int) {
	b := o.gather()
	start := len(b.memory)
	if b.memory = appendEnd(b.memory, why, messages, bytes); len(b.memory) > start {
		o.status(to, start)
	}
}

// appendEnd appends the status that tells a client why its pull ended. It appends nothing for
// reasons that clients do not need.
func appendEnd(dst []byte, why subscription.End, messages, bytes int) []byte {
	switch why {
	case subscription.Expired:
		return jsapi.AppendStatusLeft(dst, jsapi.RequestTimeout, messages, bytes)
	case subscription.NoMessages:
		return jsapi.AppendStatus(dst, jsapi.NoMessages)
	case subscription.BatchDone:
		return jsapi.AppendStatusLeft(dst, jsapi.BatchCompleted, messages, bytes)
	case subscription.MaxBytes:
		return jsapi.AppendStatusLeft(dst, jsapi.MaxBytesExceeded, messages, bytes)
	case subscription.TooManyWaiting:
		return jsapi.AppendStatus(dst, jsapi.MaxWaitingExceeded)
	case subscription.Deleted:
		return jsapi.AppendStatus(dst, jsapi.ConsumerDeleted)
	case subscription.LeaderGone:
		return jsapi.AppendStatus(dst, jsapi.LeadershipChange)
	case subscription.Stopping:
		return jsapi.AppendStatusLeft(dst, jsapi.ServerShutdown, messages, bytes)
	case subscription.PinMismatch:
		return jsapi.AppendStatus(dst, jsapi.PinMismatch)
	case subscription.WrongPin:
		return jsapi.AppendStatusLeft(dst, jsapi.WrongPin, messages, bytes)
	case subscription.Pushed:
		return jsapi.AppendStatus(dst, jsapi.ConsumerIsPush)
	}
	return dst
}

// Heartbeat sends an idle heartbeat. A receiver that does not answer a flow control request finds
// the subject for the answer in it.
func (o *deliverySink) Heartbeat(to []byte, lastSequence, lastOffset, stalled uint64) {
	b := o.gather()
	start := len(b.memory)
	if stalled == 0 {
		b.memory = jsapi.AppendHeartbeat(b.memory, lastSequence, lastOffset, nil)
	} else {
		b.memory = jsapi.AppendHeartbeat(b.memory, lastSequence, lastOffset, &jsapi.Flow{Stream: o.stream, Consumer: o.consumer, Token: stalled})
	}
	o.status(to, start)
}

// FlowControl sends a flow control request.
func (o *deliverySink) FlowControl(to []byte, token uint64) {
	b := o.gather()
	m := protocol.Message{Subject: b.copyIn(to)}
	answer := jsapi.Flow{Stream: o.stream, Consumer: o.consumer, Token: token}
	m.Reply = b.appended(len(b.memory), answer.AppendSubject(b.memory))
	m.Data = b.appended(len(b.memory), jsapi.AppendFlowRequest(b.memory))
	m.Header = len(m.Data)
	o.add(m)
}

// status adds a status message, whose bytes were appended since start. It is sent to the inbox
// itself, with no other subject.
func (o *deliverySink) status(to []byte, start int) {
	b := o.batch
	data := b.memory[start:len(b.memory):len(b.memory)]
	o.add(protocol.Message{Subject: b.copyIn(to), Header: len(data), Data: data})
}

func (o *deliverySink) add(m protocol.Message) {
	b := o.batch
	b.messages = append(b.messages, m)
	if len(b.messages) >= batchMessages || len(b.memory) >= batchBytes {
		o.sendBatch()
	}
}

// Flush sends what was gathered in one call, and waits for the loops and links that have it:
// reading is faster than sending, and what is sent waits in memory.
func (o *deliverySink) Flush() {
	o.sendBatch()
	o.behind.Wait()
}

// sendBatch sends what was gathered. It must not wait: it is also called under the Subscription's
// lock, which the readers of links need for acks, so two brokers that waited for each other's links
// would deadlock.
func (o *deliverySink) sendBatch() {
	b := o.batch
	if b == nil {
		return
	}
	o.batch = nil
	o.server.sendBatch(b, &o.behind)
	clear(b.messages)
	b.messages = b.messages[:0]
	if cap(b.memory) > 2*batchBytes {
		b.memory = nil // one large message must not be held for ever
	} else {
		b.memory = b.memory[:0]
	}
	o.server.outgoing.Put(b)
}

// sendBatch sends messages, those for relays to them. It adds to behind.
func (s *Server) sendBatch(b *batch, behind *work.Behind) {
	rest := b.messages
	for i := range b.messages {
		if m := &b.messages[i]; isRelayed(m.To) {
			if before := b.messages[len(b.messages)-len(rest) : i]; len(before) > 0 {
				behind.Join(s.config.Hub.Send(before))
			}
			rest = b.messages[i+1:]
			behind.Join(s.sendToRelay(b, m))
		}
	}
	if len(rest) > 0 {
		behind.Join(s.config.Hub.Send(rest))
	}
}

// Interested reports whether the inbox still has a subscriber. A relay asks only for what its
// receiver takes.
func (o *deliverySink) Interested(to []byte) bool {
	return isRelayed(to) || o.server.config.Hub.Interested(to)
}

// Watch watches the subscribers of the deliver subject of a user.
func (o *deliverySink) Watch(user string, to []byte, group string, changed func()) subscription.Interest {
	return o.server.watchFor(user, string(to), group, changed)
}

// copyIn copies p into the batch's memory. When the memory grows, earlier slices stay valid.
func (b *batch) copyIn(p []byte) []byte { return b.appended(len(b.memory), append(b.memory, p...)) }

// appended makes grown, which is the memory with bytes appended, the batch's memory and returns
// what was appended.
func (b *batch) appended(start int, grown []byte) []byte {
	b.memory = grown
	return grown[start:len(grown):len(grown)]
}
