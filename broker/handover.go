package broker

import (
	"context"
	"time"

	"github.com/carillon-mq/carillon/broker/coordination"
)

// handOverTime bounds how long a stopping broker waits for other brokers to take leadership: an
// election takes some ten milliseconds, for thousands of shards a second or two.
const handOverTime = 5 * time.Second

// handOver transfers the leadership of this broker's shards to in-sync followers before this broker
// leaves, so that publishers need not wait until its end is noticed.
func (b *Broker) handOver(store *coordination.Client) {
	t := b.topics.topics
	if !b.member.Joined() || t.Leads() == 0 {
		return
	}
	began := time.Now()
	ctx, cancel := context.WithTimeout(context.Background(), handOverTime)
	defer cancel()
	if err := store.Drain(ctx, b.member.Replica(), coordination.DrainLeadership, true); err != nil {
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
