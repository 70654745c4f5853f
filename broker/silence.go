package broker

import (
	"context"
	"sync"
	"time"

	"github.com/carillon-mq/carillon/broker/coordination"
)

const (
	// silenceTick is how often the links are looked at for who is silent.
	silenceTick = 100 * time.Millisecond
	// accuseTime bounds one try to tell etcd. It is short, since what doesn't answer may be the coordinator on
	// the same machine as the broker that is gone; the next try goes to another one.
	accuseTime = time.Second
)

// accuseAll tells etcd of the members that are silent to this one, as long as they are. When most say the same of
// one, it is evicted, and nobody waits for its lease.
func (b *Broker) accuseAll(ctx context.Context, store *coordination.Client) {
	ticker := time.NewTicker(silenceTick)
	defer ticker.Stop()
	said := map[coordination.Replica]coordination.Replica{} // in which life of this broker
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		self := b.replica()
		silent := map[coordination.Replica]bool{}
		for _, m := range b.mesh.Silent() {
			silent[coordination.Replica{Broker: m.ID, Incarnation: m.Incarnation}] = true
		}
		var mu sync.Mutex
		var telling sync.WaitGroup
		for other := range silent {
			if said[other] == self || self.Incarnation == 0 {
				continue
			}
			telling.Go(func() {
				if b.accuse(ctx, store, self, other) {
					mu.Lock()
					said[other] = self
					mu.Unlock()
				}
			})
		}
		telling.Wait()
		for other, by := range said {
			if silent[other] {
				continue
			}
			limit, cancel := context.WithTimeout(ctx, accuseTime)
			if err := store.Acquit(limit, by, other); err == nil {
				delete(said, other)
			}
			cancel()
		}
	}
}

// accuse tells of one, and says whether etcd knows.
func (b *Broker) accuse(ctx context.Context, store *coordination.Client, self, other coordination.Replica) bool {
	limit, cancel := context.WithTimeout(ctx, accuseTime)
	defer cancel()
	evicted, err := store.Accuse(limit, self, other)
	switch {
	case err != nil:
		b.log.Debug("Could not tell etcd that a broker is silent; trying again", "peer", other.Broker, "error", err)
		return false
	case evicted:
		b.log.Warn("Evicted a broker that most brokers hear nothing of", "peer", other.Broker, "incarnation", other.Incarnation)
	default:
		b.log.Warn("A broker is silent; it is evicted when most brokers say so, or when its lease is over", "peer", other.Broker, "incarnation", other.Incarnation)
	}
	return true
}
