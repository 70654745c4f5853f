package monitoring

import (
	"cmp"
	"net"
	"runtime"
	"slices"
	"strconv"
	"time"

	"github.com/carillon-mq/carillon/broker/jetstream"
	"github.com/carillon-mq/carillon/broker/session"
)

// The pages of nats-server, with its fields. HTTP and requests to $SYS serve them.

// account is the name of nats-server's only account without configuration.
const account = "$G"

// accountz is the answer to /accountz: there is one account.
type accountz struct {
	ServerID string    `json:"server_id"`
	Now      time.Time `json:"now"`
	Accounts []string  `json:"accounts"`
}

// Accountz returns the accounts.
func (c *Config) Accountz() any { return accountz{c.ID, time.Now(), []string{account}} }

// accountStatz is the answer to requests about the traffic of accounts.
type accountStatz struct {
	ServerID string        `json:"server_id"`
	Now      time.Time     `json:"now"`
	Accounts []accountStat `json:"account_statz"`
}

type accountStat struct {
	Account          string    `json:"acc"`
	Name             string    `json:"name"`
	Connections      int       `json:"conns"`
	TotalConnections int       `json:"total_conns"`
	LeafNodes        int       `json:"leafnodes"`
	Subscriptions    int       `json:"num_subscriptions"`
	Sent             dataStats `json:"sent"`
	Received         dataStats `json:"received"`
	SlowConsumers    uint64    `json:"slow_consumers"`
}

// AccountStatz returns the traffic of the account.
func (c *Config) AccountStatz() any {
	s := c.Clients.Stats()
	return accountStatz{c.ID, time.Now(), []accountStat{{
		Account: account, Name: account, Connections: s.Connections, TotalConnections: s.Connections, Subscriptions: s.Subscriptions,
		Sent: dataStats{s.OutMsgs, s.OutBytes}, Received: dataStats{s.InMsgs, s.InBytes}, SlowConsumers: s.SlowConsumers(),
	}}}
}

// subsz is the answer to /subsz, without the subscriptions themselves.
type subsz struct {
	ServerID      string    `json:"server_id"`
	Now           time.Time `json:"now"`
	Subscriptions int       `json:"num_subscriptions"`
	Total         int       `json:"total"`
	Offset        int       `json:"offset"`
	Limit         int       `json:"limit"`
}

// Subsz returns the number of subscriptions.
func (c *Config) Subsz() any {
	return subsz{ServerID: c.ID, Now: time.Now(), Subscriptions: c.Clients.Stats().Subscriptions, Limit: connzLimit}
}

// apiStats are counters of the JetStream API.
type apiStats struct {
	Level  int    `json:"level"`
	Total  uint64 `json:"total"`
	Errors uint64 `json:"errors"`
}

// jetStreamStats is what the streams led by this broker use.
type jetStreamStats struct {
	Memory          uint64   `json:"memory"`
	Storage         uint64   `json:"storage"`
	ReservedMemory  uint64   `json:"reserved_memory"`
	ReservedStorage uint64   `json:"reserved_storage"`
	Accounts        int      `json:"accounts"`
	HAAssets        int      `json:"ha_assets"` // shards led with several replicas
	API             apiStats `json:"api"`
}

// jetStreamConfig has no limits: streams may use the whole volume.
type jetStreamConfig struct {
	MaxMemory  int64 `json:"max_memory"`
	MaxStorage int64 `json:"max_storage"`
}

// jsz is the answer to /jsz, about the streams that this broker leads.
type jsz struct {
	jetStreamStats
	ServerID  string          `json:"server_id"`
	Now       time.Time       `json:"now"`
	Config    jetStreamConfig `json:"config"`
	Streams   int             `json:"streams"`
	Consumers int             `json:"consumers"`
	Messages  uint64          `json:"messages"`
	Bytes     uint64          `json:"bytes"`
	Total     int             `json:"total"`
}

var noLimits = jetStreamConfig{-1, -1}

func statsOf(s jetstream.Served) jetStreamStats {
	return jetStreamStats{
		Memory: s.Memory, Storage: s.Storage, ReservedMemory: s.ReservedMemory, ReservedStorage: s.ReservedStorage,
		Accounts: 1, HAAssets: s.Replicated, API: apiStats{s.Level, s.Calls, s.Errors},
	}
}

// Jsz returns what JetStream serves here.
func (c *Config) Jsz() any {
	s := c.JetStream.Served()
	return jsz{
		jetStreamStats: statsOf(s), ServerID: c.ID, Now: time.Now(), Config: noLimits, Streams: s.Streams, Consumers: s.Consumers,
		Messages: s.Messages, Bytes: s.Memory + s.Storage, Total: 1,
	}
}

// routez is the answer to /routez.
type routez struct {
	ServerID   string    `json:"server_id"`
	ServerName string    `json:"server_name"`
	Now        time.Time `json:"now"`
	NumRoutes  int       `json:"num_routes"`
	Routes     []remote  `json:"routes"`
}

type remote struct {
	ID            int       `json:"rid"`
	RemoteID      string    `json:"remote_id"`
	RemoteName    string    `json:"remote_name"`
	DidSolicit    bool      `json:"did_solicit"`
	IP            string    `json:"ip"`
	Port          int       `json:"port"`
	Start         time.Time `json:"start"`
	RTT           string    `json:"rtt,omitempty"`
	Uptime        string    `json:"uptime"`
	PendingBytes  int       `json:"pending_size"`
	InMsgs        uint64    `json:"in_msgs"`
	OutMsgs       uint64    `json:"out_msgs"`
	InBytes       uint64    `json:"in_bytes"`
	OutBytes      uint64    `json:"out_bytes"`
	Subscriptions int64     `json:"subscriptions"`
}

// Routez returns the links that are up.
func (c *Config) Routez() any {
	now := time.Now()
	page := routez{ServerID: c.ID, ServerName: c.Name, Now: now, Routes: []remote{}}
	if c.Routes == nil {
		return page
	}
	for i, p := range c.Routes.Stats().Peers {
		if !p.Up {
			continue
		}
		host, port := splitAddress(p.Address)
		r := remote{
			ID: i + 1, RemoteID: p.ID, RemoteName: p.Name, DidSolicit: p.Dialed, IP: host, Port: port, Start: p.Since,
			Uptime: since(p.Since, now), PendingBytes: p.Pending, InMsgs: p.InMessages, OutMsgs: p.OutMessages,
			InBytes: p.InBytes, OutBytes: p.OutBytes, Subscriptions: p.Patterns + p.Groups,
		}
		if p.RTT > 0 {
			r.RTT = p.RTT.String()
		}
		page.Routes = append(page.Routes, r)
	}
	page.NumRoutes = len(page.Routes)
	return page
}

// statsz is the short status of a broker in answers to pings.
type statsz struct {
	Start               time.Time `json:"start"`
	Mem                 uint64    `json:"mem"`
	Cores               int       `json:"cores"`
	CPU                 float64   `json:"cpu"` // not measured
	Connections         int       `json:"connections"`
	TotalConnections    uint64    `json:"total_connections"`
	ActiveAccounts      int       `json:"active_accounts"`
	Subscriptions       int       `json:"subscriptions"`
	Sent                dataStats `json:"sent"`
	SentToClients       dataStats `json:"sent_to_clients"`
	Received            dataStats `json:"received"`
	ReceivedFromClients dataStats `json:"received_from_clients"`
	SlowConsumers       uint64    `json:"slow_consumers"`
	StalledClients      uint64    `json:"stalled_clients,omitempty"`
	Routes              []routeOf `json:"routes,omitempty"`
	ActiveServers       int       `json:"active_servers"`
	JetStream           struct {
		Config jetStreamConfig `json:"config"`
		Stats  jetStreamStats  `json:"stats"`
	} `json:"jetstream"`
	MaxProcs int `json:"gomaxprocs"`
}

type dataStats struct {
	Msgs  uint64 `json:"msgs"`
	Bytes uint64 `json:"bytes"`
}

func (d *dataStats) add(msgs, bytes uint64) { d.Msgs, d.Bytes = d.Msgs+msgs, d.Bytes+bytes }

type routeOf struct {
	ID       int       `json:"rid"`
	Name     string    `json:"name"`
	Sent     dataStats `json:"sent"`
	Received dataStats `json:"received"`
	Pending  int       `json:"pending"`
}

// Statsz returns the short status.
func (c *Config) Statsz() any {
	s := c.Clients.Stats()
	page := statsz{
		Start: c.Started, Mem: memory(), Cores: runtime.NumCPU(), Connections: s.Connections, TotalConnections: s.TotalConnections,
		ActiveAccounts: 1, Subscriptions: s.Subscriptions, SlowConsumers: s.SlowConsumers(), StalledClients: s.Stalls,
		SentToClients: dataStats{s.OutMsgs, s.OutBytes}, ReceivedFromClients: dataStats{s.InMsgs, s.InBytes},
		ActiveServers: max(len(c.Node.Members()), 1), MaxProcs: runtime.GOMAXPROCS(0),
	}
	page.Sent, page.Received = page.SentToClients, page.ReceivedFromClients
	page.JetStream.Config, page.JetStream.Stats = noLimits, statsOf(c.JetStream.Served())
	if c.Routes == nil {
		return page
	}
	for i, p := range c.Routes.Stats().Peers {
		page.Sent.add(p.OutMessages, p.OutBytes)
		page.Received.add(p.InMessages, p.InBytes)
		if p.Up {
			page.Routes = append(page.Routes, routeOf{i + 1, p.Name, dataStats{p.OutMessages, p.OutBytes}, dataStats{p.InMessages, p.InBytes}, p.Pending})
		}
	}
	return page
}

// memory returns the bytes that Go has from the system.
func memory() uint64 {
	var is runtime.MemStats
	runtime.ReadMemStats(&is)
	return is.Sys
}

// Healthz returns nats-server's answer about health, and why the broker is not ready.
func (c *Config) Healthz() any {
	if why := c.unready(); why != "" {
		return map[string]any{"status": "unavailable", "status_code": 503, "error": why}
	}
	return map[string]any{"status": "ok", "status_code": 200}
}

// ConnzQuery selects a page of connections.
type ConnzQuery struct {
	Sort   string `json:"sort"`  // empty: cid
	Limit  int    `json:"limit"` // 0: connzLimit
	Offset int    `json:"offset"`
}

// connz is the answer to /connz.
type connz struct {
	ServerID string    `json:"server_id"`
	Now      time.Time `json:"now"`
	Count    int       `json:"num_connections"`
	Total    int       `json:"total"`
	Offset   int       `json:"offset"`
	Limit    int       `json:"limit"`
	Conns    []conn    `json:"connections"`
}

// Connz returns a page of connections, or nil for an unknown order.
func (c *Config) Connz(q ConnzQuery) any {
	order := connzOrder[cmp.Or(q.Sort, "cid")]
	if order == nil {
		return nil
	}
	all := c.Clients.ConnStats()
	slices.SortFunc(all, order)
	limit, offset := min(cmp.Or(max(q.Limit, 0), connzLimit), connzMost), min(max(q.Offset, 0), len(all))
	page := all[offset:]
	page = page[:min(limit, len(page))]
	now := time.Now()
	conns := make([]conn, 0, len(page))
	for i := range page {
		conns = append(conns, connOf(&page[i], now))
	}
	return connz{c.ID, now, len(conns), len(all), max(q.Offset, 0), limit, conns}
}

func connOf(s *session.ConnStats, now time.Time) conn {
	host, port := splitAddress(s.Address)
	var secure session.TLSState
	if s.TLS != nil {
		secure = *s.TLS
	}
	kind := "nats"
	if s.WebSocket {
		kind = "websocket"
	}
	return conn{
		TLSVersion: secure.Version, TLSCipher: secure.CipherSuite,
		ID: s.ID, Kind: "Client", Type: kind, Account: account, Address: s.Address, IP: host, Port: port, Name: s.Name, Lang: s.Lang, Version: s.Version,
		Start: s.Born, LastActivity: s.Active, Uptime: since(s.Born, now), Idle: since(s.Active, now),
		Subscriptions: s.Subscriptions, PendingBytes: s.PendingBytes,
		InMsgs: s.InMsgs, InBytes: s.InBytes, OutMsgs: s.OutMsgs, OutBytes: s.OutBytes,
	}
}

func since(start, now time.Time) string { return max(now.Sub(start), 0).Truncate(time.Second).String() }

func splitAddress(address string) (host string, port int) {
	host, text, err := net.SplitHostPort(address)
	if err != nil {
		return address, 0
	}
	port, _ = strconv.Atoi(text)
	return host, port
}
