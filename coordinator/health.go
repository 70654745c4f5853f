package coordinator

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus/promhttp"
)

const (
	// readyTimeout bounds the read that proves readiness; a kubelet waits a little longer.
	readyTimeout = 1500 * time.Millisecond
	// httpTimeout bounds each request on the health port.
	httpTimeout = 10 * time.Second
)

// serveHTTP serves health and metrics until the function that it returns is called.
func (m *member) serveHTTP(listen string) (stop func(), err error) {
	listener, err := net.Listen("tcp", listen)
	if err != nil {
		return nil, fmt.Errorf("listen for health and metrics: %w (choose another --http-listen)", err)
	}
	server := &http.Server{Handler: m.handler(), ReadTimeout: httpTimeout, WriteTimeout: httpTimeout, IdleTimeout: httpTimeout}
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			m.log.Error("health and metrics are no longer served", "error", err)
		}
	}()
	return func() { _ = server.Close(); <-done }, nil
}

func (m *member) handler() http.Handler {
	mux := http.NewServeMux()
	check := func(path string, ok func(context.Context) error) {
		mux.HandleFunc("GET "+path, func(w http.ResponseWriter, r *http.Request) {
			if err := ok(r.Context()); err != nil {
				http.Error(w, err.Error(), http.StatusServiceUnavailable)
				return
			}
			fmt.Fprintln(w, "ok")
		})
	}
	check("/healthz", m.ready)
	check("/healthz/ready", m.ready)
	check("/healthz/startup", m.begun)
	// Killing this process cures neither a lost quorum, nor a lost volume, nor absent peers.
	check("/healthz/live", func(context.Context) error { return nil })
	mux.Handle("GET /metrics", promhttp.Handler())
	return mux
}

// begun checks that etcd runs and answers its peers, with or without a quorum.
func (m *member) begun(context.Context) error {
	if m.running.Load() == nil {
		return fmt.Errorf("the member has not begun: %s", *m.waits.Load())
	}
	return nil
}

// ready checks that this member can answer for the quorum.
func (m *member) ready(ctx context.Context) error {
	s := m.running.Load()
	if s == nil {
		return m.begun(ctx)
	}
	return s.ready(ctx)
}

func (s *server) ready(ctx context.Context) error {
	select {
	case <-s.etcd.Server.StoppingNotify():
		return errors.New("the member is stopping")
	case <-s.etcd.Server.ReadyNotify():
	default:
		return errors.New("the member has not joined: too few of the others answer to elect a leader")
	}
	if s.etcd.Server.IsLearner() {
		return errors.New("the member is a learner, still copying from the others")
	}
	ctx, cancel := context.WithTimeout(ctx, readyTimeout)
	defer cancel()
	if err := s.etcd.Server.LinearizableReadNotify(ctx); err != nil {
		return fmt.Errorf("no quorum answers a read: %w", err)
	}
	return nil
}
