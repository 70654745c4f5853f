package monitoring

import (
	"runtime"
	"time"
)

// varz is the answer to /varz, with nats-server's fields where it has them.
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
	Loaded           time.Time `json:"config_load_time"` // the configuration is read at the start
	Now              time.Time `json:"now"`
	Uptime           string    `json:"uptime"`
	Memory           uint64    `json:"mem"` // bytes that Go has from the system
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
	Routes           int       `json:"routes"` // links that are up
	Proto            int       `json:"proto"`
	Host             string    `json:"host"`
	Port             int       `json:"port"`
	JetStream        struct {
		Config jetStreamConfig `json:"config"`
		Stats  jetStreamStats  `json:"stats"`
	} `json:"jetstream"`
	Members []member `json:"members"`
	Links   []link   `json:"links"`
}

type member struct {
	ID          string `json:"id"`
	Name        string `json:"name"`
	Client      string `json:"client"`
	Zone        string `json:"zone,omitempty"`
	Version     string `json:"version"`
	Incarnation int64  `json:"incarnation"`
}

// link is the link to another broker.
type link struct {
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

// Varz returns the status of the broker.
func (c *Config) Varz() any { return c.varz() }

func (c *Config) varz() varz {
	s := c.Clients.Stats()
	now := time.Now()
	v := varz{
		ServerID: c.ID, ServerName: c.Name, Version: c.Protocol, Carillon: c.Version, Go: runtime.Version(),
		Cluster: c.Cluster, Zone: c.Zone, Incarnation: c.Node.Incarnation(), Ready: c.Node.Ready(), Advertise: c.Advertise,
		AuthRequired: c.AuthRequired, MaxPayload: c.Profile.Payload, MaxConnections: c.Profile.Connections,
		MaxPending: c.Profile.Pending, Profile: c.Profile.Name,
		Start: c.Started, Loaded: c.Started, Now: now, Uptime: now.Sub(c.Started).Round(time.Second).String(),
		Memory: memory(), Cores: runtime.NumCPU(), GoMaxProcs: runtime.GOMAXPROCS(0),
		Connections: s.Connections, TotalConnections: s.TotalConnections, Subscriptions: s.Subscriptions,
		InMsgs: s.InMsgs, InBytes: s.InBytes, OutMsgs: s.OutMsgs, OutBytes: s.OutBytes,
		SlowConsumers: s.SlowConsumers(), PendingBytes: s.PendingBytes, Stalls: s.Stalls,
		Members: []member{}, Links: []link{}, Proto: 1,
	}
	v.Host, v.Port = splitAddress(c.Advertise)
	v.JetStream.Config, v.JetStream.Stats = noLimits, statsOf(c.JetStream.Served())
	for _, m := range c.Node.Members() {
		v.Members = append(v.Members, member{m.ID, m.Name, m.Client, m.Zone, m.Version, m.Incarnation})
	}
	if c.Routes == nil {
		return v
	}
	for _, p := range c.Routes.Stats().Peers {
		r := link{
			ID: p.ID, Name: p.Name, Up: p.Up, Since: p.Since.Format(time.RFC3339), Pending: p.Pending, Patterns: p.Patterns, Groups: p.Groups,
			InMsgs: p.InMessages, OutMsgs: p.OutMessages, Lost: p.LostMessages, Error: p.LastError,
		}
		if p.RTT > 0 {
			r.RTT = p.RTT.String()
		}
		if p.Up {
			v.Routes++
		}
		v.Links = append(v.Links, r)
	}
	return v
}
