package coordination

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"go.etcd.io/etcd/api/v3/mvccpb"
)

// Shard is the placement of one shard of a Topic.
type Shard struct {
	Topic    string // id of the Topic
	Number   int
	Epoch    int64     // each has one leader
	First    int64     // the epoch in which the shard was placed, with empty logs; 0: 1
	Leader   string    // id of a broker in the in-sync set; empty: none
	Replicas []string  // ids of all replicas, including those being added or removed
	InSync   []Replica // the replicas that have everything that was acknowledged
	Adding   []string  // replicas that have to catch up first
	Removing []string  // replicas to be removed when the others are in sync
	Doubt    Doubt     // of the last election that may have lost acknowledged records
	Returned []Return  // members that returned, and vouched for their copies themselves
	// Generation is that of etcd in which the controller wrote the shard. In a later one it has no
	// leader, and its in-sync set is not believed.
	Generation int64

	Revision int64 // of its key; what a compare-and-swap compares; 0: not written yet
}

// Doubt records an election whose leader may lack acknowledged records.
type Doubt struct {
	Epoch  int64  `json:"epoch"`  // of that election; 0: there was none
	Leader string `json:"leader"` // id of its broker
	Reason string `json:"reason"` // the controller's
}

// Replica is one broker in one of its lives.
//
// An entry of an in-sync set whose incarnation is the broker's current registration is vouched for:
// that life holds everything that was acknowledged. Any other entry says only that the broker was a
// member of the last set. Incarnation 0 is a member that withdrew (Client.Withdraw).
type Replica struct {
	Broker      string `json:"broker"`
	Incarnation int64  `json:"incarnation"`
}

// Return is what a member of the in-sync set stated when it vouched for its copy after a return. An
// entry of the set without a Return was written by a leader. A broker cannot know that its volume
// was rolled back, so elections prefer members that did not return, and of those that did, the copy
// that goes furthest.
type Return struct {
	Replica
	Reach
}

// Reach is how far a copy goes.
type Reach struct {
	Epoch int64  `json:"epoch,omitempty"` // of its last record
	End   uint64 `json:"end,omitempty"`   // the offset behind its last record
}

// Compare orders copies by how far they go: the later epoch, then the greater end.
func (r Reach) Compare(other Reach) int {
	return cmp.Or(cmp.Compare(r.Epoch, other.Epoch), cmp.Compare(r.End, other.End))
}

type shardValue struct {
	V        int       `json:"v"`
	Epoch    int64     `json:"epoch"`
	First    int64     `json:"first,omitempty"`
	Leader   string    `json:"leader,omitempty"`
	Replicas []string  `json:"replicas"`
	InSync   []Replica `json:"inSync"`
	Adding   []string  `json:"adding,omitempty"`
	Removing []string  `json:"removing,omitempty"`
	Doubt    Doubt     `json:"doubt,omitzero"`
	Returned []Return  `json:"returned,omitempty"`
	// Generation is of version 2.
	Generation int64 `json:"generation,omitempty"`
}

const (
	shardValueVersion = 1
	// generationShardVersion is of shards with a generation, so that programs that know none refuse
	// them.
	generationShardVersion = 2
)

func (c *Client) allShards() string                   { return c.prefix + "shards/" }
func (c *Client) shardsPrefix(topic string) string    { return c.allShards() + topic + "/" }
func (c *Client) shardKey(topic string, n int) string { return c.shardsPrefix(topic) + strconv.Itoa(n) }

func (s *Shard) String() string { return fmt.Sprintf("shard %d of topic id %s", s.Number, s.Topic) }

func (s *Shard) valid() string {
	in := func(ids []string) bool {
		return !slices.ContainsFunc(ids, func(id string) bool { return !slices.Contains(s.Replicas, id) })
	}
	switch {
	case !validID(s.Topic) || s.Number < 0 || s.Number >= maxShards:
		return "no such shard can be"
	case s.Generation < 0 || s.Generation > maxGeneration:
		return fmt.Sprintf("generation %d", s.Generation)
	case s.Epoch < 1:
		return fmt.Sprintf("epoch %d (begin with 1)", s.Epoch)
	case s.First < 0 || s.First > s.Epoch:
		return fmt.Sprintf("epoch %d of a shard that began in epoch %d", s.Epoch, s.First)
	case len(s.Replicas) == 0 || len(s.Replicas) > 2*maxReplicas:
		return fmt.Sprintf("%d replicas (use 1 to %d)", len(s.Replicas), 2*maxReplicas)
	case !in(s.Adding) || !in(s.Removing) || !in(s.members()):
		return "a member, or who is added or removed, is not among the replicas"
	case s.Leader != "" && !slices.Contains(s.members(), s.Leader):
		return "the leader is not in sync"
	case repeats(s.Replicas) || repeats(s.members()):
		return "a broker stands in it twice"
	}
	return ""
}

// New reports whether the shard is in its first epoch: no broker led it before.
func (s *Shard) New() bool { return s.Epoch == max(s.First, 1) }

// MinInSync returns how many replicas must be in sync for a record to be acknowledged. While
// replicas are added or replaced, the number stays.
func (s *Shard) MinInSync(spec *TopicSpec) int {
	return spec.ResolvedMinInSync(len(s.Replicas) - max(len(s.Adding), len(s.Removing)))
}

// Member returns the broker's entry in the in-sync set.
func (s *Shard) Member(broker string) (Replica, bool) {
	i := slices.IndexFunc(s.InSync, func(m Replica) bool { return m.Broker == broker })
	if i < 0 {
		return Replica{}, false
	}
	return s.InSync[i], true
}

// Return returns how far the copy went when the broker itself vouched for its entry of the in-sync
// set; false: it did not.
func (s *Shard) Return(broker string) (Reach, bool) {
	for _, r := range s.returns() {
		if r.Broker == broker {
			return r.Reach, true
		}
	}
	return Reach{}, false
}

// WithEntry returns the shard with another entry of a member of its in-sync set. If unled is set,
// the member does not lead it any more.
func (s *Shard) WithEntry(entry Replica, unled bool) Shard {
	after := *s
	after.InSync = slices.Clone(s.InSync)
	for i := range after.InSync {
		if after.InSync[i].Broker == entry.Broker {
			after.InSync[i] = entry
		}
	}
	if unled && after.Leader == entry.Broker {
		after.Leader = ""
	}
	return after
}

// returns returns what was said by the incarnations that the in-sync set names now.
func (s *Shard) returns() (valid []Return) {
	for _, r := range s.Returned {
		if slices.Contains(s.InSync, r.Replica) {
			valid = append(valid, r)
		}
	}
	return valid
}

func (s *Shard) members() []string {
	ids := make([]string, 0, len(s.InSync))
	for _, m := range s.InSync {
		ids = append(ids, m.Broker)
	}
	return ids
}

func repeats(ids []string) bool {
	for i, id := range ids {
		if slices.Contains(ids[:i], id) {
			return true
		}
	}
	return false
}

func (s *Shard) encode() (string, error) {
	if why := s.valid(); why != "" {
		return "", &InvalidError{s.String(), why}
	}
	version := shardValueVersion
	if s.Generation > 0 {
		version = generationShardVersion
	}
	return encodeValue(s.String(), shardValue{version, s.Epoch, s.First, s.Leader, s.Replicas, s.InSync, s.Adding, s.Removing, s.Doubt, s.returns(), s.Generation})
}

func (c *Client) decodeShard(kv *mvccpb.KeyValue) (*Shard, error) {
	topic, number, _ := strings.Cut(strings.TrimPrefix(string(kv.GetKey()), c.allShards()), "/")
	n, err := strconv.Atoi(number)
	if err != nil || strconv.Itoa(n) != number {
		return nil, fmt.Errorf("decode %s: %q is not the number of a shard (delete the key)", kv.GetKey(), number)
	}
	s := &Shard{Topic: topic, Number: n, Revision: kv.GetModRevision()}
	var value shardValue
	if err := decodeValue(s.String(), kv.GetValue(), generationShardVersion, &value, &value.V); err != nil {
		return nil, err
	}
	s.Generation, s.First = value.Generation, value.First
	s.Epoch, s.Leader, s.Replicas, s.InSync, s.Adding, s.Removing, s.Doubt, s.Returned = value.Epoch, value.Leader, value.Replicas, value.InSync, value.Adding, value.Removing, value.Doubt, value.Returned
	if why := s.valid(); why != "" {
		return nil, fmt.Errorf("decode %s: %s", s, why)
	}
	return s, nil
}

// ReadShards reads the shards of a Topic at one revision, sorted by number.
func (c *Client) ReadShards(ctx context.Context, topicID string) (shards []*Shard, revision int64, err error) {
	var unreadable error
	revision, err = c.pages(ctx, c.shardsPrefix(topicID), func(kv *mvccpb.KeyValue) {
		s, err := c.decodeShard(kv)
		if err != nil {
			unreadable = err
			return
		}
		shards = append(shards, s)
	})
	if err == nil {
		err = unreadable
	}
	if err != nil {
		return nil, 0, err
	}
	slices.SortFunc(shards, func(a, b *Shard) int { return a.Number - b.Number })
	return shards, revision, nil
}

// Vouched reports whether the in-sync set names the broker in its registered incarnation.
func (s *Shard) Vouched(b Broker) bool {
	m, in := s.Member(b.ID)
	return in && m.Incarnation != 0 && m.Incarnation == b.Incarnation
}
