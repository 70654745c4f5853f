package push

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	_ "golang.org/x/crypto/x509roots/fallback" // the CAs where the system has none, as in the image

	"github.com/carillon-mq/carillon/broker/coordination"
)

// newTransport returns what requests are sent by. It follows no redirects, keeps no cookies, and
// takes no proxy from the environment.
func newTransport(a *addresses) *http.Transport {
	dialer := &net.Dialer{Timeout: dialTimeout, ControlContext: a.permit}
	return &http.Transport{
		DialContext:            dialer.DialContext,
		TLSHandshakeTimeout:    shakeTimeout,
		MaxIdleConns:           idleConnections,
		MaxIdleConnsPerHost:    idlePerHost,
		IdleConnTimeout:        idleTimeout,
		MaxResponseHeaderBytes: answerHeader,
		DisableCompression:     true, // answers are read for people only
	}
}

// transports are what requests are sent by: one for all endpoints that are known by the system's
// CAs and the host of their URL, and one for each other way.
type transports struct {
	secrets   *secrets
	addresses *addresses
	plain     *http.Transport

	mu  sync.Mutex
	own map[coordination.PushTLS]*ownTransport // at most ownTransports
}

type ownTransport struct {
	*http.Transport
	changed time.Time // of its CAs
}

func newTransports(secrets *secrets, addresses *addresses) *transports {
	return &transports{secrets: secrets, addresses: addresses, plain: newTransport(addresses), own: map[coordination.PushTLS]*ownTransport{}}
}

// of returns what requests of an endpoint are sent by.
func (t *transports) of(push *coordination.Push) (*http.Transport, error) {
	if push.TLS == nil || *push.TLS == (coordination.PushTLS{}) {
		return t.plain, nil
	}
	var ca secret
	var roots *x509.CertPool
	if push.TLS.CA != "" {
		var err error
		if ca, err = t.secrets.read("the CA of the endpoint", push.TLS.CA); err != nil {
			return nil, err
		}
		roots = x509.NewCertPool()
		if !roots.AppendCertsFromPEM(ca.value) {
			return nil, &MissingError{"the CA of the endpoint", "is no certificate in PEM"}
		}
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if found := t.own[*push.TLS]; found != nil && found.changed.Equal(ca.changed) {
		return found.Transport, nil
	} else if found != nil {
		found.CloseIdleConnections()
		delete(t.own, *push.TLS)
	}
	if len(t.own) >= ownTransports {
		for _, other := range t.own {
			other.CloseIdleConnections()
		}
		clear(t.own)
	}
	made := newTransport(t.addresses)
	made.TLSClientConfig = &tls.Config{RootCAs: roots, ServerName: push.TLS.ServerName, MinVersion: tls.VersionTLS12}
	t.own[*push.TLS] = &ownTransport{made, ca.changed}
	return made, nil
}

// close closes the connections that no request uses.
func (t *transports) close() {
	t.plain.CloseIdleConnections()
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, other := range t.own {
		other.CloseIdleConnections()
	}
}

// prepared is what a request needs that may be missing.
type prepared struct {
	transport *http.Transport
	headers   []coordination.PushHeader
}

// prepare returns what requests of an endpoint need, or a *MissingError.
func (s *Service) prepare(push *coordination.Push) (prepared, error) {
	transport, err := s.transports.of(push)
	if err != nil {
		return prepared{}, err
	}
	headers := push.Headers
	for i, h := range headers {
		if h.File == "" {
			continue
		}
		if &headers[0] == &push.Headers[0] {
			headers = slices.Clone(headers)
		}
		if headers[i].Value, err = s.secrets.header(h.Name, h.File); err != nil {
			return prepared{}, err
		}
	}
	return prepared{transport, headers}, nil
}

// post sends one request and judges its answer. It returns within the timeout, and a little later
// if the broker has much to do.
func (s *Service) post(ctx context.Context, push *coordination.Push, with prepared, header http.Header, body []byte) answer {
	timeout := push.Timeout
	if timeout == 0 {
		timeout = defaultTimeout
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, push.URL, bytes.NewReader(body))
	if err != nil {
		return answer{kind: unavailable, text: oneLine(err.Error())}
	}
	r.Header = header
	header.Set("User-Agent", "carillon")
	for _, h := range with.headers {
		header.Set(h.Name, h.Value)
	}
	var connected atomic.Bool
	r = r.WithContext(httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{GotConn: func(httptrace.GotConnInfo) { connected.Store(true) }}))
	got, err := with.transport.RoundTrip(r)
	if err != nil {
		return answer{kind: unavailable, took: connected.Load(), text: failure(ctx, err, timeout)}
	}
	defer got.Body.Close()
	if got.StatusCode == http.StatusSwitchingProtocols { // the body is the connection, which nothing bounds
		return judge(got.StatusCode, "", time.Now())
	}
	rest := time.AfterFunc(answerTime, cancel)
	defer rest.Stop()
	end := context.AfterFunc(ctx, func() { _ = got.Body.Close() }) // ends a Read, whatever the body is
	defer end()
	return judge(got.StatusCode, got.Header.Get("Retry-After"), time.Now()).withBody(got.Body)
}

// failure returns what people read of a request without an answer.
func failure(ctx context.Context, err error, timeout time.Duration) string {
	var refused *AddressError
	switch {
	case errors.As(err, &refused):
		return refused.Error()
	case ctx.Err() != nil && errors.Is(ctx.Err(), context.DeadlineExceeded):
		return fmt.Sprintf("no answer within %s", timeout)
	}
	var at *url.Error
	if errors.As(err, &at) {
		err = at.Err
	}
	return oneLine(err.Error())
}
