package topic

// Shards is how many shards the Topic has. They count from 0.
func (t *Topic) Shards() int { return len(t.streams) }

// ShardAt is the shard of that number if it is led here and can be read, or nil.
func (t *Topic) ShardAt(number int) *Shard {
	if number < 0 || number >= len(t.streams) {
		return nil
	}
	return t.streams[number].readable()
}

// LeaderOf is the id of the broker that leads the shard, or empty.
func (t *Topic) LeaderOf(number int) string {
	if number < 0 || number >= len(t.streams) {
		return ""
	}
	return t.streams[number].view.Load().leader
}

// WhyNotAt says why the shard is not served here: a *NotServedError. It is nil if it is.
func (t *Topic) WhyNotAt(number int) error {
	if number < 0 || number >= len(t.streams) {
		return nil
	}
	if why := t.streams[number].whyNot(); why != nil {
		return why
	}
	return nil
}
