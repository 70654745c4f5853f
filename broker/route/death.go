package route

import (
	"context"
	"errors"
	"log/slog"
	"syscall"
	"time"
)

// endedExternally reports whether the link ended for a reason other than this broker's: not
// replaced, refused, overflowed or closed by it.
func (l *link) endedExternally() bool {
	for _, own := range []error{errReplaced, errOverflow, errClosing} {
		if errors.Is(l.err, own) {
			return false
		}
	}
	_, refused := errors.AsType[*Refusal](l.err)
	return !refused
}

// checkDeath calls Config.Dead if a failed dial proves that the member's process is dead: its link
// has ended and its kernel refuses the connection, so nothing listens there. This takes
// milliseconds, while the member's lease takes seconds to expire.
func (m *Mesh) checkDeath(n *neighbour, err error) {
	if !errors.Is(err, syscall.ECONNREFUSED) {
		return
	}
	m.mu.Lock()
	dead := n.linkLost && n.link == nil && n.member && n.linkedIncarnation == n.incarnation && !m.closed
	member := Member{ID: n.id, Name: n.name, Route: n.address, Incarnation: n.incarnation}
	level := slog.LevelWarn
	if dead {
		n.linkLost = false
	}
	if n.leaving {
		level = slog.LevelInfo
	}
	m.mu.Unlock()
	if dead {
		m.log.Log(context.Background(), level, "A broker is dead: it closed its link and refuses connections", "peer", member.Name, "id", member.ID, "incarnation", member.Incarnation)
		m.config.Dead(member)
	}
}

// probe looks for a dead process on behalf of the broker that dials second, until it is that
// broker's turn to dial. It tries several times, since a dying process may close its listener a
// little later than its link.
func (m *Mesh) probe(n *neighbour, until time.Time) {
	for ended := false; time.Until(until) > redialMin; {
		m.pauseDial(n, jitter(redialMin))
		m.mu.Lock()
		over := m.closed || !n.member || n.dialNow || n.link != nil && n.link.alive() || ended && !n.linkLost
		ended = n.linkLost && n.link == nil
		target := Member{ID: n.id, Name: n.name, Route: n.address}
		m.mu.Unlock()
		if over {
			return
		}
		if !ended {
			continue // The last link is not taken down yet.
		}
		ctx, cancel := context.WithDeadline(m.ctx, until)
		raw, err := m.open(ctx, target)
		cancel()
		if err == nil {
			raw.Close()
			continue
		}
		m.checkDeath(n, err)
	}
}

// Hushed returns a channel that gets a token when the members that Silent returns may have changed.
func (m *Mesh) Hushed() <-chan struct{} { return m.hushed }

// hush tells that the silent members may have changed.
func (m *Mesh) hush() {
	select {
	case m.hushed <- struct{}{}:
	default:
	}
}

// Silent returns the members from which nothing has been heard for silentAfter, among those with a
// link in their current incarnation. A silent member may be alive: this broker may be the one that
// is cut off.
func (m *Mesh) Silent() (silent []Member) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, n := range m.neighbours {
		if !n.member || m.closed || n.linkedIncarnation != n.incarnation {
			continue
		}
		if l := n.link; n.silent && (l == nil || !l.up.Load()) || l != nil && l.up.Load() && l.silent.Load() {
			silent = append(silent, Member{ID: n.id, Name: n.name, Route: n.address, Incarnation: n.incarnation})
		}
	}
	return silent
}
