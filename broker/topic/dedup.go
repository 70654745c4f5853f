package topic

import (
	"math"
	"sync/atomic"

	"github.com/carillon-mq/carillon/broker/clock"
	"github.com/carillon-mq/carillon/broker/dedup"
	"github.com/carillon-mq/carillon/broker/keptspec"
	"github.com/carillon-mq/carillon/broker/log"
	"github.com/carillon-mq/carillon/broker/replica"
)

// readIDs fills the deduplication window of a shard from the end of its open log. It reads no more
// than budget bytes.
func (s *Service) readIDs(p *Shard, v *view, budget int64) error {
	w, data := &p.ids, p.logs.parts[replica.Data]
	if keptspec.SaysNoIDs(data) {
		w.Forget(dedup.Always)
		return nil
	}
	forgotten, err := w.ReadLog(data, dedup.Reading{
		Codec: s.config.Codec, Clock: s.config.Clock, Window: v.window, Budget: budget,
		Damaged: func(damage *log.CorruptError) error {
			switch {
			case v.lead && s.othersCanLead(v):
				return damage
			case v.follow:
				s.queueDamage(p, damageFound+damage.Error())
			}
			s.log.Warn("message ids can't be read; a message with an unknown id is refused while another replica may have them", "topic", p.name, "error", damage)
			return nil
		},
	})
	if err == nil && forgotten > 0 {
		s.log.Warn("not all message ids of the deduplication window could be remembered", "topic", p.name, "forgotten", forgotten)
	}
	return err
}

// knowIDs prepares the window for a new leader. The log is read only if the window is incomplete.
func (s *ShardLeader) knowIDs(v *view) error {
	s.ids.Count(&s.service.counts.ids, &s.topic.ids)
	if v.window <= 0 {
		s.marked = !keptspec.SaysNoIDs(s.data)
		return nil
	}
	s.ids.Lock()
	s.ids.Follow(s.service.config.Clock.Off())
	s.ids.Unlock()
	since := s.service.config.Clock.Mono() - int64(v.window)
	if !s.ids.Complete(since) {
		if err := s.service.readIDs(s.shard, v, math.MaxInt64); err != nil {
			return err
		}
	}
	s.marked = s.ids.ExpireNow(since) > 0
	s.ids.Lock()
	defer s.ids.Unlock()
	s.marked = s.marked || len(s.ids.Unread()) > 0
	return nil
}

// readIDsAgain reads the message ids of led shards again if the time has stepped: by the time
// before, some may have been too old to be read. It belongs to the keeper.
func (s *Service) readIDsAgain(shards []*ShardLeader, v *clock.Verdict) {
	if v.Steps == s.steps || !v.Elapsed {
		return
	}
	s.steps = v.Steps
	for _, shard := range shards {
		if s.ctx.Err() != nil {
			return
		}
		if err := shard.readIDsAgain(); err != nil {
			s.log.Warn("message ids could not be read again after the time stepped; a message that comes again with one may be kept twice",
				"topic", shard.shard.name, "error", err)
		}
	}
}

// readIDsAgain replaces the ids of the window that were read from the log.
func (s *ShardLeader) readIDsAgain() error {
	v, open := s.shard.view.Load(), s.shard.opened.Load()
	if v == nil || open == nil || v.window <= 0 {
		return nil
	}
	read := &Shard{topic: s.topic, name: s.shard.name, logs: open}
	var counted atomic.Int64
	read.ids.Init(&counted)
	if err := s.service.readIDs(read, v, math.MaxInt64); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed || s.ids == nil {
		return nil
	}
	s.ids.Lock()
	defer s.ids.Unlock()
	s.ids.ReplaceLogged(&read.ids)
	return nil
}
