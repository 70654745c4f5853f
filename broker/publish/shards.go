package publish

// OneShard reports whether one of several shards can judge the conditions. A shard doesn't know the
// last message of the whole Topic, nor of a subject of another shard. A publisher that names the
// shard's stream asks for the shard's last message. has reports whether the shard has the records
// of a subject.
func (c *Conditions) OneShard(name string, has func(subject []byte) bool) bool {
	if (c.ExpectsLast || len(c.ExpectedLastID) > 0) && string(c.ExpectedTopic) != name {
		return false
	}
	return !c.ExpectsLastBySubject || len(c.ExpectedSubject) == 0 || has(c.ExpectedSubject)
}
