package session

import (
	"sync/atomic"

	"github.com/carillon-mq/carillon/broker/subject"
)

// Sub is one subscription of one client.
type Sub struct {
	conn    *Conn
	pattern string
	queue   string
	sid     string
	feed    *Feed // delivers the member's messages; nil: an ordinary subscription

	// Guarded by the index lock.
	leaf    *subject.Leaf[*Sub, *Peer]
	slot    int
	base    uint64 // leaf.Matched when the subscription began
	counted bool   // deliveries are counted in taken, at the match
	// filtered: some subjects that the pattern matches are denied, so each message is checked.
	// Filtered subscriptions are counted.
	filtered bool
	removed  bool  // no longer in the index
	cost     int64 // estimated bytes that count for its client, with the nodes that it added

	// Counted at the match by any publisher, under the index's read lock.
	taken atomic.Int64
	max   atomic.Int64 // messages after which the subscription ends; 0: none

	// Owned by the connection's loop.
	ended bool // nothing more is delivered
	moved bool // deliveries come as deliverOne; lists are ignored
}

// Listed implements subject.Subscriber.
func (s *Sub) Listed() bool { return !s.removed && !s.counted }

// Slot implements subject.Subscriber.
func (s *Sub) Slot() *int { return &s.slot }

// claimResult is the result of Sub.claim.
type claimResult int

const (
	refused claimResult = iota
	granted
	last // granted, and the subscription has reached its maximum
)

// claim claims one delivery of a counted subscription or a member of a queue group.
func (s *Sub) claim() claimResult {
	if s.conn.closed() {
		return refused
	}
	n := s.taken.Add(1)
	switch limit := s.max.Load(); {
	case limit == 0 || n < limit:
		return granted
	case n == limit:
		return last
	}
	return refused
}

// exhausted reports whether the subscription has reached its maximum.
func (s *Sub) exhausted() bool {
	limit := s.max.Load()
	return limit > 0 && s.taken.Load() >= limit
}

// Estimated bytes in the interest index, measured with patterns of up to a thousand tokens.
const (
	subCost  = 170 // a subscription, without its pattern
	nodeCost = 300 // a token that no other pattern has in its place
)

// costOf estimates the bytes that a subscription takes without the nodes of its pattern, which
// others may need, too.
func costOf(s *Sub) int64 {
	return subCost + int64(2*len(s.pattern)+2*len(s.queue)+len(s.sid))
}

// interestBytes estimates what all subscriptions take. The index lock is held.
func (h *Hub) interestBytes() int64 { return h.interestCost + int64(h.index.Nodes())*nodeCost }
