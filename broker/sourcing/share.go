package sourcing

import (
	"github.com/carillon-mq/carillon/broker/coordination"
	"github.com/carillon-mq/carillon/broker/publish"
	"github.com/carillon-mq/carillon/broker/transform"
)

// Place is where a shard is in its Topic.
type Place struct {
	Number int // from 0
	// Topic is the spec of the shard's Topic. Its number of shards and its partitioning never
	// change. nil: one shard.
	Topic *coordination.TopicSpec
}

// shards returns the number of shards of the Topic.
func (p Place) shards() int {
	if p.Topic == nil {
		return 1
	}
	return max(p.Topic.Shards, 1)
}

// share is the records of a source that one of several shards copies: those that would be in the
// shard if they were published to its Topic under the subjects that the source gives them. The
// origin selects by it, and so does the shard, since a broker of an earlier version may lead the
// origin. A nil *share has all records. A share is used by one goroutine at a time.
type share struct {
	Number int   `json:"number"`
	Shards int   `json:"shards"`
	Tokens []int `json:"tokens,omitempty"` // positions of those that count; none: the whole subject
	// Transforms are those of the source.
	Transforms []coordination.SubjectMapping `json:"transforms,omitempty"`

	by    mapping                // of Transforms
	topic coordination.TopicSpec // with Shards and Tokens
}

// newShare returns the share of a shard in a place; nil: all.
func newShare(source *coordination.StreamSource, at Place) *share {
	if at.shards() == 1 || source.Mirrored {
		return nil
	}
	return &share{Number: at.Number, Shards: at.Topic.Shards, Tokens: at.Topic.PartitionTokens, Transforms: source.Transforms}
}

// has reports whether the record with a subject of the origin is in the share.
func (s *share) has(name []byte) bool {
	if s == nil {
		return true
	}
	if s.topic.Shards == 0 {
		s.by, s.topic = newMapping(s.Transforms), coordination.TopicSpec{Shards: s.Shards, PartitionTokens: s.Tokens}
		if len(s.Tokens) > 0 {
			s.topic.PartitionBy = coordination.ByTokens
		}
	}
	return publish.Partition(s.by.of(name), &s.topic) == s.Number
}

// mapping is the transforms of a source. A nil one maps nothing.
type mapping []*transform.Transform

func newMapping(all []coordination.SubjectMapping) (m mapping) {
	for _, one := range all {
		t, _ := transform.New(one.Source, one.Destination) // checked when it was asked for; nil maps nothing
		m = append(m, t)
	}
	return m
}

// of returns the subject under which a record is copied.
func (m mapping) of(name []byte) []byte {
	for _, t := range m {
		if t == nil {
			continue
		}
		if to, ok := t.Apply(nil, name); ok {
			return to
		}
	}
	return name
}
