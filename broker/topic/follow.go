package topic

import (
	"github.com/carillon-mq/carillon/broker/copystate"
	"github.com/carillon-mq/carillon/broker/dedup"
	"github.com/carillon-mq/carillon/broker/forward"
	"github.com/carillon-mq/carillon/broker/keptspec"
	"github.com/carillon-mq/carillon/broker/log"
	"github.com/carillon-mq/carillon/broker/replica"
)

// follow starts to copy the leader's batches to the logs.
func (s *Service) follow(p *Shard, v *view) error {
	if p.followed != v.durability || p.repair != nil {
		s.unfollow(p)
	}
	if p.following != nil {
		p.following.Adopt(v.shard)
		return nil
	}
	if !p.ids.Read() {
		if err := s.readIDs(p, v, idsBytes); err != nil {
			return err
		}
	}
	if err := p.mayHoldIDs(v); err != nil {
		return err
	}
	p.followed = v.durability
	p.following = s.config.Exchange.Follow(replica.FollowConfig{
		ID: p.id(), Shard: v.shard, Durability: v.durability, Logs: p.logs.parts, Watch: (*watcher)(p), High: p.high,
		Failed: p.failed(s), InDoubt: p.own.grave.Load, Contradicted: p.contradicted(s),
	})
	p.copying.Store(p.following)
	return nil
}

// failed returns a callback that notes why a log can't take more batches.
func (p *Shard) failed(s *Service) func(error) {
	return func(err error) {
		p.fault.Store(&err)
		s.wake(p)
	}
}

// contradicted returns a callback that notes a leader that lacks committed records of this copy.
func (p *Shard) contradicted(s *Service) func(string) {
	return func(why string) {
		p.own.events.Add(copystate.Contradicted{Reason: why, Epoch: p.view.Load().epoch})
		s.wake(p)
	}
}

// watcher keeps origins and message ids of a follower's data log up to date.
type watcher Shard

func (w *watcher) Appended(b log.Batch) {
	w.origins.Note(b, forward.Mono())
	// The batch was checked, so there is no error.
	_, _ = w.ids.Note(w.topic.service.config.Codec, w.topic.service.config.Clock, b, b.Base(), int64(w.view.Load().window))
}

func (w *watcher) Truncated(end uint64) {
	w.origins.Truncate(end)
	w.ids.Truncate(end)
}

func (w *watcher) Reset() {
	w.origins.Reset(forward.Mono())
	w.ids.Forget(dedup.Always)
}

// mayHoldIDs notes beside the data log that the leader may send messages with ids.
func (p *Shard) mayHoldIDs(v *view) error {
	data := p.logs.parts[replica.Data]
	if !keptspec.NoIDs(data) {
		return nil
	}
	return data.SetSpec(keptspec.Encode(v.desired, false), v.epoch)
}

// unfollow ends following a shard, and a repair.
func (s *Service) unfollow(p *Shard) {
	if p.following == nil {
		return
	}
	if p.logs != nil && p.repair == nil { // for this broker as the next leader
		p.high = [...]uint64{replica.Data: p.following.High(replica.Data), replica.State: p.following.High(replica.State)}
	}
	p.copying.Store(nil)
	p.following.End()
	p.following, p.repair = nil, nil
}
