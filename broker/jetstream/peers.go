package jetstream

import (
	"context"
	"encoding/json"
	"time"

	"github.com/carillon-mq/carillon/broker/jsapi"
	"github.com/carillon-mq/carillon/broker/protocol"
)

// Subjects of requests between brokers. They are accepted from links only: a client that publishes
// there is ignored.
const (
	peerPrefix         = "$CARILLON.ASK."
	peerSubjects       = peerPrefix + ">"
	streamInfoSubject  = peerPrefix + "STREAMS" // the infos of some streams
	usageSubject       = peerPrefix + "USAGE"   // the usage of the broker
	createdSubject     = peerPrefix + "CREATED" // answer the client once its new stream is served
	callSubject        = peerPrefix + "CALL"    // serve an API call about one stream
	shareSubject       = peerPrefix + "LOAN"    // serve a share or a watch
	answerSubject      = peerPrefix + "ANSWER"  // an answer to one of the other requests
	shareResultSubject = peerPrefix + "RETURN"  // the result of a share or a watch
	// relayPrefix begins those of deliveries to relays.
)

// peerRequest is a request of one broker to another.
type peerRequest struct {
	From    string   `json:"from"` // id of the requesting broker
	Number  uint64   `json:"number"`
	Streams []string `json:"streams,omitempty"` // keys
	// Stream is the key of the stream that was created, and Within how long the client still waits.
	Stream string        `json:"stream,omitempty"`
	Name   string        `json:"name,omitempty"`
	Within time.Duration `json:"within,omitempty"`
	// Payload is the payload of an API call. Name is its subject.
	Payload []byte `json:"payload,omitempty"`
}

// peerAnswer is one answer to a peerRequest. Each stream has an answer of its own, because all of
// them might not fit one message.
type peerAnswer struct {
	Number uint64            `json:"number"`
	Stream string            `json:"stream,omitempty"`
	Info   *jsapi.StreamInfo `json:"info,omitempty"` // nil if that broker does not lead it
	Usage  *usage            `json:"usage,omitempty"`
	// Answer is the answer to an API call.
	Answer json.RawMessage `json:"answer,omitempty"`
}

// forward sends a request or answer to a broker. It reports whether there is a link to it.
func (s *Server) forward(broker, subject string, reply []byte, what any) bool {
	data, err := json.Marshal(what)
	if err != nil {
		return false
	}
	return s.pass(broker, &protocol.Message{Subject: []byte(subject), Reply: reply, Data: data})
}

// askStreams requests the infos of streams from their leaders and adds them to known.
func (s *Server) askStreams(ctx context.Context, byLeader map[string][]string, known map[string]*jsapi.StreamInfo) {
	most := 0
	for _, ids := range byLeader {
		most += len(ids)
	}
	s.askPeers(ctx, most, func(number uint64) (expected int) {
		for leader, ids := range byLeader {
			if s.forward(leader, streamInfoSubject, nil, peerRequest{From: s.config.Self, Number: number, Streams: ids}) {
				expected += len(ids)
			}
		}
		return expected
	}, func(t peerAnswer) {
		if t.Info != nil {
			known[t.Stream] = t.Info
		}
	})
}

// askUsage adds the other brokers' usage to total.
func (s *Server) askUsage(ctx context.Context, brokers []string, total *usage) {
	s.askPeers(ctx, len(brokers), func(number uint64) (expected int) {
		for _, broker := range brokers {
			if s.forward(broker, usageSubject, nil, peerRequest{From: s.config.Self, Number: number}) {
				expected++
			}
		}
		return expected
	}, func(t peerAnswer) {
		if t.Usage != nil {
			total.add(*t.Usage)
		}
	})
}

// askPeers sends a request to other brokers and calls take for each answer that arrives in time.
func (s *Server) askPeers(ctx context.Context, most int, send func(number uint64) (expected int), take func(peerAnswer)) {
	ctx, cancel := context.WithTimeout(ctx, s.timeouts.ask)
	defer cancel()
	s.peerRequests.Do(ctx, most, send, take)
}

// askCreated asks the leader of a new stream to answer the client.
func (s *Server) askCreated(leader, id string, c *call) bool {
	return s.forward(leader, createdSubject, c.reply, peerRequest{
		From: s.config.Self, Stream: id, Name: string(c.Stream), Within: time.Until(c.deadline),
	})
}

// takePeerMessage handles a request or an answer of another broker.
func (s *Server) takePeerMessage(m *protocol.Message) {
	if isRelayed(m.Subject) {
		s.takeRelayed(m)
		return
	}
	switch string(m.Subject) {
	case answerSubject:
		var t peerAnswer
		if json.Unmarshal(m.Data, &t) == nil {
			s.peerRequests.Answer(t.Number, t)
		}
	case streamInfoSubject, usageSubject:
		var q peerRequest
		if json.Unmarshal(m.Data, &q) != nil {
			return
		}
		about := s.answerStreams
		if string(m.Subject) == usageSubject {
			about = s.answerUsage
		}
		// If the pool is full, the other broker gets no answer and goes on without.
		s.reads.Submit(brokers, asked{do: func() { about(q) }}, len(m.Data))
	case callSubject:
		var q peerRequest
		if json.Unmarshal(m.Data, &q) == nil {
			s.answerFor(q, func(t peerAnswer) { s.forward(q.From, answerSubject, nil, t) })
		}
	case shareSubject:
		s.takeShareRequest(m)
	case shareResultSubject:
		s.shares.takeResult(m)
	case createdSubject:
		s.takeCreated(m)
	}
}

func (s *Server) answerStreams(q peerRequest) {
	for _, id := range q.Streams {
		s.forward(q.From, answerSubject, nil, peerAnswer{Number: q.Number, Stream: id, Info: s.describeLed(id)})
	}
}

func (s *Server) answerUsage(q peerRequest) {
	own := s.ownUsage()
	s.forward(q.From, answerSubject, nil, peerAnswer{Number: q.Number, Usage: &own})
}

// takeCreated answers a client that created a stream through another broker, which this one serves.
func (s *Server) takeCreated(m *protocol.Message) {
	var q peerRequest
	if json.Unmarshal(m.Data, &q) != nil {
		return
	}
	c := &call{
		Request: jsapi.Request{Call: jsapi.StreamCreate, Stream: []byte(q.Name)}, reply: append([]byte(nil), m.Reply...),
		forwarded: true, deadline: time.Now().Add(min(q.Within, s.timeouts.answer)),
		message: protocol.Message{Subject: []byte(jsapi.APIPrefix + "STREAM.CREATE." + q.Name)},
	}
	s.submitSlow(c, func(ctx context.Context) { s.answerCreated(ctx, c, q.Stream) })
}
