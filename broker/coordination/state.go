package coordination

import (
	"context"
	"iter"
	"maps"
	"slices"
	"strings"
	"sync"
)

// State is everything that a broker follows, at one revision. It is immutable and safe for
// concurrent use. Its methods return shared values: never change them.
type State struct {
	Revision   int64
	Generation int64      // of etcd: the time between two restores from a backup
	Raised     int64      // revision at which this generation began; 0: none did
	Controller Controller // Term 0: none
	Brokers    []Broker   // registered in this generation, sorted by id
	Former     []Broker   // still registered in an earlier generation, sorted by id
	Settling   bool       // brokers may be alive and not registered at all (G5)

	topics     table[*Topic]     // by name
	byTopic    table[*topicKeys] // by id of the Topic
	shards     int
	unreadable map[string]int64
	drains     map[string]DrainMode // by the key behind drains/
	reports    map[string][]report  // by id of the broker: the parts, in their order
	users      *UserSet
	usersBegun bool
	views      views
}

// topicKeys are the keys of a Topic's id. topic may be nil, because a shard or Subscription may
// outlive the Topic's key for a moment.
type topicKeys struct {
	topic         *Topic
	shards        []*Shard        // sorted by number
	subscriptions []*Subscription // sorted by name
}

// Users returns the last whole set of users; nil: there is none.
func (s *State) Users() *UserSet { return s.users }

// UsersBegun reports whether there is no whole set of users that this process has seen, but the
// beginning of one, over a set that was whole or over none.
func (s *State) UsersBegun() bool { return s.usersBegun }

// Topic returns the Topic of that name, or nil.
func (s *State) Topic(name string) *Topic {
	t, _ := s.topics.get(name)
	return t
}

// TopicByID returns the Topic of that id, or nil.
func (s *State) TopicByID(id string) *Topic {
	if b, ok := s.byTopic.get(id); ok {
		return b.topic
	}
	return nil
}

// Topics iterates over all Topics in no particular order, including those being deleted.
func (s *State) Topics() iter.Seq[*Topic] {
	return func(yield func(*Topic) bool) {
		for _, t := range s.topics.all() {
			if !yield(t) {
				return
			}
		}
	}
}

// TopicCount returns the number of Topics.
func (s *State) TopicCount() int { return s.topics.count }

// Shards returns the shards of one Topic, sorted by number.
func (s *State) Shards(topicID string) []*Shard {
	if b, ok := s.byTopic.get(topicID); ok {
		return b.shards
	}
	return nil
}

// Shard returns one shard, or nil if it is not placed yet.
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

// AllShards iterates over the shards of all Topics, in no particular order.
func (s *State) AllShards() iter.Seq[*Shard] {
	return func(yield func(*Shard) bool) {
		for _, b := range s.byTopic.all() {
			for _, shard := range b.shards {
				if !yield(shard) {
					return
				}
			}
		}
	}
}

// ShardCount returns the number of shards.
func (s *State) ShardCount() int { return s.shards }

// Subscriptions returns those of one Topic, sorted by name.
func (s *State) Subscriptions(topicID string) []*Subscription {
	if b, ok := s.byTopic.get(topicID); ok {
		return b.subscriptions
	}
	return nil
}

// Subscription returns one of a Topic's Subscriptions, or nil.
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

// View returns the View of that name, or nil.
func (s *State) View(name string) *View { return s.views.byName[name] }

// Views iterates over all Views, in no particular order.
func (s *State) Views() iter.Seq[*View] { return maps.Values(s.views.byName) }

// ViewsOf returns the Views that read a Topic, by its name, sorted by theirs.
func (s *State) ViewsOf(topic string) []*View { return s.views.ofTopic[topic] }

// views are those of a State. There are few, so a change makes all of this anew.
type views struct {
	byName  map[string]*View
	ofTopic map[string][]*View // sorted by name
}

func newViews(all iter.Seq[*View]) views {
	v := views{byName: map[string]*View{}, ofTopic: map[string][]*View{}}
	for one := range all {
		v.byName[one.Name] = one
		v.ofTopic[one.Spec.Topic] = append(v.ofTopic[one.Spec.Topic], one)
	}
	for _, of := range v.ofTopic {
		slices.SortFunc(of, func(a, b *View) int { return strings.Compare(a.Name, b.Name) })
	}
	return v
}

// Broker returns the member with that id.
func (s *State) Broker(id string) (Broker, bool) {
	i, ok := slices.BinarySearchFunc(s.Brokers, id, func(b Broker, id string) int { return strings.Compare(b.ID, id) })
	if !ok {
		return Broker{}, false
	}
	return s.Brokers[i], true
}

// AllHave reports whether all registered brokers announce a feature.
func (s *State) AllHave(feature Feature) bool {
	return !slices.ContainsFunc(s.Brokers, func(b Broker) bool { return !b.Features.Has(feature) })
}

// Unreadable returns the keys whose values this program cannot decode. The State keeps the last
// value that it could decode, since an unreadable value must not look like a deletion.
func (s *State) Unreadable() []string { return slices.Sorted(maps.Keys(s.unreadable)) }

// Elsewhere reports whether a shard was placed in this generation without a replica on a broker.
func (s *State) Elsewhere(brokerID, topicID string, number int) bool {
	shard := s.Shard(topicID, number)
	return shard != nil && shard.Generation == s.Generation && !slices.Contains(shard.Replicas, brokerID)
}

// Keeps reports whether a Topic exists and a shard of it is not Elsewhere.
func (s *State) Keeps(brokerID, topicID string, number int) bool {
	return s.TopicByID(topicID) != nil && !s.Elsewhere(brokerID, topicID, number)
}

// UnreadableTopic returns the key of a Topic that is Unreadable, or "".
func (s *State) UnreadableTopic() string {
	for _, key := range s.Unreadable() {
		if strings.HasPrefix(key, "topics/") || strings.Contains(key, "/topics/") {
			return key
		}
	}
	return ""
}

// Change is an addition (Before is nil), a deletion (After is nil), or a change.
type Change[T any] struct{ Before, After *T }

// Changes are the differences to the previous State, in the order of their revisions. A Topic,
// Subscription or View that was deleted and recreated is a deletion and an addition.
type Changes struct {
	Topics        []Change[Topic]
	Shards        []Change[Shard]
	Subscriptions []Change[Subscription]
	Views         []Change[View]
	Brokers       bool
	Controller    bool
	Drains        bool
	Reports       bool
	Users         bool
	Unreadable    bool
	// Restored reports that etcd was restored from a backup since the State before: what is missing
	// now was not deleted.
	Restored bool
}

func (c *Changes) any() bool {
	return len(c.Topics) > 0 || len(c.Shards) > 0 || len(c.Subscriptions) > 0 || len(c.Views) > 0 || c.Brokers || c.Controller || c.Drains || c.Reports || c.Users || c.Unreadable || c.Restored
}

// stateFrom returns the first key that a State is made of. Those before it are attributes, which
// are so many, and change so often, that they have a watch and a connection of their own.
func (c *Client) stateFrom() string { return c.prefix + "b" }

// WatchState calls changed with the State and its changes, at first and after each change, until
// ctx ends; then it returns nil. Calls are sequential, on the caller's goroutine. The changes of
// one etcd transaction arrive in one call.
//
// It uses one read and one watch. While etcd is unreachable the last State stands.
func (c *Client) WatchState(ctx context.Context, changed func(*State, Changes)) error {
	f := newFollower(c, changed)
	m := mirror{c: c, prefix: c.prefix, first: c.stateFrom(), put: f.put, keys: f.keys, history: c.history,
		remove:   func(key []byte, _ int64) { f.remove(key) },
		complete: func(revision int64) error { f.settled(revision); return nil },
		restored: func() { f.distrust, f.changes.Restored = true, true }, generation: func() int64 { return f.generation }}
	saving, stop := context.WithCancel(context.WithoutCancel(ctx))
	var saver sync.WaitGroup
	saver.Go(func() { c.history.keep(saving) })
	m.run(ctx)
	stop()
	saver.Wait()
	return nil
}
