package publish

import (
	"bytes"
	"slices"
	"sync"

	"github.com/carillon-mq/carillon/broker/coordination"
	"github.com/carillon-mq/carillon/broker/protocol"
)

// Partition returns the shard that a subject's records are in, so that their order holds. It never
// changes for a Topic: the number of shards and the tokens that count are fixed when it is created.
//
//  1. The hash is 64-bit FNV-1a, modulo the number of shards.
//  2. With coordination.ByTokens the chosen tokens count, in their order, each followed by a dot.
//  3. Of a subject with fewer tokens, those that it has count, or all of it if it has none of them.
func Partition(subject []byte, spec *coordination.TopicSpec) int {
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

// Divide calls f for each of so many shards that has some of the messages, with those, in their
// order. f must not keep the slice.
func Divide(messages []protocol.Message, spec *coordination.TopicSpec, shards int, f func(shard int, some []protocol.Message)) {
	d := divisions.Get().(*division)
	d.lists = slices.Grow(d.lists[:0], shards)[:shards]
	for i := range messages {
		n := Partition(messages[i].Subject, spec)
		d.lists[n] = append(d.lists[n], messages[i])
	}
	for n, list := range d.lists {
		if len(list) > 0 {
			f(n, list)
			clear(list)
			d.lists[n] = list[:0]
		}
	}
	divisions.Put(d)
}

// division has messages by shard.
type division struct{ lists [][]protocol.Message }

var divisions = sync.Pool{New: func() any { return &division{} }}

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

// tokenAt returns the token of a subject at a position, counted from 1.
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
