package system

import (
	"bytes"
	"encoding/json"
	"log/slog"
	"strings"
	"sync/atomic"
	"time"

	"github.com/carillon-mq/carillon/broker/coordination"
	"github.com/carillon-mq/carillon/broker/identity"
	"github.com/carillon-mq/carillon/broker/monitoring"
	"github.com/carillon-mq/carillon/broker/protocol"
	"github.com/carillon-mq/carillon/broker/work"
)

// prefix is the prefix of all requests.
const prefix = "$SYS.REQ."

// Subjects are those of the requests that are answered.
var Subjects = []string{prefix + "SERVER.PING", prefix + "SERVER.*.*", prefix + "ACCOUNT.PING.*", prefix + "USER.INFO"}

// Hub is the clients and links of this broker.
type Hub interface {
	Send(messages []protocol.Message) work.Behind
	Forward(broker string, m *protocol.Message) (linked bool, behind work.Behind)
	// Identity returns who a client is; nil: there are no users.
	Identity(client uint64) *identity.Identity
}

// Pages are what is told of this broker. *monitoring.Config implements it.
type Pages interface {
	Statsz() any
	Varz() any
	Connz(monitoring.ConnzQuery) any
	Subsz() any
	Jsz() any
	Routez() any
	Accountz() any
	AccountStatz() any
	Healthz() any
}

// Config configures a Server.
type Config struct {
	ID, Name, Cluster, Host string // of this broker
	Version                 string // of nats-server, as clients see it
	Payload                 int    // largest answer in bytes
	Hub                     Hub
	Pages                   Pages
	Members                 func() []coordination.Broker
	Logger                  *slog.Logger
}

// Server answers requests. It is a session.Taker.
type Server struct {
	config Config
	jobs   *work.Jobs
	seq    atomic.Uint64
}

// New returns a Server. Close ends it.
func New(config Config) *Server {
	return &Server{config: config, jobs: work.NewJobs(atOnce, waiting, waitingBytes)}
}

// Close drops what waits.
func (s *Server) Close() { s.jobs.Close() }

// Wait returns at once.
func (s *Server) Wait() {}

// Take takes requests.
func (s *Server) Take(messages []protocol.Message, _ protocol.Memory, forwarded bool) (behind bool) {
	for i := range messages {
		s.take(&messages[i], nil, forwarded)
	}
	return false
}

// TakeOf takes requests of a client of this broker.
func (s *Server) TakeOf(client uint64, messages []protocol.Message, _ protocol.Memory, _ *work.Behind) {
	is := s.config.Hub.Identity(client)
	for i := range messages {
		s.take(&messages[i], is, false)
	}
}

// filter selects the servers that answer a request to all.
type filter struct {
	Name    string `json:"server_name"`
	Cluster string `json:"cluster"`
	Host    string `json:"host"`
	Exact   bool   `json:"exact_match"`
}

func (f *filter) matches(c *Config) bool {
	match := strings.Contains
	if f.Exact {
		match = func(s, want string) bool { return want == "" || s == want }
	}
	return match(c.Name, f.Name) && match(c.Cluster, f.Cluster) && match(c.Host, f.Host)
}

// take takes one request. is is who made it; nil: not known, or there are no users.
func (s *Server) take(m *protocol.Message, is *identity.Identity, forwarded bool) {
	if len(m.Reply) == 0 || len(m.Data) > requestBytes {
		return
	}
	rest, _ := bytes.CutPrefix(m.Subject, []byte(prefix))
	group, rest, _ := bytes.Cut(rest, []byte("."))
	to, kind, some := bytes.Cut(rest, []byte("."))
	if !some {
		kind = []byte("STATSZ") // $SYS.REQ.SERVER.PING
	}
	name := string(kind)
	switch string(group) {
	case "USER":
		name = "USER.INFO"
	case "ACCOUNT":
		name = "ACCOUNT." + name
	}
	all := string(to) == "PING"
	switch {
	case string(group) == "USER": // the client's own broker answers
	case forwarded:
		if !all && string(to) != s.config.ID {
			return
		}
	case all:
		for _, other := range s.config.Members() {
			if other.ID != s.config.ID {
				s.config.Hub.Forward(other.ID, m)
			}
		}
	case string(to) != s.config.ID:
		if s.isMember(string(to)) {
			s.config.Hub.Forward(string(to), m)
		}
		return
	}
	reply := bytes.Clone(m.Reply)
	_, payload := protocol.SplitData(bytes.Clone(m.Data), m.Header)
	s.jobs.Submit(func() { s.serve(name, all, is, reply, payload) }, len(payload)+len(reply)+len(name))
}

func (s *Server) isMember(id string) bool {
	for _, other := range s.config.Members() {
		if other.ID == id {
			return true
		}
	}
	return false
}

// about is the part of an answer that names the broker.
type about struct {
	Name      string    `json:"name"`
	Host      string    `json:"host"`
	ID        string    `json:"id"`
	Cluster   string    `json:"cluster,omitempty"`
	Version   string    `json:"ver"`
	JetStream bool      `json:"jetstream"`
	Flags     uint64    `json:"flags"`
	Seq       uint64    `json:"seq"` // counts this broker's answers
	Time      time.Time `json:"time"`
}

// jetStreamFlag says among the flags that a server has JetStream.
const jetStreamFlag = 1

// problem is an error in an answer.
type problem struct {
	Code        int    `json:"code"`
	Description string `json:"description"`
}

type answer struct {
	Server about    `json:"server"`
	Stats  any      `json:"statsz,omitempty"`
	Data   any      `json:"data,omitempty"`
	Error  *problem `json:"error,omitempty"`
}

// serve answers a request, unless it is for other servers.
func (s *Server) serve(kind string, all bool, is *identity.Identity, reply, payload []byte) {
	c := &s.config
	if all && len(bytes.TrimSpace(payload)) > 0 {
		var f filter
		if err := json.Unmarshal(payload, &f); err != nil {
			s.send(reply, answer{Error: &problem{400, err.Error()}})
			return
		}
		if !f.matches(c) {
			return
		}
	}
	switch kind {
	case "STATSZ":
		s.send(reply, answer{Stats: c.Pages.Statsz()})
	case "USER.INFO":
		s.send(reply, answer{Data: describe(is)})
	case "IDZ":
		s.sendJSON(reply, map[string]string{"name": c.Name, "host": c.Host, "id": c.ID})
	default:
		data, err := s.page(kind, payload)
		s.send(reply, answer{Data: data, Error: err})
	}
}

// page returns the page that a request names.
func (s *Server) page(kind string, payload []byte) (any, *problem) {
	pages := s.config.Pages
	switch kind {
	case "VARZ":
		return pages.Varz(), nil
	case "CONNZ", "ACCOUNT.CONNZ":
		var q monitoring.ConnzQuery
		if len(bytes.TrimSpace(payload)) > 0 {
			if err := json.Unmarshal(payload, &q); err != nil {
				return nil, &problem{400, err.Error()}
			}
		}
		if page := pages.Connz(q); page != nil {
			return page, nil
		}
		return nil, &problem{400, "connections can't be sorted by " + q.Sort}
	case "ACCOUNT.STATZ":
		return pages.AccountStatz(), nil
	case "SUBSZ":
		return pages.Subsz(), nil
	case "JSZ":
		return pages.Jsz(), nil
	case "ROUTEZ":
		return pages.Routez(), nil
	case "ACCOUNTZ":
		return pages.Accountz(), nil
	case "HEALTHZ":
		return pages.Healthz(), nil
	case "GATEWAYZ":
		return map[string]any{"server_id": s.config.ID, "now": time.Now(), "outbound_gateways": struct{}{}, "inbound_gateways": struct{}{}}, nil
	case "LEAFZ":
		return map[string]any{"server_id": s.config.ID, "now": time.Now(), "leafnodes": 0, "leafs": []any{}}, nil
	}
	return nil, &problem{501, kind + " is not served by Carillon"}
}

func (s *Server) send(reply []byte, a answer) {
	c := &s.config
	a.Server = about{
		Name: c.Name, Host: c.Host, ID: c.ID, Cluster: c.Cluster, Version: c.Version, JetStream: true, Flags: jetStreamFlag,
		Seq: s.seq.Add(1), Time: time.Now().UTC(),
	}
	s.sendJSON(reply, a)
}

func (s *Server) sendJSON(reply []byte, what any) {
	data, err := json.Marshal(what)
	if a, is := what.(answer); is && s.config.Payload > 0 && len(data) > s.config.Payload {
		a.Data, a.Stats, a.Error = nil, nil, &problem{413, "the answer is larger than a message may be (ask for less with limit)"}
		data, err = json.Marshal(a)
	}
	if err != nil { // cannot be: the fields are plain
		s.config.Logger.Error("Could not encode an answer to a tool", "error", err)
		return
	}
	s.config.Hub.Send([]protocol.Message{{Subject: reply, Data: data}})
}
