package publish

import "github.com/carillon-mq/carillon/broker/protocol"

// Replies are encoded answers that are sent together. One goroutine uses them at a time.
type Replies struct {
	Messages []protocol.Message
	buf      []byte
}

// Reset forgets them, and keeps the memory.
func (r *Replies) Reset() {
	clear(r.Messages)
	r.Messages, r.buf = r.Messages[:0], r.buf[:0]
}

// Ack adds the answer to a message that is kept.
func (r *Replies) Ack(codec Codec, to []byte, topic string, a Ack) {
	from := len(r.buf)
	r.buf = codec.AppendAck(r.buf, topic, a)
	r.Messages = append(r.Messages, protocol.Message{Subject: to, Data: r.buf[from:len(r.buf):len(r.buf)]})
}

// Refusal adds the answer to a message that is not kept.
func (r *Replies) Refusal(codec Codec, to []byte, topic string, err error) {
	from := len(r.buf)
	r.buf = codec.AppendRefusal(r.buf, topic, err)
	r.Messages = append(r.Messages, protocol.Message{Subject: to, Data: r.buf[from:len(r.buf):len(r.buf)]})
}

// Encoded adds an answer that the leader has encoded.
func (r *Replies) Encoded(to, answer []byte) {
	from := len(r.buf)
	r.buf = append(r.buf, answer...)
	r.Messages = append(r.Messages, protocol.Message{Subject: to, Data: r.buf[from:len(r.buf):len(r.buf)]})
}
