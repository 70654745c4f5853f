package coordination

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/carillon-mq/carillon/broker/transform"
)

// Index returns the name by which a stream tells this source from its others, as nats-server writes
// it in the header of copied messages: the stream, the filters and the destinations, with blanks
// between them.
func (s *StreamSource) Index() string {
	filter, destination := orAll(s.Filter), ">"
	if len(s.Transforms) > 0 {
		filters, destinations := make([]string, len(s.Transforms)), make([]string, len(s.Transforms))
		for i, t := range s.Transforms {
			filters[i], destinations[i] = orAll(t.Source), orAll(t.Destination)
		}
		filter, destination = strings.Join(filters, "\f"), strings.Join(destinations, "\f")
	}
	return s.Name + " " + filter + " " + destination
}

// ShardAsOrigin gives a mirror the shards of the Topic that it mirrors, which may be nil.
func (s *TopicSpec) ShardAsOrigin(origin *Topic) {
	if origin != nil {
		s.Shards, s.PartitionBy, s.PartitionTokens = max(origin.Spec.Shards, 1), origin.Spec.PartitionBy, origin.Spec.PartitionTokens
	}
}

// MirrorMismatch returns why a mirror can't copy the Topic that it mirrors, or "", also if that is
// nil: each shard of the mirror has the sequences of the shard of its number, and finds subjects as
// the origin does.
func (s *TopicSpec) MirrorMismatch(origin *Topic) string {
	if origin == nil {
		return ""
	}
	switch mine, its := max(s.Shards, 1), max(origin.Spec.Shards, 1); {
	case mine != its:
		return fmt.Sprintf("the mirror has %s, and %s, which it mirrors, has %d: their sequences don't fit (make the mirror anew with %d)", shardsText(mine), origin.Name, its, its)
	case mine > 1 && !slices.Equal(s.PartitionTokens, origin.Spec.PartitionTokens):
		return fmt.Sprintf("other tokens of a subject decide the shard in the mirror, %v, than in %s, which it mirrors, %v (make the mirror anew with the same ones)", s.PartitionTokens, origin.Name, origin.Spec.PartitionTokens)
	}
	return ""
}

// Origin returns the Topic that a mirror mirrors, or nil.
func (s *TopicSpec) Origin(state *State) *Topic {
	if s.Stream.Mirror == nil {
		return nil
	}
	if t := state.Topic(s.Stream.Mirror.Name); t != nil && !t.Deleting {
		return t
	}
	return nil
}

// FindOrigin returns the Topic that a mirror mirrors, or nil, as etcd has it: a State may lack a
// new one for a moment.
func (s *TopicSpec) FindOrigin(ctx context.Context, get func(ctx context.Context, name string) (*Topic, error)) (*Topic, error) {
	if s.Stream.Mirror == nil {
		return nil, nil
	}
	t, err := get(ctx, s.Stream.Mirror.Name)
	if _, missing := errors.AsType[*NotFoundError](err); missing || err == nil && t.Deleting {
		return nil, nil
	}
	return t, err
}

func shardsText(n int) string {
	if n == 1 {
		return "1 shard"
	}
	return fmt.Sprintf("%d shards", n)
}

// validCopies returns why several shards can't have the sources, or "".
func (s *TopicSpec) validCopies() string {
	if s.Shards <= 1 {
		return ""
	}
	if m := s.Stream.Mirror; m != nil && shardStream.MatchString(m.Name) {
		return fmt.Sprintf("a mirror of a shard, %s, with %d shards (mirror the whole Topic, or use one shard)", m.Name, s.Shards)
	}
	for _, from := range s.Stream.Copies() {
		for _, m := range from.Transforms {
			t, err := transform.New(m.Source, m.Destination)
			switch {
			case err != nil || t == nil:
			case from.Mirrored:
				return fmt.Sprintf("a mirror of %d shards with transforms: messages are in the shard of their former subjects, and nobody would find them under the new ones (leave the destinations out, or use sources)", s.Shards)
			case t.Random():
				return fmt.Sprintf("a source with %d shards and the destination %s: each shard would draw another number (leave random out, or use one shard)", s.Shards, m.Destination)
			}
		}
	}
	return ""
}

func orAll(pattern string) string {
	if pattern == "" {
		return ">"
	}
	return pattern
}
