package jetstream

import (
	"github.com/carillon-mq/carillon/broker/jsapi"
	"github.com/carillon-mq/carillon/broker/protocol"
	"github.com/carillon-mq/carillon/broker/subscription"
)

// consumerFor returns the consumer for a pull or an ack. It returns nil if the message was
// forwarded to the leader, or if there is no such consumer; then a message with a reply subject is
// answered with no responders.
func (s *Server) consumerFor(m *protocol.Message, stream, consumer []byte, forwarded bool) *subscription.Subscription {
	if t := s.topics.Shard(string(stream)); t != nil {
		leader := t.Leader()
		if leader == s.config.Self {
			if sub := s.config.Subscriptions().Find(t.Key(), string(consumer)); sub != nil {
				return sub
			}
		} else if !forwarded && s.sendToLeader(leader, m) {
			return nil
		}
	}
	if len(m.Reply) > 0 {
		s.sendStatus(m.Reply, noResponders)
	}
	return nil
}

func (s *Server) takePull(m *protocol.Message, r *jsapi.Request, forwarded bool) {
	if len(m.Reply) == 0 {
		return
	}
	if of := s.shardedTopic(string(r.Stream)); of != nil {
		s.takeShardedPull(m, r, of)
		return
	}
	sub := s.consumerFor(m, r.Stream, r.Consumer, forwarded)
	if sub == nil {
		return
	}
	header, payload := protocol.SplitData(m.Data, m.Header)
	if !s.levelServed(header) {
		s.sendStatus(m.Reply, jsapi.LevelRequired)
		return
	}
	s.pull(sub, m.Reply, payload)
}

func (s *Server) pull(sub *subscription.Subscription, to, payload []byte) {
	s.pulls.Add(1)
	p, refusal := jsapi.ParsePull(payload)
	if refusal == nil {
		may := &sub.Spec().Consumer
		refusal = p.CheckLimits(&jsapi.ConsumerConfig{MaxRequestBatch: may.MaxBatch, MaxRequestExpires: may.MaxExpires, MaxRequestMaxBytes: may.MaxBytes})
	}
	if refusal != nil {
		s.send(protocol.Message{Subject: to, Header: len(refusal), Data: refusal})
		return
	}
	sub.Pull(subscription.Pull{
		To: to, Batch: p.Batch, MaxBytes: p.MaxBytes, Expires: p.Expires, NoWait: p.NoWait, Heartbeat: p.Heartbeat,
	})
}

// takeFlow takes a receiver's answer to a flow control request. An answer to a consumer that is
// gone is dropped.
func (s *Server) takeFlow(m *protocol.Message, forwarded bool) {
	f, ok := jsapi.ParseFlowSubject(m.Subject)
	if !ok {
		return
	}
	if sub := s.consumerFor(m, f.Stream, f.Consumer, forwarded); sub != nil {
		sub.FlowControlled(f.Token)
	}
}

func (s *Server) takeAck(m *protocol.Message, forwarded bool) {
	d, ok := jsapi.ParseAckSubject(m.Subject)
	if !ok {
		return
	}
	sub := s.consumerFor(m, d.Stream, d.Consumer, forwarded)
	if sub == nil {
		return
	}
	s.acks.Add(1)
	_, payload := protocol.SplitData(m.Data, m.Header)
	ack := jsapi.ParseAck(payload)
	var done func(error)
	if len(m.Reply) > 0 && ack.Kind != jsapi.AckNext {
		done = s.answerAck(m.Reply)
	}
	var kind subscription.AckKind
	switch ack.Kind {
	case jsapi.AckDone, jsapi.AckNext:
		kind = subscription.Done
	case jsapi.AckRetry:
		kind = subscription.Retry
		s.reportRefusal(sub, &d, &ack)
	case jsapi.AckProgress:
		kind = subscription.Progress
	case jsapi.AckTerm:
		kind = subscription.Term
		s.reportRefusal(sub, &d, &ack)
	default:
		if done != nil {
			done(nil) // it changes nothing, so it is done
		}
		return
	}
	sub.Ack(d.StreamSeq, d.ConsumerSeq, d.Delivered, kind, ack.Delay, done)
	if ack.Kind != jsapi.AckNext || len(m.Reply) == 0 {
		return
	}
	// The ack may be for any shard.
	if t := s.topics.Shard(string(d.Stream)); t != nil && isShardOfMany(t) && !sub.Ephemeral() {
		s.pullSharded(t.Topic(), sub.Name(), m.Reply, ack.Next)
		return
	}
	s.pull(sub, m.Reply, ack.Next)
}

// answerAck returns a function that answers an ack once it is durable. An ack that failed gets no
// answer, so that the client's request times out: JetStream has no negative answer to an ack.
func (s *Server) answerAck(reply []byte) func(error) {
	to := append([]byte(nil), reply...)
	return func(err error) {
		if err == nil {
			s.send(protocol.Message{Subject: to})
		}
	}
}
