package publish

import "github.com/carillon-mq/carillon/broker/subject"

// OneShard reports whether one of several shards can judge the conditions. A shard doesn't know the
// last message of the whole Topic, nor of a subject of another shard. A publisher that names the
// shard's stream asks for the shard's last message, also of a pattern. The message is on the
// subject of. has reports whether the shard has the records of a subject.
func (c *Conditions) OneShard(name string, of []byte, has func(subject []byte) bool) bool {
	pattern := c.ExpectsLastBySubject && subject.HasWildcards(c.LastOf(of))
	if (c.ExpectsLast || len(c.ExpectedLastID) > 0 || pattern) && string(c.ExpectedTopic) != name {
		return false
	}
	return pattern || !c.ExpectsLastBySubject || len(c.ExpectedSubject) == 0 || has(c.ExpectedSubject)
}
