package push

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"time"

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

// post sends one request and judges its answer. It returns within the timeout, and a little later
// if the broker has much to do.
func (s *Service) post(ctx context.Context, push *coordination.Push, header http.Header, body []byte) answer {
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
	for _, h := range push.Headers {
		header.Set(h.Name, h.Value)
	}
	got, err := s.transport.RoundTrip(r)
	if err != nil {
		return answer{kind: unavailable, text: failure(ctx, err, timeout)}
	}
	defer got.Body.Close()
	rest := time.AfterFunc(answerTime, cancel)
	defer rest.Stop()
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
