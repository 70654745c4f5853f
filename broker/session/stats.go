package session

import (
	"time"
)

// Totals are sums over connections, those that have ended included.
type Totals struct {
	InMsgs, InBytes, OutMsgs, OutBytes uint64
}

func (t *Totals) add(c *Conn) {
	t.InMsgs += c.inMsgs.Load()
	t.InBytes += c.inBytes.Load()
	t.OutMsgs += c.outMsgs.Load()
	t.OutBytes += c.outBytes.Load()
}

// Stats is a hub at one moment.
type Stats struct {
	Totals
	Connections      int
	TotalConnections uint64
	Subscriptions    int
	PendingBytes     int64  // waiting for slow clients
	Parked           int64  // clients that are behind now
	Stalls           uint64 // times that a publisher was held back by a sender loop
	Refusals         uint64 // wrong or missing credentials
	Ended            map[Reason]uint64
}

// SlowConsumers is how many clients were closed because they did not keep up.
func (s Stats) SlowConsumers() uint64 {
	return s.Ended[SlowPending] + s.Ended[SlowNode] + s.Ended[SlowDeadline]
}

// Stats sums up.
func (h *Hub) Stats() Stats {
	h.lock.RLock()
	subs := h.index.Len()
	h.lock.RUnlock()
	h.mu.Lock()
	defer h.mu.Unlock()
	s := Stats{
		Totals: h.past, Connections: len(h.conns), TotalConnections: h.ids.Load(), Subscriptions: subs,
		PendingBytes: h.pending.Load(), Parked: h.parked.Load(), Stalls: h.stalls.Load(), Refusals: h.refusals.Load(),
		Ended: make(map[Reason]uint64, len(h.ended)),
	}
	for why, n := range h.ended {
		s.Ended[why] = n
	}
	for _, c := range h.conns {
		s.add(c)
	}
	return s
}

// ConnStats is one connection at one moment.
type ConnStats struct {
	Totals
	ID            uint64
	Address       string
	Name          string
	Lang          string
	Version       string
	Born, Active  time.Time
	Subscriptions int64
	PendingBytes  int64
}

// ConnStats describes every connection, in no particular order.
func (h *Hub) ConnStats() []ConnStats {
	conns := h.list()
	all := make([]ConnStats, 0, len(conns))
	for _, c := range conns {
		s := ConnStats{
			ID: c.id, Address: c.nc.RemoteAddr().String(), Born: c.born, Active: time.Unix(0, c.active.Load()),
			Subscriptions: c.subCount.Load(), PendingBytes: c.pending.Load(),
		}
		if about := c.about.Load(); about != nil {
			s.Name, s.Lang, s.Version = about.Name, about.Lang, about.Version
		}
		s.add(c)
		all = append(all, s)
	}
	return all
}

func (c *Conn) name() string {
	if about := c.about.Load(); about != nil {
		return about.Name
	}
	return ""
}
