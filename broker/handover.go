package broker

import (
	"context"
	"time"

	"github.com/carillon-mq/carillon/broker/coordination"
)

// handOverTime bounds how long a stopping broker waits for other brokers to take leadership: an
// election takes some ten milliseconds, and one or two seconds for thousands of shards.
const handOverTime = 5 * time.Second

// endPullsTime bounds how long a stopping broker takes to end the requests of clients that wait.
const endPullsTime = time.Second

// settleTime bounds how long a stopping broker waits until acks are on the other replicas.
const settleTime = time.Second

// drainTime bounds how long a stopping broker waits for the answers of endpoints that it pushes to.
// What has none by then is sent again by the next leader.
const drainTime = 3 * time.Second

// leaveTime bounds how long a broker with a hung disk waits for etcd to revoke its lease before it
// closes its connections. The lease is not renewed any more by then.
const leaveTime = 2 * time.Second

// drainPush waits for the requests to endpoints that are under way, and begins no other.
func (b *Broker) drainPush() {
	ctx, cancel := context.WithTimeout(context.Background(), drainTime)
	defer cancel()
	b.topics.push.Drain(ctx)
}

// handOver transfers the leadership of this broker's shards to in-sync followers before this broker
// stops, so that publishers need not wait until its end is detected.
func (b *Broker) handOver(store *coordination.Client) {
	t := b.topics.topics
	if !b.member.Joined() || t.Leads() == 0 {
		return
	}
	began := time.Now()
	ctx, cancel := context.WithTimeout(context.Background(), handOverTime)
	defer cancel()
	settling, settled := context.WithTimeout(ctx, settleTime)
	b.topics.subscriptions.Settle(settling) // the next leaders deliver again what they lack
	settled()
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

// abandon ends everything that others see of this broker, in the order that lets others lead
// soonest, and makes Run return err. leave stops renewing the lease and revokes it; left is closed
// when that is done. abandon waits for nothing else, since a goroutine may hang in the kernel.
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
