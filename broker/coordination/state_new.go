package coordination

import (
	"maps"
	"slices"
	"strings"
)

// NewState returns a State with the given content, for tests of its readers. The arguments must not
// be changed afterwards.
func NewState(revision int64, brokers []Broker, topics []*Topic, shards []*Shard, subscriptions []*Subscription) *State {
	s := &State{Revision: revision, Brokers: slices.Clone(brokers), shards: len(shards)}
	slices.SortFunc(s.Brokers, func(a, b Broker) int { return strings.Compare(a.ID, b.ID) })
	of := func(id string) *topicKeys {
		b, ok := s.byTopic.get(id)
		if !ok {
			b = &topicKeys{}
			s.byTopic.set(id, b)
		}
		return b
	}
	for _, t := range topics {
		s.topics.set(t.Name, t)
		of(t.ID).topic = t
	}
	for _, shard := range shards {
		b := of(shard.Topic)
		i, _ := findShard(b.shards, shard.Number)
		b.shards = slices.Insert(b.shards, i, shard)
	}
	for _, sub := range subscriptions {
		b := of(sub.Topic)
		i, _ := findSubscription(b.subscriptions, sub.Name)
		b.subscriptions = slices.Insert(b.subscriptions, i, sub)
	}
	return s
}

// With returns a copy of the State with these drains and reports.
func (s *State) With(drains map[string]DrainMode, reports map[string][]Suspect) *State {
	other := *s
	other.drains, other.reports = maps.Clone(drains), make(map[string][]report, len(reports))
	for id, suspects := range reports {
		of := map[string][]Suspect{}
		for _, suspect := range suspects {
			of[suspect.Topic] = append(of[suspect.Topic], suspect)
		}
		other.reports[id] = []report{{suspects: of, generation: s.Generation}}
	}
	return &other
}

// WithUsersBegun returns a copy of the State with the beginning of a set of users.
func (s *State) WithUsersBegun() *State {
	other := *s
	other.users, other.usersBegun = nil, true
	return &other
}

// WithUsers returns a copy of the State with these users.
func (s *State) WithUsers(users *UserSet) *State {
	other := *s
	other.users, other.usersBegun = users, false
	return &other
}

// WithViews returns a copy of the State with these Views.
func (s *State) WithViews(all ...*View) *State {
	other := *s
	other.views = newViews(slices.Values(all))
	return &other
}
