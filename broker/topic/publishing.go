package topic

import (
	"github.com/carillon-mq/carillon/broker/sender"
)

// newSenders starts the senders of this broker.
func (s *Service) newSenders() {
	s.senders.Init(sender.Config{
		Self: s.config.Self, Name: s.config.Name, Codec: s.config.Codec, Hub: s.config.Hub, Refused: &s.counts.refused,
		Closing: s.closing.Load, Shard: s.publishingTo,
	})
	s.running.Go(func() { s.senders.Run(s.ctx) })
}

// publishingTo returns a shard of a Topic by number, or nil.
func (s *Service) publishingTo(topicID []byte, number int) sender.Shard {
	s.mu.RLock()
	t := s.byID[string(topicID)]
	s.mu.RUnlock()
	if t == nil || number >= len(t.shards) {
		return nil
	}
	return (*publishing)(t.shards[number])
}

// Attach adds the link to a broker. From now on messages for leaders there use it, and unanswered
// ones are sent again.
func (s *Service) Attach(broker string, out sender.Carrier) *sender.Link {
	return s.senders.Attach(broker, out)
}

// sender returns the shard's sender. The first publish makes it.
func (p *Shard) sender() *sender.Sender {
	if f := p.out.Load(); f != nil {
		return f
	}
	f := p.topic.service.senders.New(p.at(), (*publishing)(p))
	if !p.out.CompareAndSwap(nil, f) {
		return p.out.Load()
	}
	return f
}

// View returns the shard as the cluster's State has it.
func (p *publishing) View() sender.View { return p.view.Load() }

// Sender returns the shard's sender. The first call makes it.
func (p *publishing) Sender() *sender.Sender { return (*Shard)(p).sender() }

// Used returns the shard's sender, or nil if it has none yet.
func (p *publishing) Used() *sender.Sender { return p.out.Load() }

// Why returns why nothing can be published, for people; empty: it can.
func (p *publishing) Why() string {
	if why := (*Shard)(p).whyNot(); why != nil {
		return why.Why
	}
	return ""
}

// Refusal returns why nothing can be published now.
func (p *publishing) Refusal() error { return (*Shard)(p).refusal() }

// Arrive judges messages as the shard's leader.
func (p *publishing) Arrive(l *sender.Link, a *sender.Arrival) { (*Shard)(p).arrive(l, a) }
