package jetstream

import "github.com/carillon-mq/carillon/broker/topic"

// latestHeader requests a direct get that is no older than the request. Its value is latestValue.
const (
	latestHeader = "Carillon-Read"
	latestValue  = "latest"
)

// wantsLatest reports whether the call requires an answer that no newer leader can contradict.
func (c *call) wantsLatest() bool {
	value, ok := c.header.Get(latestHeader)
	return ok && string(value) == latestValue
}

// confirmed serves a call whose answer claims to be the latest. It serves it after the in-sync
// replicas have confirmed, later than the call arrived, that this broker leads the stream;
// otherwise it refuses it. It never blocks: a leader that is cut off must not occupy the pool that
// calls for other streams need.
func (s *Server) confirmed(c *call, shard *topic.ShardLeader, serve func()) {
	now := shard.Confirm(func(err error) {
		if err != nil {
			s.refuse(c, streamOffline(err))
			return
		}
		s.submit(s.poolOf(c), c, serve)
	})
	if now {
		serve()
	}
}
