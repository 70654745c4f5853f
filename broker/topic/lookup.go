package topic

import (
	"cmp"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/carillon-mq/carillon/broker/coordination"
)

// State returns the State of the last Follow, or nil.
func (s *Service) State() *coordination.State { return s.state.Load() }

// Changed returns a channel that is closed at the next Follow.
func (s *Service) Changed() <-chan struct{} {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.changed
}

// BrokerName returns the name of a present or former broker, or its id if it was never present.
func (s *Service) BrokerName(id string) string {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if name := s.brokers[id]; name != "" {
		return name
	}
	return id
}

// Topic returns the Topic with a name, or nil.
func (s *Service) Topic(name string) *Topic {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.byName[name]
}

// ByID returns the Topic with an id, or nil.
func (s *Service) ByID(id string) *Topic {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.byID[id]
}

// Shard returns the shard with a name as coordination.ShardName has it, or nil.
func (s *Service) Shard(name string) *Shard {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if t := s.byName[name]; t != nil && len(t.shards) == 1 {
		return t.shards[0]
	}
	of, n, ok := coordination.ParseShardName(name)
	if t := s.byName[of]; ok && t != nil && len(t.shards) > 1 && n < len(t.shards) {
		return t.shards[n]
	}
	return nil
}

// Shards returns all shards of the cluster's Topics.
func (s *Service) Shards() (all []*Shard) {
	for _, t := range s.Topics() {
		all = append(all, t.shards...)
	}
	return all
}

// ShardByKey returns the shard with a Key, or nil.
func (s *Service) ShardByKey(key string) *Shard {
	id, number, _ := strings.Cut(key, "/")
	n, _ := strconv.Atoi(number)
	if t := s.ByID(id); t != nil && n >= 0 && n < len(t.shards) && t.shards[n].Key() == key {
		return t.shards[n]
	}
	return nil
}

// Topics returns all Topics of the cluster, sorted by name.
func (s *Service) Topics() []*Topic {
	all := s.unsorted()
	slices.SortFunc(all, func(a, b *Topic) int { return strings.Compare(a.name, b.name) })
	return all
}

// unsorted returns all Topics of the cluster in any order.
func (s *Service) unsorted() []*Topic {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return slices.AppendSeq(make([]*Topic, 0, len(s.byID)), maps.Values(s.byID))
}

// Leaders returns the open leaders on this broker.
func (s *Service) Leaders() []*ShardLeader {
	s.openMu.Lock()
	defer s.openMu.Unlock()
	return slices.AppendSeq(make([]*ShardLeader, 0, len(s.open)), maps.Keys(s.open))
}

// compare orders shards by the ids of their Topics and their numbers.
func (p *Shard) compare(q *Shard) int {
	return cmp.Or(strings.Compare(p.topic.id, q.topic.id), cmp.Compare(p.number, q.number))
}

// inOrder returns the shards of a set in an order that does not depend on where they are in memory.
func inOrder(set map[*Shard]struct{}) []*Shard {
	return slices.SortedFunc(maps.Keys(set), (*Shard).compare)
}

// sortLeaders sorts leaders as their shards are sorted.
func sortLeaders(all []*ShardLeader) {
	slices.SortFunc(all, func(a, b *ShardLeader) int { return a.shard.compare(b.shard) })
}

// othersCanLead reports whether another member of the in-sync set is present and may lead.
func (s *Service) othersCanLead(v *view) bool {
	return s.State().OthersCanLead(v.shard, s.config.Self)
}

// Leads returns how many shards are led here that another member of their in-sync set could lead.
func (s *Service) Leads() (n int) {
	state := s.State()
	if state == nil {
		return 0
	}
	s.mu.RLock()
	defer s.mu.RUnlock()
	for _, t := range s.byID {
		for _, p := range t.shards {
			if v := p.view.Load(); v.lead && s.othersCanLead(v) {
				n++
			}
		}
	}
	return n
}
