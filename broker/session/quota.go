package session

import (
	"context"
	"time"

	"github.com/carillon-mq/carillon/broker/quota"
	"github.com/carillon-mq/carillon/broker/work"
)

// DivideLimits divides the users' limits a second among the brokers of the cluster until ctx ends.
// send sends a report to all other brokers, without waiting.
func (h *Hub) DivideLimits(ctx context.Context, send func(report []byte)) {
	if h.auth == nil {
		return
	}
	tick := work.NewTicker(quota.Interval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			tick.Next()
		}
		if report := h.divide(time.Now()); report != nil {
			send(report)
		}
	}
}

// divide begins an interval of the users' portions. It returns the report for the other brokers;
// nil: there is none. A tick that comes soon after a late one is left out: the others have not yet
// heard what it would raise.
func (h *Hub) divide(now time.Time) []byte {
	h.mu.Lock()
	defer h.mu.Unlock()
	if now.Sub(h.divided) < quota.Interval/2 {
		return nil
	}
	h.divided = now
	var own []quota.Use
	for name, u := range h.users {
		if u.demand = u.rate.demand(u.demand, now); u.demand != (quota.Demand{}) {
			own = append(own, quota.Use{User: name, Demand: u.demand})
		}
	}
	report := h.quota.Report(own, now)
	for name, u := range h.users {
		if u.standing.Next(h.quota.Target(name, u.demand)) {
			u.rate.apply(u.standing.Now(), now)
		}
	}
	return report
}

// lower applies at once what leaves a user less. mu is held.
func (h *Hub) lower(name string, now time.Time) {
	if u := h.users[name]; u != nil {
		u.standing.Lower(h.quota.Target(name, u.demand))
		u.rate.apply(u.standing.Now(), now)
	}
}

// SetBrokers sets the other brokers of the cluster, that divide the users' limits with this one.
func (h *Hub) SetBrokers(others []string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.quota.SetOthers(others)
	now := time.Now()
	for name := range h.users {
		h.lower(name, now)
	}
}

// HearDemands takes another broker's report of what its users demand.
func (h *Hub) HearDemands(broker string, report []byte) error {
	if h.auth == nil {
		return nil // no limits, and nobody who would forget it
	}
	return h.hear(broker, report, time.Now())
}

func (h *Hub) hear(broker string, report []byte, now time.Time) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	users, err := h.quota.Hear(broker, report, now)
	for _, name := range users {
		h.lower(name, now)
	}
	return err
}

// newUser returns a user of whom this broker has known nothing. mu is held.
func (h *Hub) newUser(name string) *user {
	u := new(user)
	u.standing.Begin(h.quota.Target(name, quota.Demand{}))
	u.rate.share = u.standing.Now()
	return u
}
