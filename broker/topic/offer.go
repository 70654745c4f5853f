package topic

import (
	"github.com/carillon-mq/carillon/broker/protocol"
	"github.com/carillon-mq/carillon/broker/publish"
)

// taker is a Topic as the hub sees it: a publish.Taker.
type taker Topic

// Take accepts messages of this broker's clients. Links bring numbered messages to Link.Take
// instead.
func (t *taker) Take(messages []protocol.Message, memory protocol.Memory, _ bool) (behind bool) {
	if len(t.shards) == 1 {
		if takes := t.shards[0].view.Load().batches; takes != nil {
			if messages = t.service.staging.Take(takes, messages); len(messages) == 0 {
				return false
			}
		}
		return t.shards[0].publish(messages, memory)
	}
	publish.Divide(messages, &(*Topic)(t).Desired().Spec, len(t.shards), func(n int, some []protocol.Message) {
		behind = t.shards[n].publish(some, memory) || behind
	})
	return behind
}

// Publish publishes messages of this broker itself as those of a client. It drops messages on
// subjects that the Topic does not take.
func (t *Topic) Publish(messages []protocol.Message) { (*taker)(t).Take(messages, nil, false) }

// publish gives messages of one read of a connection to the shard's sender.
func (p *Shard) publish(messages []protocol.Message, memory protocol.Memory) (behind bool) {
	s := p.topic.service
	behind = p.sender().Publish(p.view.Load(), messages, memory)
	if shard := p.leading.Load(); shard != nil {
		behind = behind || shard.ahead.PushesBack(&s.aheadBound)
	}
	return behind || s.config.Disk.Behind() || s.acker.Behind()
}

// Publish publishes messages of the shard's own. It reports whether the shard can take any now.
func (s *ShardLeader) Publish(messages []protocol.Message) bool {
	if !s.enough() || s.failed.Load() != nil {
		return false
	}
	s.shard.publish(messages, nil)
	return true
}

// Name is the Topic's, for traces.
func (t *taker) Name() string { return (*Topic)(t).Name() }

// Wait blocks while publishers to the Topic have to wait.
func (t *taker) Wait() { t.service.waitRoom((*Topic)(t)) }

// pushesBack reports whether publishers have to wait for a shard of the Topic that is led here.
func (t *Topic) pushesBack() bool {
	for _, p := range t.shards {
		if shard := p.leading.Load(); shard != nil && shard.ahead.PushesBack(&t.service.aheadBound) {
			return true
		}
	}
	return false
}

// waitRoom blocks while publishers to t have to wait: for outboxes, the disk, or the acker.
func (s *Service) waitRoom(t *Topic) {
	s.senders.Wait()
	for _, p := range t.shards {
		if f := p.out.Load(); f != nil {
			f.Wait()
		}
	}
	for _, p := range t.shards {
		if shard := p.leading.Load(); shard != nil {
			_ = shard.data.WaitRoom(s.ctx) // publishes fail if the disk does
			break                          // all logs are on one disk
		}
	}
	s.acker.Wait(s.ctx, t.pushesBack)
}
