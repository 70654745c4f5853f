package route

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"time"
)

// causeUnreachable is the cause of every failure before the peer's hello. It is not counted as a
// refusal.
const causeUnreachable Cause = "unreachable"

func causeOf(err error) Cause {
	if r, ok := errors.AsType[*Refusal](err); ok {
		return r.Cause
	}
	return causeUnreachable
}

// jitter returns a random duration between d/2 and d, so that brokers do not dial at the same
// moments.
func jitter(d time.Duration) time.Duration { return d/2 + rand.N(d/2) }

// dial links with a member, and links again after each loss, until it is no member any more.
func (m *Mesh) dial(n *neighbour) {
	first := m.dialsFirst(n.id)
	pause := redialMin
	var next, began time.Time // of dial attempts
	for {
		m.mu.Lock()
		if m.closed || !n.member {
			n.dialling = false
			m.forgetLocked(n)
			m.mu.Unlock()
			return
		}
		if n.dialNow {
			n.dialNow = false
			pause = redialMin
			next = time.Time{}
			if !first {
				next = time.Now().Add(dialSecondAfter + jitter(redialMin))
			}
		}
		current, leaving, changed := n.link, n.leaving, n.changed
		target := Member{ID: n.id, Name: n.name, Route: n.address}
		m.mu.Unlock()

		if current != nil && current.alive() && (!first || !current.suspect.Load()) {
			select {
			case <-current.stop:
			case <-n.wake:
				continue
			case <-m.ctx.Done():
				continue
			}
			if time.Since(current.claimed) > steadyAfter {
				pause = redialMin
			}
			next = time.Now().Add(jitter(pause))
			if !first {
				next = next.Add(dialSecondAfter)
				m.probe(n, next)
			}
			pause = min(2*pause, redialMax)
			continue
		}
		if leaving {
			next = later(next, later(changed, began).Add(refusedPause))
		}
		if wait := time.Until(next); wait > 0 {
			m.pauseDial(n, wait)
			continue
		}

		began = time.Now()
		err := m.connect(n, target)
		if err == nil {
			continue
		}
		m.checkDeath(n, err)
		m.dialFailed(n, target, err)
		next = began.Add(jitter(pause))
		pause = min(2*pause, redialMax)
		switch causeOf(err) {
		case causeUnreachable, CauseMember, CauseLinked, CauseClosing, CauseTimeout:
		default:
			next = began.Add(jitter(2 * refusedPause))
		}
	}
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// pauseDial waits for d, or until the neighbour's state changes.
func (m *Mesh) pauseDial(n *neighbour, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-n.wake:
	case <-m.ctx.Done():
	}
}

// connect makes one attempt to link with a member.
func (m *Mesh) connect(n *neighbour, target Member) error {
	m.mu.Lock()
	n.attempts++
	m.mu.Unlock()

	ctx, cancel := context.WithTimeout(m.ctx, attemptTimeout)
	defer cancel()
	raw, err := m.open(ctx, target)
	if err != nil {
		return err
	}
	conn, in, peer, err := m.handshake(ctx, raw, target, m.own)
	if err == nil {
		if refused := m.claim(newLink(m, raw, conn, in, peer, true)); refused != nil {
			err = refused
		}
	}
	if err != nil {
		raw.Close()
	}
	return err
}

// open opens a connection to a member. It sends nothing.
func (m *Mesh) open(ctx context.Context, target Member) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, connectTimeout)
	defer cancel()
	raw, err := m.config.Dial(ctx, target.Route)
	if err != nil {
		return nil, fmt.Errorf("dial broker %q: %w", target.Name, err)
	}
	return raw, nil
}

// handshake exchanges hellos on a connection that this broker opened, after TLS if configured.
func (m *Mesh) handshake(ctx context.Context, raw net.Conn, target Member, own hello) (conn net.Conn, in *reader, peer hello, err error) {
	release := context.AfterFunc(ctx, func() { raw.Close() })
	defer release()
	conn = raw
	if m.config.ClientTLS != nil {
		host, _, err := net.SplitHostPort(target.Route)
		if err != nil {
			return nil, nil, hello{}, refuse(CauseIdentity, "the route address %q of broker %q is not host:port", target.Route, target.Name)
		}
		config := m.config.ClientTLS(host).Clone()
		config.DynamicRecordSizingDisabled = true
		secure := tls.Client(raw, config)
		if err := secure.HandshakeContext(ctx); err != nil {
			if ctx.Err() != nil {
				return nil, nil, hello{}, fmt.Errorf("TLS handshake with broker %q at %s: %w", target.Name, target.Route, ctx.Err())
			}
			return nil, nil, hello{}, refuse(CauseTLS, "TLS handshake with broker %q at %s: %v", target.Name, target.Route, err)
		}
		conn = secure
	}
	mine, err := jsonFrame(frameHello, own)
	if err != nil {
		return nil, nil, hello{}, err
	}
	if _, err := conn.Write(mine); err != nil {
		return nil, nil, hello{}, fmt.Errorf("write hello to broker %q at %s: %w", target.Name, target.Route, err)
	}
	in = newReader(conn)
	if peer, err = m.readHello(in, own.Kind); err != nil {
		return nil, nil, hello{}, fmt.Errorf("hello of broker %q at %s: %w", target.Name, target.Route, err)
	}
	if peer.ID != target.ID {
		return nil, nil, hello{}, refuse(CauseIdentity, "the address %s of broker %q (%s) is answered by broker %q (%s)", target.Route, target.Name, target.ID, peer.Name, peer.ID)
	}
	if !release() {
		return nil, nil, hello{}, ctx.Err()
	}
	return conn, in, peer, nil
}

// readHello reads the first frame of the peer and checks that the two may connect, for one of the
// given kinds.
func (m *Mesh) readHello(in *reader, kinds ...string) (hello, error) {
	t, body, err := in.one()
	if err != nil {
		return hello{}, err
	}
	switch t {
	case frameHello:
	case frameRefused:
		return hello{}, parseRefusal(body)
	default:
		return hello{}, refuse(CauseMalformed, "the first frame has type %d, not a hello", t)
	}
	peer, refused := parseHello(body)
	if refused == nil {
		refused = m.own.judge(peer, kinds...)
	}
	if refused != nil {
		return hello{}, refused
	}
	return peer, nil
}

// dialFailed records why there is no link. It logs a cause once until the cause changes.
func (m *Mesh) dialFailed(n *neighbour, target Member, err error) {
	if m.ctx.Err() != nil {
		return
	}
	cause := causeOf(err)
	m.mu.Lock()
	level := slog.LevelWarn
	if n.loggedCause == cause || n.leaving || cause == CauseLinked || cause == CauseClosing {
		level = slog.LevelDebug
	}
	n.loggedCause = cause
	if n.link == nil {
		n.lastErr, n.lastErrAt = err, time.Now()
	}
	if cause != causeUnreachable && cause != CauseLinked && cause != CauseClosing {
		m.refusals[cause]++
	}
	m.mu.Unlock()
	m.log.Log(context.Background(), level, "No link", "peer", target.Name, "id", target.ID, "address", target.Route, "cause", string(cause), "error", err)
}
