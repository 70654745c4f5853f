package world

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/carillon-mq/carillon/broker/protocol"
	"github.com/carillon-mq/carillon/broker/publish"
	"github.com/carillon-mq/carillon/broker/route"
	"github.com/carillon-mq/carillon/broker/session"
	"github.com/carillon-mq/carillon/broker/subject"
	"github.com/carillon-mq/carillon/internal/testutil"
)

// hub is the clients' side of a process: it passes what clients publish to the Taker that offered
// the subject, and returns the answers.
type hub struct {
	life   *life
	mu     sync.Mutex
	offers []*offer
	boxes  map[string]*box  // by reply subject
	pulls  map[string]*pull // by inbox
}

type offer struct {
	hub      *hub
	taker    publish.Taker
	patterns []string
}

// box receives the answer to one message.
type box struct {
	client *client
	op     *operation
}

func newHub(l *life) *hub { return &hub{life: l, boxes: map[string]*box{}, pulls: map[string]*pull{}} }

func (h *hub) Offer(t publish.Taker) publish.Offer {
	h.mu.Lock()
	defer h.mu.Unlock()
	o := &offer{hub: h, taker: t}
	h.offers = append(h.offers, o)
	return o
}

func (o *offer) Set(patterns []string) {
	o.hub.mu.Lock()
	defer o.hub.mu.Unlock()
	o.patterns = slices.Clone(patterns)
}

func (o *offer) Close() {
	o.hub.mu.Lock()
	defer o.hub.mu.Unlock()
	o.hub.offers = slices.DeleteFunc(o.hub.offers, func(other *offer) bool { return other == o })
}

func (h *hub) Send(messages []protocol.Message) {
	if h.life.dead.Load() {
		return
	}
	for i := range messages {
		reply, text := string(messages[i].Subject), string(messages[i].Data)
		h.mu.Lock()
		b := h.boxes[reply]
		h.mu.Unlock()
		if b == nil {
			continue
		}
		w := h.life.m.w
		w.after(w.delay(wireMin, wireMax), fmt.Sprintf("%s answers %s: %s", h.life, reply, text), func() { b.client.answered(b.op, text) })
	}
}

func (h *hub) Interested([]byte) bool { return true }
func (h *hub) Wait()                  {}

// Forward is called for brokers of an earlier version. No broker of a world is one.
func (h *hub) Forward(string, *protocol.Message) bool { return false }

// publish is one read of a client's connection. Like a connection, it blocks while too many
// messages wait.
func (h *hub) publish(messages []protocol.Message) (taken bool) {
	h.mu.Lock()
	offers := slices.Clone(h.offers)
	h.mu.Unlock()
	var behind []publish.Taker
	for _, o := range offers {
		var mine []protocol.Message
		for i := range messages {
			if slices.ContainsFunc(o.patterns, func(p string) bool { return subject.Matches([]byte(p), messages[i].Subject) }) {
				mine = append(mine, messages[i])
			}
		}
		if len(mine) > 0 {
			taken = true
			memory := testutil.LendMessages(mine)
			if o.taker.Take(mine, memory, false) {
				behind = append(behind, o.taker)
			}
			memory.Release()
		}
	}
	for _, t := range behind {
		t.Wait()
	}
	return taken
}

// noClients is a hub, as links see it, without subscriptions.
type noClients struct{}

func (noClients) Attach(session.Link, string) (route.ClientSide, []session.Interest) {
	return noClients{}, nil
}
func (noClients) SetInterest(session.Interest)            {}
func (noClients) Deliver(*session.Message, session.Reach) {}
func (noClients) Flush()                                  {}
func (noClients) Wait()                                   {}
func (noClients) Detach()                                 {}

// codec encodes answers as text, where JetStream uses JSON.
type codec struct{}

const (
	headerID        = "Id"
	headerLast      = "Last"
	headerBySubject = "Last-By-Subject"
)

func (codec) Conditions(header []byte) (c publish.Conditions, refusal error) {
	if len(header) == 0 {
		return c, nil
	}
	h := protocol.Header(header)
	c.ID, _ = h.Get(headerID)
	if value, ok := h.Get(headerLast); ok {
		if c.ExpectedLast, refusal = strconv.ParseUint(string(value), 10, 64); refusal != nil {
			return c, refusal
		}
		c.ExpectsLast = true
	}
	if value, ok := h.Get(headerBySubject); ok {
		if c.ExpectedLastBySubject, refusal = strconv.ParseUint(string(value), 10, 64); refusal != nil {
			return c, refusal
		}
		c.ExpectsLastBySubject = true
	}
	return c, nil
}

func (codec) AppendAck(dst []byte, shard string, a publish.Ack) []byte {
	if a.Duplicate {
		return fmt.Appendf(dst, "dup %s %d", shard, a.Offset)
	}
	return fmt.Appendf(dst, "ack %s %d", shard, a.Offset)
}

func (codec) Part([]byte) (p publish.Part, ok bool)                            { return p, false }
func (codec) Counter(_, _ []byte) (total, sources []byte, ok bool)             { return nil, nil, false }
func (codec) AppendCounter(dst, _ []byte, _, _ string, _ []byte) ([]byte, int) { return dst, 0 }
func (codec) CounterSource(_ []byte, _, _, _ string) (updated []byte, before string, ok bool) {
	return nil, "", false
}
func (codec) AppendCommit(dst, header []byte) []byte { return append(dst, header...) }

func (codec) AppendMarker(dst []byte, _ time.Duration, _ uint64) []byte { return dst }

func (codec) AppendRefusal(dst []byte, shard string, err error) []byte {
	if wrong, ok := err.(*publish.WrongLastError); ok {
		return fmt.Appendf(dst, "last %s %d", shard, wrong.Last)
	}
	return fmt.Appendf(dst, "no %s", err)
}

func message(on, reply, data string, headers ...string) protocol.Message {
	m := protocol.Message{Subject: []byte(on), Reply: []byte(reply)}
	if len(headers) > 0 {
		head := "NATS/1.0\r\n" + strings.Join(headers, "\r\n") + "\r\n\r\n"
		m.Header, m.Data = len(head), []byte(head)
	}
	m.Data = append(m.Data, data...)
	return m
}

const (
	// answerTime is how long a client waits for an answer: longer than an outbox keeps a message.
	answerTime = 15 * time.Second
	// repeats is how often a client republishes a message with an id whose fate it does not know.
	repeats = 3
)
