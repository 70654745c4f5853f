package jetstream

import (
	"bytes"
	"time"

	"github.com/carillon-mq/carillon/broker/jsapi"
	"github.com/carillon-mq/carillon/broker/protocol"
)

// noteReader notes the client of a pull or an ack.
func (s *Server) noteReader(client uint64, m *protocol.Message) {
	switch {
	case bytes.HasPrefix(m.Subject, []byte(jsapi.AckPrefix)):
		if d, ok := jsapi.ParseAckSubject(m.Subject); ok {
			if id := s.topicID(d.Stream); id != "" {
				s.config.Clients.Acked(id, d.Consumer, client)
			}
		}
	case bytes.HasPrefix(m.Subject, []byte(jsapi.APIPrefix)):
		r, ok := jsapi.ParseSubject(m.Subject)
		if !ok || r.Call != jsapi.ConsumerNext || len(m.Reply) == 0 {
			return
		}
		if id := s.topicID(r.Stream); id != "" {
			s.config.Clients.Pulled(id, r.Consumer, client, func() time.Duration { return waits(m) })
		}
	}
}

// topicID returns the id of the Topic that a stream is, or is a shard of; empty: there is none.
func (s *Server) topicID(stream []byte) string {
	if t := s.topics.Shard(string(stream)); t != nil {
		return t.ID()
	}
	if t := s.topics.Topic(string(stream)); t != nil {
		return t.ID()
	}
	return ""
}

// waits returns how long a pull waits at most, 0 for ever. One that does not wait, or is refused,
// waits for an instant.
func waits(m *protocol.Message) time.Duration {
	_, payload := protocol.SplitData(m.Data, m.Header)
	p, refusal := jsapi.ParsePull(payload)
	if refusal != nil || p.NoWait && p.Expires == 0 {
		return 1
	}
	return p.Expires
}
