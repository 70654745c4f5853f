package topic

import (
	"fmt"
	"strconv"

	"github.com/carillon-mq/carillon/broker/coordination"
	"github.com/carillon-mq/carillon/broker/log"
	"github.com/carillon-mq/carillon/broker/replica"
	"github.com/carillon-mq/carillon/broker/sender"
)

func (p *Shard) id() replica.ID { return replica.ID{Topic: p.topic.id, Shard: p.number} }

// at returns the id of the shard for senders.
func (p *Shard) at() sender.ID {
	return sender.ID{TopicID: p.topic.id, Topic: p.topic.name, Name: p.name, Number: p.number}
}

// Topic is the one that the shard belongs to.
func (p *Shard) Topic() *Topic { return p.topic }

// ID is that of the Topic.
func (p *Shard) ID() string { return p.topic.id }

// Number is that of the shard.
func (p *Shard) Number() int { return p.number }

// Key tells the shard from all others: the Topic's id and, unless it is the first, its number.
func (p *Shard) Key() string { return ShardKey(p.topic.id, p.number) }

// Name is how people and JetStream's clients know the shard: by the Topic's name if it has but one.
func (p *Shard) Name() string { return p.name }

// ShardName is the name of a Topic's shard: the Topic's if that is the only one.
func ShardName(t *coordination.Topic, number int) string {
	if t.Spec.Shards <= 1 {
		return t.Name
	}
	return fmt.Sprintf("%s--%d", t.Name, number)
}

// ShardKey is the Key of a Topic's shard.
func ShardKey(topicID string, number int) string {
	if number == 0 {
		return topicID
	}
	return topicID + "/" + strconv.Itoa(number)
}

// Holds reports whether this broker has a replica of the shard.
func (p *Shard) Holds() bool { return p.view.Load().member }

// Desired is what is asked for of the Topic. It belongs to all its readers.
func (p *Shard) Desired() *coordination.Topic { return p.view.Load().desired }

// Leader is the id of the broker that leads the shard, or empty.
func (p *Shard) Leader() string { return p.view.Load().leader }

// logIDs are the logs of the shard, its data first.
func (p *Shard) logIDs() [replica.Parts]log.Identity {
	return [...]log.Identity{
		replica.Data:  {Topic: p.topic.id, Shard: p.number},
		replica.State: {Topic: p.topic.id, Shard: p.number, Part: statePart},
	}
}

const statePart = "state"
