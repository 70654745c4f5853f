package topic

import "github.com/carillon-mq/carillon/broker/republish"

// Stats has counters and gauges of the Topics on this broker.
type Stats struct {
	Topics     int // of the cluster
	Open       int // shards that this broker leads and has open
	Troubled   int // Topics with a log here that needs attention
	Messages   uint64
	Bytes      int64
	Appended   uint64 // messages
	Duplicates uint64
	Refused    map[string]uint64 // messages, by reason
	Unanswered int64             // messages that wait for their answer
	Ahead      int64             // bytes appended beyond the watermarks of shards that are led here
	Sources    int64             // senders that led shards remember; counted every expireTicks
	IDs        int64             // in deduplication windows of shards that are led here
	Followed   int64             // likewise, of shards that are followed
	SetAside   uint64            // logs of Topics that do not exist
	Republish  republish.Stats

	// Of messages forwarded from here to other brokers:
	Resent         uint64 // sent once more, to another leader or over another link
	Failed         uint64 // refused here, as no leader answered in time
	OutboxFull     uint64 // reads of publishes that were refused, as the outbox is full
	OutboxBytes    int64  // memory of unanswered messages
	OutboxMessages int64
	Deduplicated   uint64 // retries forwarded to here of messages that had been kept
}

// Stats returns the counters and gauges.
func (s *Service) Stats() Stats {
	c := &s.counts
	out := Stats{Appended: c.appended.Load(), Duplicates: c.duplicates.Load(), Unanswered: s.acker.Unanswered(), IDs: c.ids.Load(), Followed: c.followedIDs.Load(),
		SetAside: s.stored.SetAside(), Republish: s.republish.Stats(), Refused: c.refused.Counts()}
	held := s.senders.Stats()
	out.Resent, out.Failed, out.OutboxFull, out.Deduplicated = held.Resent, held.Failed, held.Full, c.deduplicated.Load()
	out.OutboxBytes, out.OutboxMessages = held.Bytes, held.Messages
	for _, shard := range s.Leaders() {
		start, end := shard.Offsets()
		out.Open++
		out.Messages += shard.Messages(start, end)
		out.Bytes += shard.Bytes(start)
		out.Ahead += shard.ahead.Bytes()
		out.Sources += shard.sources.Load()
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
