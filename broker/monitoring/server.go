package monitoring

import (
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/carillon-mq/carillon/broker/activity"
	"github.com/carillon-mq/carillon/broker/coordination"
	"github.com/carillon-mq/carillon/broker/jetstream"
	"github.com/carillon-mq/carillon/broker/limits"
	"github.com/carillon-mq/carillon/broker/route"
	"github.com/carillon-mq/carillon/broker/session"
	"github.com/carillon-mq/carillon/broker/stall"
	"github.com/carillon-mq/carillon/broker/subscription"
	"github.com/carillon-mq/carillon/broker/topic"
	"github.com/carillon-mq/carillon/broker/view"
)

const (
	headerTime = 5 * time.Second  // to read a request's header; a probe's is one packet
	readTime   = 10 * time.Second // to read a whole request; none has a body
	// Metrics and /connz of 10,000 connections over a slow link.
	writeTime = 30 * time.Second
	idleTime  = time.Minute // of a kept connection; longer than the interval of probes and scrapes
	// headerBytes bounds a request's header, far above what probes and browsers send.
	headerBytes = 16 << 10
	// scrapes bounds concurrent scrapes: two Prometheus servers and two people.
	scrapes = 4
)

// Config describes the broker and the parts that are shown. All parts but Routes and Users are
// required.
type Config struct {
	ID, Name, Cluster, Zone string
	Version                 string // of the binary
	Protocol                string // the version of nats-server that clients see
	Advertise               string // the address for clients
	AuthRequired            bool
	Profile                 limits.Profile
	Started                 time.Time
	Endpoints               []string // of etcd

	Node    Node
	Clients Clients
	Routes  interface{ Stats() route.Stats }   // nil: a broker without links
	Users   interface{ Stale() time.Duration } // nil: they are not in etcd
	Topics  interface {
		Shards() []*topic.Shard
		State() *coordination.State
	}
	Subscriptions interface {
		List(shard string) []*subscription.Subscription
	}
	// Views returns what is known here of the views of a shard.
	Views     func(of *topic.ShardLeader) []view.Report
	Readers   *activity.Clients
	JetStream interface{ Served() jetstream.Served }
	Metrics   prometheus.Collector
	Logger    *slog.Logger
}

// Node is the broker's own state.
type Node interface {
	Ready() bool  // accepts clients
	Joined() bool // has registered
	Incarnation() int64
	Members() []coordination.Broker
	Stall() stall.Stall // of the disk
}

// Clients is the part of session.Hub that is shown.
type Clients interface {
	Stats() session.Stats
	ConnStats() []session.ConnStats
}

// Server serves HTTP until it is closed.
type Server struct {
	http http.Server
	done chan struct{}
}

// Start serves on ln. failed is called if serving ends with an error.
func Start(ln net.Listener, config Config, failed func(error)) *Server {
	s := &Server{done: make(chan struct{}), http: http.Server{
		Handler: config.handler(), ReadHeaderTimeout: headerTime, ReadTimeout: readTime, WriteTimeout: writeTime,
		IdleTimeout: idleTime, MaxHeaderBytes: headerBytes, ErrorLog: slog.NewLogLogger(config.Logger.Handler(), slog.LevelDebug),
	}}
	go func() {
		defer close(s.done)
		if err := s.http.Serve(ln); !errors.Is(err, http.ErrServerClosed) {
			failed(fmt.Errorf("serve HTTP: %w", err))
		}
	}()
	return s
}

// Close closes the listener and all connections.
func (s *Server) Close() {
	s.http.Close()
	<-s.done
}

func (c *Config) handler() http.Handler {
	registry := prometheus.NewRegistry()
	registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}), c.Metrics)
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", c.probe(c.unready))
	mux.HandleFunc("GET /healthz/ready", c.probe(c.unready))
	// The port is served once the logs are recovered.
	mux.HandleFunc("GET /healthz/startup", c.probe(healthy))
	mux.HandleFunc("GET /healthz/live", c.probe(healthy))
	mux.Handle("GET /metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{MaxRequestsInFlight: scrapes}))
	mux.HandleFunc("GET /varz", func(w http.ResponseWriter, _ *http.Request) { reply(w, c.varz()) })
	mux.HandleFunc("GET /connz", c.connz)
	for path, page := range map[string]func() any{"/subsz": c.Subsz, "/jsz": c.Jsz, "/routez": c.Routez, "/accountz": c.Accountz} {
		mux.HandleFunc("GET "+path, func(w http.ResponseWriter, _ *http.Request) { reply(w, page()) })
	}
	mux.HandleFunc("GET /topics", c.topicsz)
	return mux
}

// unready returns why the broker accepts no clients, or "".
func (c *Config) unready() string {
	switch {
	case c.Node.Ready():
		return ""
	case !c.Node.Joined():
		return "not joined: waiting for the coordinator at " + fmt.Sprint(c.Endpoints)
	}
	return "not ready: joining, or leaving"
}

func healthy() string { return "" }

// probe answers 503 with the reason while why returns one. A stalled disk and stale users are
// mentioned only: the broker serves on, or stops by itself.
func (c *Config) probe(why func() string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		if why := why(); why != "" {
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(http.StatusServiceUnavailable)
			_ = json.NewEncoder(w).Encode(map[string]string{"status": "unavailable", "error": why})
			return
		}
		answer := map[string]string{"status": "ok"}
		if stall := c.Node.Stall(); stall.What != "" {
			answer["disk"] = "stalled: " + stall.String()
		}
		if c.Users != nil {
			if stale := c.Users.Stale(); stale > 0 {
				answer["users"] = "may be stale: etcd is silent for " + stale.Round(time.Second).String()
			}
		}
		reply(w, answer)
	}
}

func reply(w http.ResponseWriter, value any) {
	w.Header().Set("Content-Type", "application/json")
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	_ = e.Encode(value) // fails only if the client is gone
}
