package jetstream

import (
	"bytes"
	"time"

	"github.com/carillon-mq/carillon/broker/jsapi"
	"github.com/carillon-mq/carillon/broker/protocol"
	"github.com/carillon-mq/carillon/broker/subscription"
)

// consumerFor returns the consumer for a pull or an ack, or nil if it is not served here. wait
// reports whether it may be served soon; otherwise the message was forwarded to the leader, or a
// reply subject was answered with no responders.
func (s *Server) consumerFor(m *protocol.Message, stream, consumer []byte, by puller, mayWait bool) (sub *subscription.Subscription, wait bool) {
	if t := s.topics.Shard(string(stream)); t != nil {
		leader := t.Leader()
		if leader == s.config.Self {
			if sub := s.config.Subscriptions().Find(t.Key(), string(consumer)); sub != nil {
				return sub, false
			}
		} else if !by.forwarded && s.passPull(leader, m, by) {
			return nil, false
		}
		if mayWait && s.consumerMaySoon(t, string(consumer)) {
			return nil, true
		}
	}
	if len(m.Reply) > 0 {
		s.sendStatus(m.Reply, noResponders)
	}
	return nil, false
}

// takeForConsumer takes a pull or an ack. If the consumer may be served soon, the message waits.
func (s *Server) takeForConsumer(m *protocol.Message, by puller) {
	if !s.takeOfConsumer(m, by, time.Now()) && !s.waiting.add(m, by) {
		s.refuseWaiting(m)
	}
}

// takeOfConsumer takes a pull or an ack that came at a time. It reports false if the message is to
// be taken again soon.
func (s *Server) takeOfConsumer(m *protocol.Message, by puller, came time.Time) (taken bool) {
	waited := time.Since(came)
	mayWait := waited < s.timeouts.open
	if bytes.HasPrefix(m.Subject, []byte(jsapi.AckPrefix)) {
		return s.takeAck(m, by, mayWait)
	}
	r, _ := jsapi.ParseSubject(m.Subject)
	if by.forwarded && waited >= s.timeouts.stray && s.ledElsewhere(r.Stream) {
		s.sendStatus(m.Reply, jsapi.LeadershipChange)
		return true
	}
	return s.takePull(m, &r, by, mayWait)
}

func (s *Server) takePull(m *protocol.Message, r *jsapi.Request, by puller, mayWait bool) (taken bool) {
	if len(m.Reply) == 0 {
		return true
	}
	if of := s.shardedTopic(string(r.Stream)); of != nil {
		s.takeShardedPull(m, r, of, by)
		return true
	}
	if t := s.topics.Shard(string(r.Stream)); t != nil && !by.forwarded {
		leader := t.Leader()
		of := s.pulled.life(leader)
		if s.passPull(leader, m, by) {
			s.pulled.note(of, m.Reply)
			return true
		}
	}
	sub, wait := s.consumerFor(m, r.Stream, r.Consumer, by, mayWait)
	if sub == nil {
		return !wait
	}
	s.pullFrom(sub, m, by)
	return true
}

// pullFrom serves a pull from a consumer that is served here.
func (s *Server) pullFrom(sub *subscription.Subscription, m *protocol.Message, by puller) {
	header, payload := protocol.SplitData(m.Data, m.Header)
	if !s.levelServed(header) {
		s.sendStatus(m.Reply, jsapi.LevelRequired)
		return
	}
	s.pull(sub, m.Reply, payload, s.quota(by, header))
}

func (s *Server) pull(sub *subscription.Subscription, to, payload []byte, quota *subscription.PullQuota) {
	s.pulls.Add(1)
	p, refusal := jsapi.ParsePull(payload)
	if refusal == nil {
		may := &sub.Spec().Consumer
		refusal = p.CheckLimits(&jsapi.ConsumerConfig{MaxRequestBatch: may.MaxBatch, MaxRequestExpires: may.MaxExpires, MaxRequestMaxBytes: may.MaxBytes})
		if refusal == nil {
			refusal = p.CheckPriority(may.PriorityPolicy, may.PriorityGroups)
		}
	}
	if refusal != nil {
		s.send(protocol.Message{Subject: to, Header: len(refusal), Data: refusal})
		return
	}
	sub.PullWithin(quota, subscription.Pull{
		To: to, Batch: p.Batch, MaxBytes: p.MaxBytes, Expires: p.Expires, NoWait: p.NoWait, Heartbeat: p.Heartbeat,
		MinPending: p.MinPending, MinAckPending: p.MinAckPending, Priority: p.Priority, Group: p.Group, Pin: p.ID,
	})
}

// takeFlow takes a receiver's answer to a flow control request. An answer to a consumer that is
// gone is dropped.
func (s *Server) takeFlow(m *protocol.Message, forwarded bool) {
	f, ok := jsapi.ParseFlowSubject(m.Subject)
	if !ok {
		return
	}
	if of := s.shardedTopic(string(f.Stream)); of != nil {
		s.takeShardedFlow(m, &f, of, forwarded)
		return
	}
	if sub, _ := s.consumerFor(m, f.Stream, f.Consumer, puller{forwarded: forwarded}, false); sub != nil {
		sub.FlowControlled(f.Token)
	}
}

func (s *Server) takeAck(m *protocol.Message, by puller, mayWait bool) (taken bool) {
	d, ok := jsapi.ParseAckSubject(m.Subject)
	if !ok {
		return true
	}
	sub, wait := s.consumerFor(m, d.Stream, d.Consumer, by, mayWait)
	if sub == nil {
		return !wait
	}
	s.ackTo(sub, m, &d, by)
	return true
}

// ackTo serves an ack to a consumer that is served here.
func (s *Server) ackTo(sub *subscription.Subscription, m *protocol.Message, d *jsapi.Delivery, by puller) {
	if !sub.ExpectsAcks() { // nats-server does not subscribe to them
		if len(m.Reply) > 0 {
			s.sendStatus(m.Reply, noResponders)
		}
		return
	}
	s.acks.Add(1)
	header, payload := protocol.SplitData(m.Data, m.Header)
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
		s.reportRefusal(sub, d, &ack)
	case jsapi.AckProgress:
		kind = subscription.Progress
	case jsapi.AckTerm:
		kind = subscription.Term
		s.reportRefusal(sub, d, &ack)
	default:
		if done != nil {
			done(nil) // it changes nothing, so it is done
		}
		return
	}
	if kind == subscription.Done {
		s.reportAck(sub, d)
	}
	if len(payload) > 0 && (kind == subscription.Term || kind == subscription.Retry) {
		sub.ExplainAck(d.StreamSeq, payload)
	}
	sub.Ack(d.StreamSeq, d.ConsumerSeq, d.Delivered, kind, ack.Delay, done)
	if ack.Kind != jsapi.AckNext || len(m.Reply) == 0 {
		return
	}
	// The ack may be for any shard.
	if t := s.topics.Shard(string(d.Stream)); t != nil && isShardOfMany(t) && !sub.Ephemeral() {
		s.pullSharded(t.Topic(), sub.Name(), m.Reply, ack.Next, s.quota(by, header))
		return
	}
	s.pull(sub, m.Reply, ack.Next, s.quota(by, header))
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
