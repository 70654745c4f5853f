package membership

import (
	"context"
	"time"

	"github.com/carillon-mq/carillon/broker/coordination"
	"github.com/carillon-mq/carillon/broker/route"
)

const (
	// evictTime bounds one attempt to evict a dead broker.
	evictTime = 3 * time.Second
	// pendingEvictions bounds the dead brokers that wait for eviction. So many rarely die at once;
	// the leases of further ones expire.
	pendingEvictions = 16
)

// Evict queues a dead broker for eviction: its process closed the link and nothing listens on its
// port. It never blocks.
func (m *Member) Evict(dead route.Member) {
	select {
	case m.dead <- coordination.Replica{Broker: dead.ID, Incarnation: dead.Incarnation}:
	default:
	}
}

// EvictDead evicts the brokers that Evict queued, until ctx ends, so that the cluster need not wait
// for their leases to expire.
func (m *Member) EvictDead(ctx context.Context, store Store) {
	for {
		select {
		case <-ctx.Done():
			return
		case dead := <-m.dead:
			limit, cancel := context.WithTimeout(ctx, evictTime)
			err := store.Evict(limit, dead)
			cancel()
			if err != nil {
				m.log.Warn("A dead broker could not be evicted; its lease ends by itself", "peer", dead.Broker, "error", err)
			} else {
				m.log.Info("Evicted a dead broker", "peer", dead.Broker, "incarnation", dead.Incarnation)
			}
		}
	}
}
