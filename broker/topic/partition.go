package topic

import (
	"bytes"
	"fmt"

	"github.com/carillon-mq/carillon/broker/coordination"
	"github.com/carillon-mq/carillon/broker/publish"
)

// partition says which shard a subject's records are in, so that their order holds. It never changes for a
// Topic: the number of shards and the tokens that count are fixed when it is made.
//
// The hash is 64-bit FNV-1a, taken modulo the number of shards. With ByTokens, the chosen tokens count, in
// their order, each followed by a dot; of a subject that has fewer, those that it has, and all of it if it has none of them.
func partition(subject []byte, spec *coordination.TopicSpec) int {
	if spec.Shards <= 1 {
		return 0
	}
	hash := uint64(fnvOffset)
	if spec.PartitionBy != coordination.ByTokens {
		return int(fnv(hash, subject) % uint64(spec.Shards))
	}
	found := false
	for _, at := range spec.PartitionTokens {
		if token, ok := tokenAt(subject, at); ok {
			hash, found = fnv(fnv(hash, token), dot), true
		}
	}
	if !found {
		hash = fnv(hash, subject)
	}
	return int(hash % uint64(spec.Shards))
}

const (
	fnvOffset = 14695981039346656037
	fnvPrime  = 1099511628211
)

var dot = []byte{'.'}

func fnv(hash uint64, data []byte) uint64 {
	for _, b := range data {
		hash = (hash ^ uint64(b)) * fnvPrime
	}
	return hash
}

// tokenAt is the token of a subject at a position, counted from 1.
func tokenAt(subject []byte, at int) (token []byte, ok bool) {
	for ; at > 1; at-- {
		i := bytes.IndexByte(subject, '.')
		if i < 0 {
			return nil, false
		}
		subject = subject[i+1:]
	}
	token, _, _ = bytes.Cut(subject, dot)
	return token, at == 1
}

// several says that the Topic has more than one shard.
func (t *Topic) several() bool { return len(t.shards) > 1 }

// canJudge says whether a shard of several can judge a publisher's conditions. What was the last message of the whole Topic it doesn't
// know, nor the last of a subject that another shard has; who names the shard's stream means the shard.
func (p *Shard) canJudge(c *publish.Conditions) bool {
	if (c.ExpectsLast || len(c.ExpectedLastID) > 0) && string(c.ExpectedTopic) != p.name {
		return false
	}
	return !c.ExpectsLastBySubject || len(c.ExpectedSubject) == 0 || p.topic.ShardFor(c.ExpectedSubject) == p
}

func (p *Shard) cantJudge() error {
	return &publish.UnsupportedConditionError{
		Topic: p.topic.name, Condition: "expecting the last message of more than one shard",
		Why: fmt.Sprintf("it has %d shards, which have no order among them (expect the last of the message's own subject, or name the shard's stream, %s, in Nats-Expected-Stream)", len(p.topic.shards), p.name),
	}
}
