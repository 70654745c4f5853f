package topic

import (
	"fmt"

	"github.com/carillon-mq/carillon/broker/publish"
)

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
