package topic

import (
	"github.com/carillon-mq/carillon/broker/coordination"
	"github.com/carillon-mq/carillon/broker/log"
	"github.com/carillon-mq/carillon/broker/replica"
	"github.com/carillon-mq/carillon/broker/sender"
)

// id returns the id of the shard in replication.
func (p *Shard) id() replica.ID { return replica.ID{Topic: p.topic.id, Shard: p.number} }

// at returns the id of the shard for senders.
func (p *Shard) at() sender.ID {
	return sender.ID{TopicID: p.topic.id, Topic: p.topic.name, Name: p.name, Number: p.number}
}

// Topic returns the Topic of the shard.
func (p *Shard) Topic() *Topic { return p.topic }

// ID returns the id of the Topic.
func (p *Shard) ID() string { return p.topic.id }

// Number returns the number of the shard.
func (p *Shard) Number() int { return p.number }

// Key returns a key of the shard: the Topic's id and, unless it is the first shard, its number.
func (p *Shard) Key() string { return coordination.ShardKey(p.topic.id, p.number) }

// Name returns the name of the shard for people and JetStream's clients; see
// coordination.ShardName.
func (p *Shard) Name() string { return p.name }

// Holds reports whether this broker has a replica of the shard.
func (p *Shard) Holds() bool { return p.view.Load().member }

// Desired returns the Topic as users want it. It must not be changed.
func (p *Shard) Desired() *coordination.Topic { return p.view.Load().desired }

// Leader returns the id of the broker that leads the shard, or "".
func (p *Shard) Leader() string { return p.view.Load().leader }

// logIDs returns the ids of the shard's logs, by part.
func (p *Shard) logIDs() [replica.Parts]log.Identity {
	return [...]log.Identity{
		replica.Data:  {Topic: p.topic.id, Shard: p.number},
		replica.State: {Topic: p.topic.id, Shard: p.number, Part: statePart},
	}
}

// statePart is the Part of the log of cursors.
const statePart = "state"
