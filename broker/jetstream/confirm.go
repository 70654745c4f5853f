package jetstream

import "github.com/carillon-mq/carillon/broker/topic"

// latestHeader asks for a direct get that is no older than the request. Its value is latestValue.
const (
	latestHeader = "Carillon-Read"
	latestValue  = "latest"
)

// wantsLatest says whether the call asks for what no newer leader can contradict.
func (c *call) wantsLatest() bool {
	value, ok := c.header.Get(latestHeader)
	return ok && string(value) == latestValue
}

// confirmed serves a call whose answer claims to be the latest, when the in-sync replicas have confirmed after the call
// that this broker leads the stream; or refuses it. It doesn't wait: a leader that is cut off must not take the pool from
// calls for other streams.
func (s *Server) confirmed(c *call, shard *topic.ShardLeader, serve func()) {
	now := shard.Confirm(func(err error) {
		if err != nil {
			s.refuse(c, offline(err))
			return
		}
		s.submit(s.reads, c, serve)
	})
	if now {
		serve()
	}
}
