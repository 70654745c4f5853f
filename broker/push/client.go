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
	"strings"
	"sync"
	"sync/atomic"
	"time"

	_ "golang.org/x/crypto/x509roots/fallback" // the CAs where the system has none, as in the image

	"github.com/carillon-mq/carillon/broker/coordination"
)

// newTransport returns what requests are sent by, with a client certificate if there is one. It
// follows no redirects, keeps no cookies, and takes no proxy from the environment.
func newTransport(a *addresses, config *tls.Config, certificate *clientCertificate) *http.Transport {
	dialer := &net.Dialer{Timeout: dialTimeout, ControlContext: a.permit}
	return &http.Transport{
		DialContext:            dialer.DialContext,
		DialTLSContext:         (&tlsDialer{dialer.DialContext, config, certificate}).connect,
		MaxIdleConns:           idleConnections,
		MaxIdleConnsPerHost:    idlePerHost,
		IdleConnTimeout:        idleTimeout,
		MaxResponseHeaderBytes: answerHeader,
		DisableCompression:     true, // answers are read for people only
	}
}

// transports are what requests are sent by: one for all endpoints that are known by the system's
// CAs and the host of their URL and get no certificate, and one for each other way.
type transports struct {
	secrets   *secrets
	addresses *addresses
	plain     *http.Transport

	mu  sync.Mutex
	own map[coordination.PushTLS]*ownTransport // at most ownTransports
}

type ownTransport struct {
	*http.Transport
	changed changes // of its files
}

// changes is when the CAs, the client certificate and its key were changed.
type changes [3]time.Time

func newTransports(secrets *secrets, addresses *addresses) *transports {
	return &transports{secrets: secrets, addresses: addresses, plain: newTransport(addresses, &tls.Config{MinVersion: tls.VersionTLS12}, nil), own: map[coordination.PushTLS]*ownTransport{}}
}

// of returns what requests of an endpoint are sent by.
func (t *transports) of(push *coordination.Push) (*http.Transport, error) {
	if push.TLS == nil || *push.TLS == (coordination.PushTLS{}) {
		return t.plain, nil
	}
	var files [3]secret
	var changed changes
	for i, f := range [3]struct{ what, file string }{{"the CA of the endpoint", push.TLS.CA}, {"the client certificate", push.TLS.Certificate}, {"the key of the client certificate", push.TLS.Key}} {
		if f.file == "" {
			continue
		}
		var err error
		if files[i], err = t.secrets.read(f.what, f.file); err != nil {
			return nil, err
		}
		changed[i] = files[i].changed
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if found := t.own[*push.TLS]; found != nil && found.changed == changed {
		return found.Transport, nil
	} else if found != nil {
		found.CloseIdleConnections()
		delete(t.own, *push.TLS)
	}
	config, certificate, err := parse(push.TLS, files[0].value, files[1].value, files[2].value)
	if err != nil {
		return nil, err
	}
	if len(t.own) >= ownTransports {
		for _, other := range t.own {
			other.CloseIdleConnections()
		}
		clear(t.own)
	}
	made := newTransport(t.addresses, config, certificate)
	t.own[*push.TLS] = &ownTransport{made, changed}
	return made, nil
}

// parse returns how an endpoint is known, and the certificate that it gets; nil: none.
func parse(spec *coordination.PushTLS, ca, certificate, key []byte) (*tls.Config, *clientCertificate, error) {
	config := &tls.Config{ServerName: spec.ServerName, MinVersion: tls.VersionTLS12}
	if spec.CA != "" {
		config.RootCAs = x509.NewCertPool()
		if !config.RootCAs.AppendCertsFromPEM(ca) {
			return nil, nil, &MissingError{"the CA of the endpoint", "is no certificate in PEM"}
		}
	}
	if spec.Certificate == "" {
		return config, nil, nil
	}
	name, _, _ := strings.Cut(spec.Certificate, "_")
	pair, err := tls.X509KeyPair(certificate, key)
	if err != nil {
		return nil, nil, &MissingError{"the client certificate of Secret " + name, "can't be used with its key: " + oneLine(err.Error())}
	}
	return config, &clientCertificate{pair, name}, nil
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
	var via atomic.Pointer[asked]
	r = r.WithContext(httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{GotConn: func(i httptrace.GotConnInfo) {
		got := &asked{}
		if conn, ok := i.Conn.(*secured); ok {
			got = &conn.asked
		}
		via.Store(got)
	}}))
	got, err := with.transport.RoundTrip(r)
	if err != nil {
		return unanswered(ctx, err, timeout, via.Load())
	}
	defer got.Body.Close()
	if got.StatusCode == http.StatusSwitchingProtocols { // the body is the connection, which nothing bounds
		return judge(got.StatusCode, "", time.Now())
	}
	rest := time.AfterFunc(answerTime, cancel)
	defer rest.Stop()
	end := context.AfterFunc(ctx, func() { _ = got.Body.Close() }) // ends a Read, whatever the body is
	defer end()
	a := judge(got.StatusCode, got.Header.Get("Retry-After"), time.Now()).withBody(got.Body)
	if on := via.Load(); on != nil && a.kind != accepted {
		a.text = oneLine(on.explain(false, got.StatusCode, time.Now()), a.text)
	}
	return a
}

// unanswered returns the answer of a request that got none. via is nil if there was no connection.
// An endpoint that ends connections for want of a certificate is not broken by a record.
func unanswered(ctx context.Context, err error, timeout time.Duration, via *asked) answer {
	a := answer{kind: unavailable, took: via != nil, text: failure(ctx, err, timeout)}
	var shaking *askedError
	if errors.As(err, &shaking) {
		via = &shaking.asked
	}
	ended := alert(err)
	if ended != nil {
		a.took, a.text = false, ended.Error()
	}
	if via == nil || ctx.Err() != nil {
		return a
	}
	// A connection that ends without an alert may be broken by a record, whatever was asked for.
	if why := via.explain(ended != nil, 0, time.Now()); why != "" {
		a.text = oneLine(why, a.text)
	}
	return a
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
