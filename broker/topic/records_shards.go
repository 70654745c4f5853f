package topic

// ShardCount is how many shards the Topic has. They count from 0.
func (t *Topic) ShardCount() int { return len(t.shards) }

// ShardAt is the shard of that number if it is led here and can be read, or nil.
func (t *Topic) ShardAt(number int) *ShardLeader {
	if number < 0 || number >= len(t.shards) {
		return nil
	}
	return t.shards[number].readable()
}

// LeaderOf is the id of the broker that leads the shard, or empty.
func (t *Topic) LeaderOf(number int) string {
	if number < 0 || number >= len(t.shards) {
		return ""
	}
	return t.shards[number].view.Load().leader
}

// WhyNotAt says why the shard is not served here: a *publish.NotServedError. It is nil if it is.
func (t *Topic) WhyNotAt(number int) error {
	if number < 0 || number >= len(t.shards) {
		return nil
	}
	if why := t.shards[number].whyNot(); why != nil {
		return why
	}
	return nil
}
