package push

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync"
	"time"
)

// clientCertificate is what brokers give to an endpoint that asks who they are.
type clientCertificate struct {
	tls.Certificate
	secret string // the name of its Secret
}

// tlsDialer makes connections over TLS. It knows which endpoints ask for a client certificate. An
// http.Transport does not tell that, and an endpoint of TLS 1.3 ends a connection without one only
// after the handshake. Some answer with a status instead.
type tlsDialer struct {
	dial        func(ctx context.Context, network, address string) (net.Conn, error)
	config      *tls.Config // without a name, that of the address is wanted
	certificate *clientCertificate
}

// secured is a connection over TLS. It is read and written at once, by one goroutine each.
type secured struct {
	*tls.Conn
	asked

	end   sync.Once
	ended chan struct{} // closed when a Read has failed
	why   error         // the alert by which the endpoint ended it, or nil; set before that
}

// Read notes the alert that ends the connection.
func (s *secured) Read(p []byte) (int, error) {
	n, err := s.Conn.Read(p)
	if err != nil {
		s.end.Do(func() {
			if op := alert(err); op != nil {
				s.why = op
			}
			close(s.ended)
		})
	}
	return n, err
}

// Write returns the alert that ended the connection instead of what came of it: a large request
// is still being written then.
func (s *secured) Write(p []byte) (int, error) {
	n, err := s.Conn.Write(p)
	if err != nil {
		late := time.NewTimer(alertTime)
		defer late.Stop()
		select {
		case <-s.ended:
			if s.why != nil {
				err = s.why
			}
		case <-late.C:
		}
	}
	return n, err
}

// asked is what an endpoint asked a broker for, and got.
type asked struct {
	certificate bool               // it asked for one
	given       *clientCertificate // nil: there is none
}

// askedError is the end of a handshake in which an endpoint asked for a client certificate.
type askedError struct {
	asked
	err error
}

func (e *askedError) Error() string { return e.err.Error() }
func (e *askedError) Unwrap() error { return e.err }

// connect is the DialTLSContext of an http.Transport.
func (d *tlsDialer) connect(ctx context.Context, network, address string) (net.Conn, error) {
	raw, err := d.dial(ctx, network, address)
	if err != nil {
		return nil, err
	}
	config := d.config.Clone()
	if config.ServerName == "" {
		if config.ServerName, _, err = net.SplitHostPort(address); err != nil {
			_ = raw.Close()
			return nil, err
		}
	}
	made := &secured{asked: asked{given: d.certificate}, ended: make(chan struct{})}
	config.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
		made.asked.certificate = true
		if d.certificate == nil {
			return &tls.Certificate{}, nil
		}
		return &d.certificate.Certificate, nil
	}
	made.Conn = tls.Client(raw, config)
	within, cancel := context.WithTimeoutCause(ctx, shakeTimeout, fmt.Errorf("no end of the TLS handshake within %s", shakeTimeout))
	defer cancel()
	if err := made.HandshakeContext(within); err != nil {
		_ = raw.Close()
		if within.Err() != nil {
			err = context.Cause(within)
		}
		if made.asked.certificate {
			err = &askedError{made.asked, err}
		}
		return nil, err
	}
	return made, nil
}

// alert returns the TLS alert by which an endpoint ended a connection, or nil.
func alert(err error) *net.OpError {
	if op := (*net.OpError)(nil); errors.As(err, &op) && op.Op == "remote error" {
		return op
	}
	return nil
}

// explain returns what a client certificate, or its absence, may have to do with a request that
// failed by a TLS alert, without an answer, or with an answer of this status; or "".
func (a asked) explain(alerted bool, status int, now time.Time) string {
	denied := status == http.StatusBadRequest || status == http.StatusUnauthorized || status == http.StatusForbidden
	switch {
	case !a.certificate || status != 0 && !denied:
	case a.given == nil:
		return "the endpoint asks for a client certificate and gets none (name a Secret with one in delivery.push.tls.certificateSecretRef)"
	case alerted || denied && now.After(a.given.Leaf.NotAfter):
		text := "the endpoint got the client certificate of Secret " + a.given.secret
		if now.After(a.given.Leaf.NotAfter) {
			text += ", which ended on " + a.given.Leaf.NotAfter.UTC().Format(time.DateTime)
		}
		return text
	}
	return ""
}
