package jetstream

import (
	"context"
	"encoding/json"
	"time"

	"github.com/carillon-mq/carillon/broker/jsapi"
	"github.com/carillon-mq/carillon/broker/protocol"
)

// What brokers ask each other has subjects of its own. It comes by links only: a client that publishes
// there is not heard.
const (
	askPrefix      = "$CARILLON.ASK."
	askSubjects    = askPrefix + ">"
	askStreamInfo  = askPrefix + "STREAMS" // what there is in some streams
	askBrokerUsage = askPrefix + "USAGE"   // what all that it leads takes
	askCreatedInfo = askPrefix + "CREATED" // answer the client who had a stream made, once it is served
	askForCall     = askPrefix + "CALL"    // answer a call of the API about one stream
	askLoan        = askPrefix + "LOAN"    // let a request elsewhere have what there is in one shard, see group
	tellAnswer     = askPrefix + "ANSWER"  // one answer to one of the others
	tellLoan       = askPrefix + "RETURN"  // the result of a share
)

// peerRequest is a request of one broker to another.
type peerRequest struct {
	From    string   `json:"from"` // id of the broker that wants to know
	Number  uint64   `json:"number"`
	Streams []string `json:"streams,omitempty"` // ids
	// Stream is the id of the one that was made, and Within how long the client still waits.
	Stream string        `json:"stream,omitempty"`
	Name   string        `json:"name,omitempty"`
	Within time.Duration `json:"within,omitempty"`
	// Payload is that of a call, of which Name is the subject.
	Payload []byte `json:"payload,omitempty"`
}

// peerAnswer is one answer to a peerRequest. Each stream has an answer of its own, because all of them
// may not fit one message.
type peerAnswer struct {
	Number uint64            `json:"number"`
	Stream string            `json:"stream,omitempty"`
	Info   *jsapi.StreamInfo `json:"info,omitempty"` // nil: it is not led there
	Usage  *usage            `json:"usage,omitempty"`
	// Answer is that to a call.
	Answer json.RawMessage `json:"answer,omitempty"`
}

// forward sends one of these messages to a broker.
func (s *Server) forward(broker, subject string, reply []byte, what any) bool {
	data, err := json.Marshal(what)
	if err != nil {
		return false
	}
	return s.config.Hub.Forward(broker, &protocol.Message{Subject: []byte(subject), Reply: reply, Data: data})
}

// askStreams adds to known the streams that other brokers lead.
func (s *Server) askStreams(ctx context.Context, byLeader map[string][]string, known map[string]*jsapi.StreamInfo) {
	most := 0
	for _, ids := range byLeader {
		most += len(ids)
	}
	s.askPeers(ctx, most, func(number uint64) (expected int) {
		for leader, ids := range byLeader {
			if s.forward(leader, askStreamInfo, nil, peerRequest{From: s.config.Self, Number: number, Streams: ids}) {
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

// askUsage adds to total the usage of streams that other brokers lead.
func (s *Server) askUsage(ctx context.Context, brokers []string, total *usage) {
	s.askPeers(ctx, len(brokers), func(number uint64) (expected int) {
		for _, broker := range brokers {
			if s.forward(broker, askBrokerUsage, nil, peerRequest{From: s.config.Self, Number: number}) {
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

// askPeers sends a request to other brokers and takes the answers that come in time.
func (s *Server) askPeers(ctx context.Context, most int, send func(number uint64) (expected int), take func(peerAnswer)) {
	ctx, cancel := context.WithTimeout(ctx, s.waits.ask)
	defer cancel()
	s.asks.Do(ctx, most, send, take)
}

// askCreated has the leader of a new stream answer the client.
func (s *Server) askCreated(leader, id string, c *call) bool {
	return s.forward(leader, askCreatedInfo, c.reply, peerRequest{
		From: s.config.Self, Stream: id, Name: string(c.Stream), Within: time.Until(c.deadline),
	})
}

// takePeerMessage takes a request or an answer of another broker.
func (s *Server) takePeerMessage(m *protocol.Message) {
	switch string(m.Subject) {
	case tellAnswer:
		var t peerAnswer
		if json.Unmarshal(m.Data, &t) == nil {
			s.asks.Answer(t.Number, t)
		}
	case askStreamInfo, askBrokerUsage:
		var q peerRequest
		if json.Unmarshal(m.Data, &q) != nil {
			return
		}
		about := s.answerStreams
		if string(m.Subject) == askBrokerUsage {
			about = s.answerUsage
		}
		s.reads.Submit(func() { about(q) }, len(m.Data)) // or who asks gets no answer, and goes on without
	case askForCall:
		var q peerRequest
		if json.Unmarshal(m.Data, &q) == nil {
			s.answerFor(q, func(t peerAnswer) { s.forward(q.From, tellAnswer, nil, t) })
		}
	case askLoan:
		s.takeShareRequest(m)
	case tellLoan:
		s.groups.takeShareResult(m)
	case askCreatedInfo:
		s.takeCreated(m)
	}
}

func (s *Server) answerStreams(q peerRequest) {
	for _, id := range q.Streams {
		s.forward(q.From, tellAnswer, nil, peerAnswer{Number: q.Number, Stream: id, Info: s.describeLed(id)})
	}
}

func (s *Server) answerUsage(q peerRequest) {
	own := s.ownUsage()
	s.forward(q.From, tellAnswer, nil, peerAnswer{Number: q.Number, Usage: &own})
}

// takeCreated answers a client whose stream another broker made and this one is to serve.
func (s *Server) takeCreated(m *protocol.Message) {
	var q peerRequest
	if json.Unmarshal(m.Data, &q) != nil {
		return
	}
	c := &call{
		Request: jsapi.Request{Call: jsapi.StreamCreate, Stream: []byte(q.Name)}, reply: append([]byte(nil), m.Reply...),
		forwarded: true, deadline: time.Now().Add(min(q.Within, s.waits.answer)),
	}
	s.submitSlow(c, func(ctx context.Context) { s.answerCreated(ctx, c, q.Stream) })
}
