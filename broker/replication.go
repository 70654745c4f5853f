package broker

import (
	"context"
	"encoding/json"
	"errors"
	"net"
	"time"

	"github.com/carillon-mq/carillon/broker/coordination"
	"github.com/carillon-mq/carillon/broker/route"
)

const (
	// handOverTime bounds how long a broker that is to end waits until other brokers lead what it
	// led: an election takes some ten milliseconds, for thousands of shards a second or two.
	handOverTime = 5 * time.Second
	// evictTime bounds one try to end the life of a broker that died.
	evictTime = 3 * time.Second
)

// replica is this broker in its present life.
func (b *Broker) replica() coordination.Replica {
	return coordination.Replica{Broker: b.identity.ID, Incarnation: b.incarnation.Load()}
}

func (b *Broker) dialReplication(ctx context.Context, broker string) (net.Conn, error) {
	if b.mesh == nil {
		return nil, errors.New("this broker links to no others (start it with --route-listen)")
	}
	return b.mesh.DialReplication(ctx, broker)
}

// evict is told of a broker whose process is dead: it has closed its link, and nobody listens where it did.
func (b *Broker) evict(m route.Member) {
	select {
	case b.evictions <- coordination.Replica{Broker: m.ID, Incarnation: m.Incarnation}:
	default: // its lease runs out by itself
	}
}

// evictAll ends the lives of dead brokers for the cluster, so that nobody waits for their leases.
func (b *Broker) evictAll(ctx context.Context, store *coordination.Client) {
	for {
		select {
		case <-ctx.Done():
			return
		case dead := <-b.evictions:
			limit, cancel := context.WithTimeout(ctx, evictTime)
			err := store.Evict(limit, dead)
			cancel()
			if err != nil {
				b.log.Warn("A broker that is dead could not be evicted; its lease runs out by itself", "peer", dead.Broker, "error", err)
			} else {
				b.log.Info("Evicted a broker that is dead", "peer", dead.Broker, "incarnation", dead.Incarnation)
			}
		}
	}
}

// handOver has other brokers lead what this one does, as far as they have it, so that publishers don't wait
// until they notice.
func (b *Broker) handOver(store *coordination.Client) {
	t := b.topics.topics
	if !b.joined.Load() || t.Leads() == 0 {
		return
	}
	began := time.Now()
	ctx, cancel := context.WithTimeout(context.Background(), handOverTime)
	defer cancel()
	if err := store.Drain(ctx, b.replica(), coordination.DrainLeadership, true); err != nil {
		b.log.Warn("Leadership could not be handed over; others take it when this broker has gone", "error", err)
		return
	}
	for {
		changed := t.Changed()
		left := t.Leads()
		if left == 0 {
			b.log.Info("Handed over leadership", "took", time.Since(began))
			return
		}
		select {
		case <-changed:
		case <-ctx.Done():
			b.log.Warn("Not all leadership was handed over; others take it when this broker has gone", "shards", left)
			return
		}
	}
}

// orderly is what the disk's mark says: the life of the broker from which on its volume holds everything.
type orderly struct {
	Since int64 `json:"since"`
}

// readMark begins where an orderly end left off.
func (b *Broker) readMark() {
	var mark orderly
	if data := b.topics.disk.Mark(); data != nil && json.Unmarshal(data, &mark) == nil {
		b.since.Store(mark.Since)
	}
}

// closeDisk closes the disk, and leaves the mark of an orderly end if it was one.
func (b *Broker) closeDisk(inOrder bool) error {
	since := b.since.Load()
	if !inOrder || since == 0 {
		return b.topics.disk.Close()
	}
	data, err := json.Marshal(orderly{Since: since})
	if err != nil {
		return errors.Join(err, b.topics.disk.Close())
	}
	return b.topics.disk.CloseMarked(data)
}
