package publish

import (
	"fmt"
	"strings"
)

// OneShard reports whether one of several shards can judge the conditions. A shard doesn't know the
// last message of the whole Topic, nor of a subject of another shard. A publisher that names the
// shard's stream asks for the shard's last message. has reports whether the shard has the records of
// a subject.
func (c *Conditions) OneShard(name string, has func(subject []byte) bool) bool {
	if (c.ExpectsLast || len(c.ExpectedLastID) > 0) && string(c.ExpectedTopic) != name {
		return false
	}
	return !c.ExpectsLastBySubject || len(c.ExpectedSubject) == 0 || has(c.ExpectedSubject)
}

// SeveralShards returns the refusal of a condition that one of a Topic's shards can't judge.
func SeveralShards(topic, shard string, shards int) error {
	return &UnsupportedConditionError{
		Topic: topic, Condition: "expecting the last message of more than one shard",
		Why: fmt.Sprintf("it has %d shards, which have no order among them (expect the last of the message's own subject, or name the shard's stream, %s, in Nats-Expected-Stream)", shards, shard),
	}
}

// DamagedCopy says, for people, that records from one offset to another are damaged on a broker, and
// which others may have them.
func DamagedCopy(broker string, from, to uint64, others []string) string {
	return fmt.Sprintf("the copy on broker %s is damaged from %d to %d, which %s may have; try again when it is in sync (bring it back with its volume, or allow unclean election to give up what only it has)",
		broker, from, to, oneOf(others))
}

// oneOf names one of several brokers, for people.
func oneOf(names []string) string {
	if len(names) == 1 {
		return "broker " + names[0]
	}
	return "one of the brokers " + strings.Join(names, ", ")
}
