package coordination

import (
	"context"
	"iter"
	"maps"
	"slices"
	"strings"
)

// State is everything that a broker follows, as it is at one revision. It never changes, and
// may be read by anybody for as long as they like. What it hands out belongs to all its readers.
type State struct {
	Revision   int64
	Controller Controller // Term 0: there is none
	Brokers    []Broker   // sorted by id

	topics     table[*Topic]      // by name
	belongings table[*belongings] // by id of the Topic
	shards     int
	unreadable map[string]int64
	drains     map[string]DrainMode // by what stands behind drains/
	reports    map[string]report    // by id of the broker
}

// belongings is what hangs on a Topic's id. The topic may be nil: a key of the others can outlive it.
type belongings struct {
	topic         *Topic
	shards        []*Shard        // sorted by number
	subscriptions []*Subscription // sorted by name
}

// Topic is the one of that name; nil: there is none.
func (s *State) Topic(name string) *Topic {
	t, _ := s.topics.get(name)
	return t
}

// TopicByID is the one of that id; nil: there is none.
func (s *State) TopicByID(id string) *Topic {
	if b, ok := s.belongings.get(id); ok {
		return b.topic
	}
	return nil
}

// Topics walks over all, in no order; also those that are being deleted.
func (s *State) Topics() iter.Seq[*Topic] {
	return func(yield func(*Topic) bool) {
		for _, t := range s.topics.all() {
			if !yield(t) {
				return
			}
		}
	}
}

// TopicCount is how many there are.
func (s *State) TopicCount() int { return s.topics.count }

// Shards are those of one Topic, sorted by number.
func (s *State) Shards(topicID string) []*Shard {
	if b, ok := s.belongings.get(topicID); ok {
		return b.shards
	}
	return nil
}

// Shard is one shard; nil: it is not placed yet.
func (s *State) Shard(topicID string, number int) *Shard {
	shards := s.Shards(topicID)
	if i, ok := findShard(shards, number); ok {
		return shards[i]
	}
	return nil
}

func findShard(shards []*Shard, number int) (int, bool) {
	return slices.BinarySearchFunc(shards, number, func(s *Shard, n int) int { return s.Number - n })
}

// AllShards walks over those of all Topics, in no order.
func (s *State) AllShards() iter.Seq[*Shard] {
	return func(yield func(*Shard) bool) {
		for _, b := range s.belongings.all() {
			for _, shard := range b.shards {
				if !yield(shard) {
					return
				}
			}
		}
	}
}

// ShardCount is how many there are.
func (s *State) ShardCount() int { return s.shards }

// Subscriptions are those of one Topic, sorted by name.
func (s *State) Subscriptions(topicID string) []*Subscription {
	if b, ok := s.belongings.get(topicID); ok {
		return b.subscriptions
	}
	return nil
}

// Subscription is the one of that name; nil: there is none.
func (s *State) Subscription(topicID, name string) *Subscription {
	all := s.Subscriptions(topicID)
	if i, ok := findSubscription(all, name); ok {
		return all[i]
	}
	return nil
}

func findSubscription(all []*Subscription, name string) (int, bool) {
	return slices.BinarySearchFunc(all, name, func(s *Subscription, name string) int { return strings.Compare(s.Name, name) })
}

// Broker is the one of that id, if it is a member.
func (s *State) Broker(id string) (Broker, bool) {
	i, ok := slices.BinarySearchFunc(s.Brokers, id, func(b Broker, id string) int { return strings.Compare(b.ID, id) })
	if !ok {
		return Broker{}, false
	}
	return s.Brokers[i], true
}

// Unreadable are the keys whose values this program does not understand. Of each the last
// value that it did is still in the State, if there was one: that something is unreadable
// must not look as if it were deleted.
func (s *State) Unreadable() []string { return slices.Sorted(maps.Keys(s.unreadable)) }

// Change is one thing that came (Before is nil), went (After is nil), or became another.
type Change[T any] struct{ Before, After *T }

// Changes are what is different from the State before, in the order of their revisions. A
// Topic or Subscription that was deleted and made again has gone and come.
type Changes struct {
	Topics        []Change[Topic]
	Shards        []Change[Shard]
	Subscriptions []Change[Subscription]
	Brokers       bool
	Controller    bool
	Drains        bool
	Reports       bool
	Unreadable    bool
}

func (c *Changes) any() bool {
	return len(c.Topics) > 0 || len(c.Shards) > 0 || len(c.Subscriptions) > 0 || c.Brokers || c.Controller || c.Drains || c.Reports || c.Unreadable
}

// WatchState calls changed with the State and what is different in it, at first and after
// each change, until ctx ends; then it returns nil. The calls come one after the other on the
// caller's goroutine. What etcd changed in one transaction comes in one call.
//
// It is one reading and one watch. While etcd can't be reached the last State stands.
func (c *Client) WatchState(ctx context.Context, changed func(*State, Changes)) error {
	f := newFollower(c, changed)
	m := mirror{c: c, prefix: c.prefix, put: f.put, remove: f.remove, keys: f.keys, settled: f.settled}
	m.run(ctx)
	return nil
}
