package route

import (
	"cmp"
	"maps"
	"slices"
	"time"
)

// Stats is a snapshot of the mesh, for /varz, /metrics and the command line.
type Stats struct {
	Peers    []PeerStats // by name, then id
	Accepted uint64      // connections that became links
	Refused  map[Cause]uint64
}

// PeerStats is a snapshot of one other broker. Counters run for the lifetime of this process, over
// all connections to that broker.
type PeerStats struct {
	ID, Name, Address string
	Incarnation       int64
	Member            bool // according to membership
	Up                bool // linked, and each has the other's complete interest
	Leaving           bool // it announced that it leaves
	Dialed            bool // this broker opened the current connection
	Generation        uint64
	Attempts          uint64    // dials begun by this broker
	Since             time.Time // when Up last changed
	RTT               time.Duration
	Pending           int    // bytes queued for it or being written
	Patterns          int64  // plain patterns that it has interest in
	Groups            int64  // queue groups that it has members of
	InMessages        uint64 // received from it
	InBytes           uint64
	OutMessages       uint64 // written to it
	OutBytes          uint64
	LostMessages      uint64 // queued for it and dropped when a link ended
	Overflows         uint64 // links closed at the hard bound of pending bytes
	Oversize          uint64 // messages too large for the current link, dropped
	LastError         string // why there is no link; empty while Up
	LastErrorAt       time.Time
}

// Stats returns a snapshot of the mesh.
func (m *Mesh) Stats() Stats {
	m.mu.Lock()
	defer m.mu.Unlock()
	s := Stats{Accepted: m.accepted, Refused: maps.Clone(m.refusals)}
	for _, n := range m.neighbours {
		p := PeerStats{
			ID: n.id, Name: n.name, Address: n.address, Incarnation: n.incarnation, Member: n.member, Leaving: n.leaving,
			Generation: n.generation, Attempts: n.attempts, Since: n.changed,
			InMessages: n.traffic.inMessages.Load(), InBytes: n.traffic.inBytes.Load(),
			OutMessages: n.traffic.outMessages.Load(), OutBytes: n.traffic.outBytes.Load(),
			LostMessages: n.lost, Overflows: n.overflows,
		}
		if l := n.link; l != nil && l.alive() {
			p.Up, p.Dialed = l.up.Load(), l.dialed
			p.RTT, p.Pending = time.Duration(l.rtt.Load()), l.Pending()
			p.Patterns, p.Groups, p.Oversize = l.plain.Load(), l.groups.Load(), l.oversize.Load()
		}
		if n.lastErr != nil {
			p.LastError, p.LastErrorAt = n.lastErr.Error(), n.lastErrAt
		}
		s.Peers = append(s.Peers, p)
	}
	slices.SortFunc(s.Peers, func(a, b PeerStats) int {
		return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.ID, b.ID))
	})
	return s
}

// Linked returns the number of members with a link that is up, and of all members but this one.
func (m *Mesh) Linked() (up, members int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, n := range m.neighbours {
		if !n.member {
			continue
		}
		members++
		if n.link != nil && n.link.alive() && n.link.up.Load() {
			up++
		}
	}
	return up, members
}
