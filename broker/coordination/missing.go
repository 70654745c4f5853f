package coordination

import (
	"slices"
	"strings"
)

// Missing returns which replicas of a shard are absent or not in sync, for people. name returns the
// name of a broker.
func (s *State) Missing(shard *Shard, name func(id string) string) string {
	var away, late []string
	for _, id := range shard.Replicas {
		b, ok := s.Broker(id)
		switch {
		case !ok:
			away = append(away, name(id))
		case !slices.Contains(shard.InSync, Replica{Broker: id, Incarnation: b.Incarnation}):
			late = append(late, name(id))
		}
	}
	switch {
	case len(away) > 0:
		return "away: " + strings.Join(away, ", ")
	case len(late) > 0:
		return "catching up: " + strings.Join(late, ", ")
	}
	return "try again"
}

// OneOf names one of several brokers, for people.
func OneOf(names []string) string {
	if len(names) == 1 {
		return "broker " + names[0]
	}
	return "one of the brokers " + strings.Join(names, ", ")
}

// OthersCanLead reports whether a member of a shard's in-sync set other than self is present and
// may lead. The shard may be nil: it is not placed yet.
func (s *State) OthersCanLead(shard *Shard, self string) bool {
	if shard == nil {
		return false
	}
	return slices.ContainsFunc(shard.InSync, func(m Replica) bool {
		b, ok := s.Broker(m.Broker)
		return ok && m.Broker != self && shard.Vouched(b) && s.Drain(m.Broker) == "" && !s.Suspect(m.Broker, shard.Topic, shard.Number)
	})
}
