package membership

import (
	"context"
	"sync"
	"time"

	"github.com/carillon-mq/carillon/broker/coordination"
	"github.com/carillon-mq/carillon/broker/work"
)

const (
	// silenceTick is how often the links are checked for silent brokers while there is one, and
	// silenceRest otherwise: the links tell of one.
	silenceTick = 100 * time.Millisecond
	silenceRest = time.Second
	// reportTime bounds one report to etcd. It is short because the coordinator that does not
	// answer may run on the silent broker's machine; the next attempt uses another one.
	reportTime = time.Second
)

// ReportSilent reports silent members to etcd until ctx ends, and withdraws the reports of those
// that are heard again. A member that a majority reports is evicted before its lease ends.
func (m *Member) ReportSilent(ctx context.Context, store Store) {
	ticker := work.NewTicker(silenceTick)
	defer ticker.Stop()
	reported := map[coordination.Replica]coordination.Replica{} // by which incarnation of this broker
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		case <-m.links.Hushed():
		}
		self := m.Replica()
		silent := map[coordination.Replica]bool{}
		for _, other := range m.links.Silent() {
			silent[coordination.Replica{Broker: other.ID, Incarnation: other.Incarnation}] = true
		}
		var mu sync.Mutex
		var reporting sync.WaitGroup
		for other := range silent {
			mu.Lock()
			done := reported[other] == self
			mu.Unlock()
			if done || self.Incarnation == 0 {
				continue
			}
			reporting.Go(func() {
				if m.report(ctx, store, self, other) {
					mu.Lock()
					reported[other] = self
					mu.Unlock()
				}
			})
		}
		reporting.Wait()
		for other, by := range reported {
			if silent[other] {
				continue
			}
			limit, cancel := context.WithTimeout(ctx, reportTime)
			if err := store.WithdrawSilent(limit, by, other); err == nil {
				delete(reported, other)
			}
			cancel()
		}
		if len(silent)+len(reported) > 0 {
			ticker.Pace(silenceTick)
		} else {
			ticker.Pace(silenceRest)
		}
	}
}

// report reports one silent broker and returns whether etcd has the report.
func (m *Member) report(ctx context.Context, store Store, self, other coordination.Replica) bool {
	limit, cancel := context.WithTimeout(ctx, reportTime)
	defer cancel()
	evicted, err := store.ReportSilent(limit, self, other)
	switch {
	case err != nil:
		m.log.Debug("Could not report a silent broker to etcd; trying again", "peer", other.Broker, "error", err)
		return false
	case evicted:
		m.log.Warn("Evicted a broker that a majority reported silent", "peer", other.Broker, "incarnation", other.Incarnation)
	default:
		m.log.Warn("A broker is silent; it is evicted when a majority reports it, or when its lease ends", "peer", other.Broker, "incarnation", other.Incarnation)
	}
	return true
}
