package topic

import (
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/carillon-mq/carillon/broker/coordination"
	"github.com/carillon-mq/carillon/broker/elsewhere"
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

// Shard returns the shard with a name as ShardName has it, or nil.
func (s *Service) Shard(name string) *Shard {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if t := s.byName[name]; t != nil && len(t.shards) == 1 {
		return t.shards[0]
	}
	at := max(strings.LastIndex(name, "--"), 0)
	of, number := name[:at], strings.TrimPrefix(name[at:], "--")
	if t := s.byName[of]; t != nil && len(t.shards) > 1 {
		if n, err := strconv.Atoi(number); err == nil && n >= 0 && n < len(t.shards) && strconv.Itoa(n) == number {
			return t.shards[n]
		}
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
	out := make([]*ShardLeader, 0, len(s.open))
	for shard := range s.open {
		out = append(out, shard)
	}
	return out
}

// othersCanLead reports whether another member of the in-sync set is present and may lead.
func (s *Service) othersCanLead(v *view) bool {
	return v.shard != nil && elsewhere.CanLead(s.State(), v.shard, s.config.Self)
}

// Leads returns how many shards are led here that another member of their in-sync set could lead.
func (s *Service) Leads() (n int) {
	if s.State() == nil {
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
