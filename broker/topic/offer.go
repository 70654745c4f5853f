package topic

import (
	"github.com/carillon-mq/carillon/broker/protocol"
	"github.com/carillon-mq/carillon/broker/publish"
	"github.com/carillon-mq/carillon/broker/work"
)

// taker is a Topic as the hub sees it: a publish.Taker.
type taker Topic

// nobody is the number of no connection.
const nobody = 0

// Take accepts messages of this broker itself. Links bring numbered messages to Link.Take instead.
func (t *taker) Take(messages []protocol.Message, memory protocol.Memory, _ bool) (behind bool) {
	var queues work.Behind
	t.TakeOf(nobody, messages, memory, &queues)
	return queues.Any()
}

// TakeOf accepts messages of a connection of this broker. It is a session.ClientTaker's.
func (t *taker) TakeOf(client uint64, messages []protocol.Message, memory protocol.Memory, behind *work.Behind) {
	if len(t.shards) > 1 {
		publish.Divide(messages, &(*Topic)(t).Desired().Spec, len(t.shards), func(n int, some []protocol.Message) {
			t.shards[n].publish(client, some, memory, behind)
		})
		return
	}
	if takes := t.shards[0].view.Load().batches; takes != nil {
		if messages = t.service.staging.Take(takes, messages); len(messages) == 0 {
			return
		}
	}
	t.shards[0].publish(client, messages, memory, behind)
}

// Publish publishes messages of this broker itself as those of a client. It drops messages on
// subjects that the Topic does not take.
func (t *Topic) Publish(messages []protocol.Message) { (*taker)(t).Take(messages, nil, false) }

// publish gives messages of one read of a connection to the shard's sender. It adds to behind what
// the connection has to wait for.
func (p *Shard) publish(client uint64, messages []protocol.Message, memory protocol.Memory, behind *work.Behind) {
	s := p.topic.service
	if f, v := p.sender(), p.view.Load(); client != nobody {
		f.PublishOf(v, client, messages, memory, behind)
	} else if f.Publish(v, messages, memory) {
		behind.Add(f)
	}
	shard := p.leading.Load()
	if shard != nil && shard.ahead.PushesBack(&s.aheadBound) || s.config.Disk.Behind() || s.acker.Behind() {
		behind.Add((*leaders)(p.topic))
	}
}

// Publish publishes messages of the shard's own. It reports whether the shard can take any now.
func (s *ShardLeader) Publish(messages []protocol.Message) bool {
	if !s.enough() || s.failed.Load() != nil {
		return false
	}
	s.shard.publish(nobody, messages, nil, &work.Behind{}) // few at a time
	return true
}

// Name is the Topic's, for traces.
func (t *taker) Name() string { return (*Topic)(t).Name() }

// Wait blocks while publishers to any shard of the Topic have to wait.
func (t *taker) Wait() {
	for _, p := range t.shards {
		if f := p.out.Load(); f != nil {
			f.Wait()
		}
	}
	(*leaders)(t).Wait()
}

// pushesBack reports whether publishers have to wait for a shard of the Topic that is led here.
func (t *Topic) pushesBack() bool {
	for _, p := range t.shards {
		if shard := p.leading.Load(); shard != nil && shard.ahead.PushesBack(&t.service.aheadBound) {
			return true
		}
	}
	return false
}

// leaders is a Topic as what publishers wait for beside senders.
type leaders Topic

// Wait blocks while the watermarks of leaders here, the disk, or the acker are behind.
func (t *leaders) Wait() {
	s := t.service
	for _, p := range t.shards {
		if shard := p.leading.Load(); shard != nil {
			_ = shard.data.WaitRoom(s.ctx) // publishes fail if the disk does
			break                          // all logs are on one disk
		}
	}
	s.acker.Wait(s.ctx, (*Topic)(t).pushesBack)
}
