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

// at returns the id of the shard for senders.
func (p *Shard) at() sender.ID {
	return sender.ID{TopicID: p.topic.id, Topic: p.topic.name, Name: p.name, Number: p.number}
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

// The methods of sender.View.

func (v *view) Gone() bool          { return v.gone }
func (v *view) Served() bool        { return v.unsupported == "" && v.shard != nil }
func (v *view) Leader() string      { return v.leader }
func (v *view) Leads() bool         { return v.lead }
func (v *view) Epoch() uint64       { return v.epoch }
func (v *view) Replicas() int       { return len(v.shard.Replicas) }
func (v *view) NoAck() bool         { return v.noAck }
func (v *view) Keeps(s []byte) bool { return v.keeps(s) }
