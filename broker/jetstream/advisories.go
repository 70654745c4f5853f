package jetstream

import (
	"github.com/carillon-mq/carillon/broker/advisory"
	"github.com/carillon-mq/carillon/broker/jsapi"
	"github.com/carillon-mq/carillon/broker/subscription"
	"github.com/carillon-mq/carillon/broker/topic"
)

// reportRefusal publishes that a client did not accept a message, unless the message is not pending
// or was delivered again since.
func (s *Server) reportRefusal(sub *subscription.Subscription, d *jsapi.Delivery, ack *jsapi.Ack) {
	if s.config.Advisories == nil {
		return
	}
	deliveries := sub.Deliveries(d.StreamSeq)
	if deliveries == 0 || d.Delivered > 0 && d.Delivered < deliveries {
		return
	}
	m := advisory.Message{
		Stream: string(d.Stream), Consumer: string(d.Consumer), Sequence: d.ConsumerSeq, Offset: d.StreamSeq, Deliveries: deliveries,
	}
	if ack.Kind == jsapi.AckTerm {
		s.config.Advisories.Terminated(m, string(ack.Reason))
	} else {
		s.config.Advisories.Refused(m)
	}
}

// reportAck publishes an ack if the consumer samples this one.
func (s *Server) reportAck(sub *subscription.Subscription, d *jsapi.Delivery) {
	if is, ok := sub.Sample(d.StreamSeq); ok {
		s.config.Advisories.Acked(advisory.Message{
			Stream: string(d.Stream), Consumer: string(d.Consumer), Sequence: is.Sequence, Offset: d.StreamSeq, Deliveries: is.Deliveries,
		}, is.After)
	}
}

// Exhausted publishes that a message was given up. It implements subscription.ExhaustedSink.
func (o *deliverySink) Exhausted(offset, deliveries uint64) {
	o.server.config.Advisories.Exhausted(advisory.Message{
		Stream: string(o.stream), Consumer: string(o.consumer), Offset: offset, Deliveries: deliveries,
	})
}

// Pinned publishes that a client was pinned. It implements subscription.PinSink.
func (o *deliverySink) Pinned(group, id string) {
	o.server.config.Advisories.Pinned(string(o.stream), string(o.consumer), group, id)
}

// Unpinned publishes that the pinned client was silent. It implements subscription.PinSink.
func (o *deliverySink) Unpinned(group string) {
	o.server.config.Advisories.Unpinned(string(o.stream), string(o.consumer), group, advisory.ByTimeout)
}

// Leading begins or ends what only the leader of a shard does. It publishes that this broker was
// elected if the shard has other replicas. It never blocks.
func (s *Server) Leading(shard *topic.ShardLeader, open bool) {
	of := shard.Shard()
	s.relays.leading(of, open)
	if !open {
		return
	}
	id, number := of.ID(), of.Number()
	if is := s.state().Shard(id, number); is == nil || len(is.Replicas) < 2 {
		return
	}
	s.config.Advisories.Elected(of.Name(), func() *jsapi.ClusterInfo {
		if is := s.cluster(id, number); is != nil {
			return is
		}
		return &jsapi.ClusterInfo{Leader: s.config.Name}
	})
}
