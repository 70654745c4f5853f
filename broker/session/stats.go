package session

import (
	"maps"
	"time"
)

// Totals are sums over connections, including those that have ended.
type Totals struct {
	InMsgs, InBytes, OutMsgs, OutBytes uint64
}

func (t *Totals) add(c *Conn) {
	t.InMsgs += c.inMsgs.Load()
	t.InBytes += c.inBytes.Load()
	t.OutMsgs += c.outMsgs.Load()
	t.OutBytes += c.outBytes.Load()
}

// Stats is a snapshot of a hub.
type Stats struct {
	Totals
	Connections      int
	TotalConnections uint64
	Subscriptions    int
	InterestBytes    int64         // estimated, of the subscriptions
	PendingBytes     int64         // waiting for slow clients
	HeldBytes        int64         // memory that they hold, which Profile.NodePending bounds
	InputBytes       int64         // buffers of large operations that are being read
	InputLimit       int64         // what they may take
	InputWaiting     int           // clients that wait for room for a large operation
	Parked           int64         // clients with a writer goroutine now
	Stalls           uint64        // how often a publisher waited for a sender loop
	RateWaited       time.Duration // of connections, for room below their users' limits a second
	RateHeard        int           // other brokers that divide these limits and report, while one does
	RateUnheard      int           // those that don't
	Refusals         uint64        // wrong or missing credentials
	Violations       uint64        // what clients had no right to
	Ended            map[Reason]uint64
	Handshakes       map[Outcome]uint64 // of TLS
	WebSockets       int                // of Connections, those on the port for WebSocket
	Upgrades         map[Outcome]uint64 // to WebSocket
}

// SlowConsumers returns the number of clients that were closed as slow consumers.
func (s Stats) SlowConsumers() uint64 {
	return s.Ended[SlowPending] + s.Ended[SlowNode] + s.Ended[SlowDeadline]
}

// Stats returns a snapshot of the hub.
func (h *Hub) Stats() Stats {
	h.lock.RLock()
	subs, interest := h.index.Len(), h.interestBytes()
	h.lock.RUnlock()
	used, limit, waiting := h.input.figures()
	h.mu.Lock()
	defer h.mu.Unlock()
	s := Stats{
		Totals: h.past, Connections: len(h.conns), TotalConnections: h.ids.Load(), Subscriptions: subs, InterestBytes: interest,
		RateWaited: time.Duration(h.rateWaited.Load()),
		InputBytes: used, InputLimit: limit, InputWaiting: waiting,
		PendingBytes: h.pending.Load(), HeldBytes: h.held.Load(), Parked: h.parked.Load(), Stalls: h.stalls.Load(), Refusals: h.refusals.Load(), Violations: h.violations.Load(),
		Ended: make(map[Reason]uint64, len(h.ended)), Handshakes: maps.Clone(h.handshakes), Upgrades: maps.Clone(h.upgrades),
	}
	s.RateHeard, s.RateUnheard = h.quota.Heard(time.Now())
	for why, n := range h.ended {
		s.Ended[why] = n
	}
	for _, c := range h.conns {
		s.add(c)
		if c.web != nil {
			s.WebSockets++
		}
	}
	return s
}

// ConnStats is a snapshot of one connection.
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
	TLS           *TLSState // nil: plaintext
	User          string    // empty: there are no users, or it has not authenticated
	WebSocket     bool
}

// ConnStats returns a snapshot of every connection, in no particular order.
func (h *Hub) ConnStats() []ConnStats {
	conns := h.list()
	all := make([]ConnStats, 0, len(conns))
	for _, c := range conns {
		s := ConnStats{
			ID: c.id, Address: c.nc.RemoteAddr().String(), Born: c.born, Active: time.Unix(0, c.active.Load()),
			Subscriptions: c.subCount.Load(), PendingBytes: c.pending.Load(), TLS: c.tlsState.Load(), WebSocket: c.web != nil,
		}
		if is := c.identity.Load(); is != nil {
			s.User = is.Name
		}
		if about := c.connectOptions.Load(); about != nil {
			s.Name, s.Lang, s.Version = about.Name, about.Lang, about.Version
		}
		s.add(c)
		all = append(all, s)
	}
	return all
}

func (c *Conn) name() string {
	if about := c.connectOptions.Load(); about != nil {
		return about.Name
	}
	return ""
}
