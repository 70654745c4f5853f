package topic

// Stats are counters and gauges of the Topics on this broker.
type Stats struct {
	Topics     int // of the cluster
	Open       int // shards that this broker leads and has open
	Troubled   int // Topics whose logs here somebody should see to
	Messages   uint64
	Bytes      int64
	Appended   uint64 // messages
	Duplicates uint64
	Refused    map[string]uint64 // messages, by reason
	Unanswered int64             // answers that wait for the disk
	Ahead      int64             // bytes appended beyond the watermarks of shards that are led here
	IDs        int64             // in deduplication windows of what is led here
	Followed   int64             // the same of what is followed
	SetAside   uint64            // logs of Topics that do not exist

	// Of messages forwarded from here to other brokers:
	Resent         uint64 // sent once more, to another leader or over another link
	Failed         uint64 // refused here as no leader answered in time
	OutboxFull     uint64 // publishes refused as too much waits, counted by read
	OutboxBytes    int64  // of memory for what isn't answered
	OutboxMessages int64
	Deduplicated   uint64 // of messages that others forwarded to here: those that had been kept before
}

// Stats are the service's counters and gauges.
func (s *Service) Stats() Stats {
	c := &s.counts
	out := Stats{Appended: c.appended.Load(), Duplicates: c.duplicates.Load(), Unanswered: s.acker.unanswered.Load(), IDs: c.ids.Load(), Followed: c.followedIDs.Load(),
		SetAside: c.setAside.Load(), Refused: c.refused.Counts()}
	held := s.senders.Stats()
	out.Resent, out.Failed, out.OutboxFull, out.Deduplicated = held.Resent, held.Failed, held.Full, c.deduplicated.Load()
	out.OutboxBytes, out.OutboxMessages = held.Bytes, held.Messages
	for _, shard := range s.leaders() {
		start, end := shard.Offsets()
		out.Open++
		out.Messages += shard.Messages(start, end)
		out.Bytes += shard.Bytes(start)
		out.Ahead += shard.ahead.bytes.Load()
	}
	s.mu.RLock()
	defer s.mu.RUnlock()
	out.Topics = len(s.byID)
	for _, t := range s.byID {
		if t.Trouble() != "" {
			out.Troubled++
		}
	}
	return out
}
