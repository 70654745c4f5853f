package route

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"log/slog"
	"net"
	"os"
	"syscall"
	"time"
)

// accept accepts connections until the mesh closes. The rooms of greeting bound the handshakes.
func (m *Mesh) accept() {
	pause := redialMin
	for {
		raw, err := m.config.Listener.Accept()
		if err != nil {
			if m.ctx.Err() != nil {
				return
			}
			// The usual cause is a lack of file descriptors, which passes when others are closed.
			m.log.Error("Could not accept a connection on the route port; trying again", "error", err)
			select {
			case <-time.After(pause):
			case <-m.ctx.Done():
				return
			}
			pause = min(2*pause, redialMax)
			continue
		}
		pause = redialMin
		guest := m.greeting.admit(raw)
		m.workers.Go(func() {
			carry, err := m.acceptHandshake(raw, guest)
			if m.greeting.leave(guest) && err != nil {
				err = refuse(CauseEvicted, "evicted for a newer connection: %d others are without an accepted hello", maxGreeting)
			}
			if err != nil {
				raw.Close()
				m.logRefusal(raw, err)
			}
			if carry != nil {
				carry()
			}
		})
	}
}

// acceptHandshake exchanges hellos on an accepted connection. carry is nil for a link, which claim
// has started. For a replication connection, carry serves it until it ends.
func (m *Mesh) acceptHandshake(raw net.Conn, guest *guest) (carry func(), err error) {
	ctx, cancel := context.WithTimeout(m.ctx, handshakeTimeout)
	defer cancel()
	release := context.AfterFunc(m.ctx, func() { raw.Close() })
	defer release()
	if err := raw.SetDeadline(time.Now().Add(handshakeTimeout)); err != nil {
		return nil, err
	}
	conn := raw
	if m.config.ServerTLS != nil {
		secure := tls.Server(raw, wholeRecords(m.config.ServerTLS()))
		if err := secure.HandshakeContext(ctx); err != nil {
			return nil, tlsRefusal(err)
		}
		conn = secure
		m.greeting.vouch(guest)
	}
	in := newReader(conn)
	kinds := []string{kindCore}
	if m.config.Replication != nil {
		kinds = append(kinds, kindReplication)
	}
	peer, err := m.readHello(in, kinds...)
	if err == nil {
		if refused := m.verifyMember(ctx, conn, peer); refused != nil {
			err = refused
		}
	}
	if err != nil {
		// A peer that sent a refusal needs no answer. A peer that this broker refuses gets the
		// reason.
		if r, ok := errors.AsType[*Refusal](err); ok {
			m.answerRefusal(conn, r)
		}
		return nil, err
	}
	own := m.own
	own.Kind = peer.Kind
	mine, err := jsonFrame(frameHello, own)
	if err != nil {
		return nil, err
	}
	if peer.Kind == kindReplication {
		if _, err := conn.Write(mine); err != nil {
			return nil, err
		}
		if err := raw.SetDeadline(time.Time{}); err != nil {
			return nil, err
		}
		return func() { m.serveReplication(raw, conn, in, peer) }, nil
	}
	l := newLink(m, raw, conn, in, peer, false)
	l.out.control(func(f *frames) { f.put(mine) })
	if !release() {
		return nil, m.ctx.Err()
	}
	if err := raw.SetDeadline(time.Time{}); err != nil {
		return nil, err
	}
	if refused := m.claim(l); refused != nil {
		// Without a deadline this write could block for good, so an error is ignored.
		_ = raw.SetDeadline(time.Now().Add(handshakeTimeout))
		m.answerRefusal(conn, refused)
		return nil, refused
	}
	m.mu.Lock()
	m.accepted++
	m.mu.Unlock()
	return nil, nil
}

// answerRefusal sends the reason of a refusal to the peer, shortened to fit a frame. Errors are
// ignored.
func (m *Mesh) answerRefusal(conn net.Conn, r *Refusal) {
	text := *r
	text.Text = text.Text[:min(len(text.Text), 512)]
	if frame, err := jsonFrame(frameRefused, text); err == nil {
		_, _ = conn.Write(frame) // The connection is closed next in any case.
	}
}

// wholeRecords returns a copy of config that sends full TLS records from the start, since links
// carry batches.
func wholeRecords(config *tls.Config) *tls.Config {
	config = config.Clone()
	config.DynamicRecordSizingDisabled = true
	if choose := config.GetConfigForClient; choose != nil {
		config.GetConfigForClient = func(info *tls.ClientHelloInfo) (*tls.Config, error) {
			chosen, err := choose(info)
			if chosen != nil {
				chosen = chosen.Clone()
				chosen.DynamicRecordSizingDisabled = true
			}
			return chosen, err
		}
	}
	return config
}

// tlsRefusal returns network errors and timeouts unchanged, and others as a Refusal with CauseTLS.
func tlsRefusal(err error) error {
	if isSilentClose(err) || errors.Is(err, os.ErrDeadlineExceeded) || errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	return refuse(CauseTLS, "TLS handshake: %v", err)
}

// isSilentClose reports whether err says that the other end closed the connection. Port probes
// connect and close without sending anything.
func isSilentClose(err error) bool {
	return errors.Is(err, io.EOF) || errors.Is(err, net.ErrClosed) || errors.Is(err, io.ErrClosedPipe) || errors.Is(err, syscall.ECONNRESET)
}

// logRefusal counts a failed handshake and logs each cause at most once per logEvery. Connections
// that the other end closed are neither counted nor logged.
func (m *Mesh) logRefusal(raw net.Conn, err error) {
	if m.ctx.Err() != nil || isSilentClose(err) {
		return
	}
	cause := CauseMalformed
	if r, ok := errors.AsType[*Refusal](err); ok {
		cause = r.Cause
	} else if t, ok := errors.AsType[net.Error](err); (ok && t.Timeout()) || errors.Is(err, context.DeadlineExceeded) {
		cause = CauseTimeout
	}
	level := slog.LevelWarn
	m.mu.Lock()
	if cause == CauseLinked || cause == CauseClosing || time.Since(m.loggedAt[cause]) < logEvery {
		level = slog.LevelDebug
	} else {
		m.loggedAt[cause] = time.Now()
	}
	m.refusals[cause]++
	count := m.refusals[cause]
	m.mu.Unlock()
	m.log.Log(context.Background(), level, "Refused a connection on the route port", "remote", raw.RemoteAddr().String(), "cause", string(cause), "error", err, "total", count)
}
