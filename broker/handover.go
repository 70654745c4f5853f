package broker

import (
	"context"
	"time"

	"github.com/carillon-mq/carillon/broker/coordination"
)

// handOverTime bounds how long a stopping broker waits for other brokers to take leadership: an
// election takes some ten milliseconds, for thousands of shards a second or two.
const handOverTime = 5 * time.Second

// leaveTime bounds how long a broker with a hung disk waits for etcd to end its lease, before it closes
// its connections all the same. The lease is not renewed any more by then.
const leaveTime = 2 * time.Second

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

// abandon ends all that others see of this broker, in the order that lets others lead the soonest, and
// has Run return err. leave stops renewing the lease and ends it; left is closed when that is done. It
// waits for nothing else: a goroutine that hangs in the kernel can't be waited for.
func (b *Broker) abandon(err error, leave func(), left <-chan struct{}) {
	b.ready.Store(false)
	leave()
	timer := time.NewTimer(leaveTime)
	defer timer.Stop()
	select {
	case <-left:
	case <-timer.C:
	}
	b.closeListeners()
	if b.config.Sever != nil {
		b.config.Sever()
	}
	b.abandoned <- err
}
