package broker

import (
	"cmp"
	"encoding/json"
	"fmt"
	"net/http"
	"runtime"
	"slices"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/carillon-mq/carillon/broker/session"
)

// handler serves the three probes, the metrics, and what NATS tools look at.
func (b *Broker) handler() http.Handler {
	registry := prometheus.NewRegistry()
	registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}), metrics{b})
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", b.probe(b.readiness))
	mux.HandleFunc("GET /healthz/ready", b.probe(b.readiness))
	mux.HandleFunc("GET /healthz/startup", b.probe(func() string {
		if !b.recovered.Load() {
			return "recovering"
		}
		return ""
	}))
	mux.HandleFunc("GET /healthz/live", b.probe(func() string { return "" }))
	mux.Handle("GET /metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{MaxRequestsInFlight: 4}))
	mux.HandleFunc("GET /varz", func(w http.ResponseWriter, _ *http.Request) { reply(w, b.varz()) })
	mux.HandleFunc("GET /connz", b.connz)
	mux.HandleFunc("GET /topics", b.topicsz)
	return mux
}

func (b *Broker) readiness() string {
	switch {
	case b.ready.Load():
		return ""
	case !b.joined.Load():
		return "not joined: waiting for the coordinator at " + fmt.Sprint(b.config.Endpoints)
	}
	return "not ready: joining, or leaving"
}

func (b *Broker) probe(trouble func() string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		if why := trouble(); why != "" {
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(http.StatusServiceUnavailable)
			_ = json.NewEncoder(w).Encode(map[string]string{"status": "unavailable", "error": why})
			return
		}
		reply(w, map[string]string{"status": "ok"})
	}
}

func reply(w http.ResponseWriter, value any) {
	w.Header().Set("Content-Type", "application/json")
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	_ = e.Encode(value) // the client is gone if this fails
}

type varz struct {
	ServerID         string    `json:"server_id"`
	ServerName       string    `json:"server_name"`
	Version          string    `json:"version"`
	Carillon         string    `json:"carillon"`
	Go               string    `json:"go"`
	Cluster          string    `json:"cluster_name"`
	Zone             string    `json:"zone,omitempty"`
	Incarnation      int64     `json:"incarnation"`
	Ready            bool      `json:"ready"`
	Advertise        string    `json:"advertise"`
	AuthRequired     bool      `json:"auth_required"`
	MaxPayload       int       `json:"max_payload"`
	MaxConnections   int       `json:"max_connections"`
	MaxPending       int64     `json:"max_pending"`
	Profile          string    `json:"profile"`
	Start            time.Time `json:"start"`
	Now              time.Time `json:"now"`
	Uptime           string    `json:"uptime"`
	Memory           uint64    `json:"mem"` // bytes that Go has of the system
	Cores            int       `json:"cores"`
	GoMaxProcs       int       `json:"gomaxprocs"`
	Connections      int       `json:"connections"`
	TotalConnections uint64    `json:"total_connections"`
	Subscriptions    int       `json:"subscriptions"`
	InMsgs           uint64    `json:"in_msgs"`
	InBytes          uint64    `json:"in_bytes"`
	OutMsgs          uint64    `json:"out_msgs"`
	OutBytes         uint64    `json:"out_bytes"`
	SlowConsumers    uint64    `json:"slow_consumers"`
	PendingBytes     int64     `json:"pending_bytes"`
	Stalls           uint64    `json:"publisher_stalls"`
	Members          []member  `json:"members"`
	Routes           []routez  `json:"routes"`
}

type member struct {
	ID          string `json:"id"`
	Name        string `json:"name"`
	Client      string `json:"client"`
	Zone        string `json:"zone,omitempty"`
	Version     string `json:"version"`
	Incarnation int64  `json:"incarnation"`
}

type routez struct {
	ID       string `json:"id"`
	Name     string `json:"name"`
	Up       bool   `json:"up"`
	Since    string `json:"since"`
	RTT      string `json:"rtt,omitempty"`
	Pending  int    `json:"pending_bytes"`
	Patterns int64  `json:"patterns"`
	Groups   int64  `json:"groups"`
	InMsgs   uint64 `json:"in_msgs"`
	OutMsgs  uint64 `json:"out_msgs"`
	Lost     uint64 `json:"lost_msgs"`
	Error    string `json:"last_error,omitempty"`
}

func (b *Broker) varz() varz {
	s := b.hub.Stats()
	var memory runtime.MemStats
	runtime.ReadMemStats(&memory)
	now := time.Now()
	v := varz{
		ServerID: b.identity.ID, ServerName: b.config.Name, Version: ProtocolVersion, Carillon: b.config.Version, Go: runtime.Version(),
		Cluster: b.config.Cluster, Zone: b.config.Zone, Incarnation: b.incarnation.Load(), Ready: b.ready.Load(), Advertise: b.listening,
		AuthRequired: b.config.Auth.Required(), MaxPayload: b.config.Profile.Payload, MaxConnections: b.config.Profile.Connections,
		MaxPending: b.config.Profile.Pending, Profile: b.config.Profile.Name,
		Start: b.started, Now: now, Uptime: now.Sub(b.started).Round(time.Second).String(),
		Memory: memory.Sys, Cores: runtime.NumCPU(), GoMaxProcs: runtime.GOMAXPROCS(0),
		Connections: s.Connections, TotalConnections: s.TotalConnections, Subscriptions: s.Subscriptions,
		InMsgs: s.InMsgs, InBytes: s.InBytes, OutMsgs: s.OutMsgs, OutBytes: s.OutBytes,
		SlowConsumers: s.SlowConsumers(), PendingBytes: s.PendingBytes, Stalls: s.Stalls,
		Members: []member{}, Routes: []routez{},
	}
	b.mu.Lock()
	for _, m := range b.members {
		v.Members = append(v.Members, member{m.ID, m.Name, m.Client, m.Zone, m.Version, m.Incarnation})
	}
	b.mu.Unlock()
	if b.mesh == nil {
		return v
	}
	for _, p := range b.mesh.Stats().Peers {
		r := routez{
			ID: p.ID, Name: p.Name, Up: p.Up, Since: p.Since.Format(time.RFC3339), Pending: p.Pending, Patterns: p.Patterns, Groups: p.Groups,
			InMsgs: p.InMessages, OutMsgs: p.OutMessages, Lost: p.LostMessages, Error: p.LastError,
		}
		if p.RTT > 0 {
			r.RTT = p.RTT.String()
		}
		v.Routes = append(v.Routes, r)
	}
	return v
}

type conn struct {
	ID            uint64    `json:"cid"`
	Address       string    `json:"address"`
	Name          string    `json:"name,omitempty"`
	Lang          string    `json:"lang,omitempty"`
	Version       string    `json:"version,omitempty"`
	Start         time.Time `json:"start"`
	LastActivity  time.Time `json:"last_activity"`
	Subscriptions int64     `json:"subscriptions"`
	PendingBytes  int64     `json:"pending_bytes"`
	InMsgs        uint64    `json:"in_msgs"`
	InBytes       uint64    `json:"in_bytes"`
	OutMsgs       uint64    `json:"out_msgs"`
	OutBytes      uint64    `json:"out_bytes"`
}

// connzLimit is how many connections one page shows unless asked; connzMost, at most.
const (
	connzLimit = 1024
	connzMost  = 10_000
)

var connzOrder = map[string]func(a, b session.ConnStats) int{
	"cid":        func(a, b session.ConnStats) int { return cmp.Compare(a.ID, b.ID) },
	"subs":       func(a, b session.ConnStats) int { return cmp.Compare(b.Subscriptions, a.Subscriptions) },
	"pending":    func(a, b session.ConnStats) int { return cmp.Compare(b.PendingBytes, a.PendingBytes) },
	"msgs_to":    func(a, b session.ConnStats) int { return cmp.Compare(b.OutMsgs, a.OutMsgs) },
	"msgs_from":  func(a, b session.ConnStats) int { return cmp.Compare(b.InMsgs, a.InMsgs) },
	"bytes_to":   func(a, b session.ConnStats) int { return cmp.Compare(b.OutBytes, a.OutBytes) },
	"bytes_from": func(a, b session.ConnStats) int { return cmp.Compare(b.InBytes, a.InBytes) },
	"idle":       func(a, b session.ConnStats) int { return a.Active.Compare(b.Active) },
}

func (b *Broker) connz(w http.ResponseWriter, r *http.Request) {
	query := r.URL.Query()
	limit, err1 := number(query.Get("limit"), connzLimit)
	offset, err2 := number(query.Get("offset"), 0)
	order := connzOrder[cmp.Or(query.Get("sort"), "cid")]
	if err := cmp.Or(err1, err2); err != nil || order == nil {
		http.Error(w, "connz: limit and offset are numbers; sort is one of cid, subs, pending, msgs_to, msgs_from, bytes_to, bytes_from, idle", http.StatusBadRequest)
		return
	}
	all := b.hub.ConnStats()
	slices.SortFunc(all, order)
	page := all[min(offset, len(all)):]
	page = page[:min(limit, connzMost, len(page))]
	conns := make([]conn, 0, len(page))
	for _, c := range page {
		conns = append(conns, conn{
			c.ID, c.Address, c.Name, c.Lang, c.Version, c.Born, c.Active, c.Subscriptions, c.PendingBytes, c.InMsgs, c.InBytes, c.OutMsgs, c.OutBytes,
		})
	}
	reply(w, map[string]any{
		"server_id": b.identity.ID, "now": time.Now(), "total": len(all), "num_connections": len(conns), "offset": offset, "limit": limit, "connections": conns,
	})
}

func number(text string, otherwise int) (int, error) {
	if text == "" {
		return otherwise, nil
	}
	n, err := strconv.ParseUint(text, 10, 31)
	return int(n), err
}
