package session

import (
	"bytes"
	"encoding/json"
	"strings"
	"time"

	"github.com/carillon-mq/carillon/broker/protocol"
	"github.com/carillon-mq/carillon/broker/subject"
)

// Headers of a message that asks for a trace: an account of where it goes.
const (
	traceDest = "Nats-Trace-Dest" // where the trace is sent
	traceOnly = "Nats-Trace-Only" // true: the message itself goes nowhere, and is not stored
	// traceDisabled is the destination that turns tracing off.
	traceDisabled = "trace disabled"
)

var traceMark = []byte("\n" + traceDest + ":")

// Kinds of connections in traces.
const (
	traceClient = 0
	traceRoute  = 1
)

// account is the name of nats-server's only account without configuration.
const account = "$G"

// traceEvent is a trace, with nats-server's fields. It has no events of other brokers.
type traceEvent struct {
	Server  traceServer  `json:"server"`
	Request traceRequest `json:"request"`
	Events  []traceStep  `json:"events"`
}

type traceServer struct {
	Name    string    `json:"name"`
	Host    string    `json:"host"`
	ID      string    `json:"id"`
	Cluster string    `json:"cluster,omitempty"`
	Version string    `json:"ver"`
	Time    time.Time `json:"time"`
}

type traceRequest struct {
	Header map[string][]string `json:"header"`
	Size   int                 `json:"msgsize"`
}

// traceStep is one step: a message comes in ("in"), is stored ("js") or goes out ("eg"). Nil fields
// are those of other steps.
type traceStep struct {
	Type    string    `json:"type"`
	Time    time.Time `json:"ts"`
	Kind    *int      `json:"kind,omitempty"`
	Client  *uint64   `json:"cid,omitempty"`
	Name    string    `json:"name,omitempty"`
	Account string    `json:"acc,omitempty"`
	To      string    `json:"subj,omitempty"`    // of "in"
	Pattern string    `json:"sub,omitempty"`     // of "eg"
	Queue   string    `json:"queue,omitempty"`   // of "eg"
	Stream  string    `json:"stream,omitempty"`  // of "js"
	Subject string    `json:"subject,omitempty"` // of "js"
}

// wantsTrace reports whether the message asks for a trace, and whether only for that. It costs one
// search in the header of messages that have one.
func wantsTrace(m *Message) (to []byte, only, wants bool) {
	if m.Header == 0 || !bytes.Contains(m.Data[:m.Header], traceMark) {
		return nil, false, false
	}
	header := protocol.Header(m.Data[:m.Header])
	to, _ = header.Get(traceDest)
	if len(to) == 0 || string(to) == traceDisabled {
		return nil, false, false
	}
	value, _ := header.Get(traceOnly)
	switch strings.ToLower(string(value)) {
	case "1", "true", "on":
		only = true
	}
	return to, only, true
}

// trace sends a trace of the message, and delivers the message unless only the trace is wanted.
func (c *Conn) trace(b *batch, m *Message, to []byte, only bool) {
	t := &tracing{at: time.Now().UTC()}
	in := t.step("in", traceClient, c.id, c.name())
	in.Account, in.To = account, string(m.Subject)
	t.match(b, m)
	if only {
		b.pickAll(m, t.picked)
	} else {
		b.picked = t.picked
		reached := b.publish(m)
		b.picked = nil
		if !reached && len(m.Reply) > 0 && c.noResponders {
			b.noResponders(m, protocol.AppendNoResponders(nil, m.Subject))
		}
	}
	if !subject.Valid(to) {
		return
	}
	host, _, _ := strings.Cut(c.hub.config.Advertise, ":")
	event := traceEvent{
		Server: traceServer{
			Name: c.hub.config.ServerName, Host: host, ID: c.hub.config.ServerID, Cluster: c.hub.config.Cluster,
			Version: c.hub.config.Version, Time: t.at,
		},
		Request: traceRequest{Header: map[string][]string{}, Size: len(m.Data)},
		Events:  t.steps,
	}
	for key, value := range protocol.Header(m.Data[:m.Header]).All() {
		event.Request.Header[string(key)] = append(event.Request.Header[string(key)], string(value))
	}
	data, err := json.Marshal(event)
	if err != nil {
		return // cannot be: the fields are plain
	}
	b.pause()
	behind := c.hub.Send([]Message{{Subject: bytes.Clone(to), Data: data}})
	b.behind.Join(behind)
	b.resume()
}

// pickAll calls picked with the receivers that queue groups would choose for a message.
func (b *batch) pickAll(m *Message, picked func(*Sub, *Peer, string)) {
	match := b.match(m.Route())
	for i := range match.Groups {
		g := &match.Groups[i]
		sub, peer, _ := g.Pick(func(*Sub) bool { return true })
		picked(sub, peer, g.Queue())
	}
}

// tracing gathers the steps of one message.
type tracing struct {
	at    time.Time
	steps []traceStep
}

// step adds a step and returns it, valid until the next one.
func (t *tracing) step(kind string, connection int, id uint64, name string) *traceStep {
	t.steps = append(t.steps, traceStep{Type: kind, Time: t.at, Kind: &connection, Client: &id, Name: name})
	return &t.steps[len(t.steps)-1]
}

// match adds the Topics and the receivers outside of queue groups.
func (t *tracing) match(b *batch, m *Message) {
	match := b.match(m.Route())
	for _, p := range match.Peers {
		if p.offer == nil {
			t.step("eg", traceRoute, 0, p.broker)
		} else if named, ok := p.offer.taker.(interface{ Name() string }); ok {
			t.steps = append(t.steps, traceStep{Type: "js", Time: t.at, Stream: named.Name(), Subject: string(m.Subject)})
		}
	}
	for _, leaf := range match.Leaves {
		for i := range b.hub.loops {
			for _, s := range leaf.Plain(i) {
				t.receiver(s)
			}
		}
		for _, s := range leaf.Counted() {
			if s.conn != b.origin || s.conn.echo {
				t.receiver(s)
			}
		}
	}
}

func (t *tracing) receiver(s *Sub) {
	one := t.step("eg", traceClient, s.conn.id, s.conn.name())
	one.Pattern = s.pattern
}

// picked adds the receiver that a queue group has chosen: a client, or another broker.
func (t *tracing) picked(s *Sub, p *Peer, queue string) {
	switch {
	case s != nil:
		one := t.step("eg", traceClient, s.conn.id, s.conn.name())
		one.Pattern, one.Queue = s.pattern, queue
	case p != nil:
		t.step("eg", traceRoute, 0, p.broker).Queue = queue
	}
}
