package world

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/carillon-mq/carillon/broker/protocol"
	"github.com/carillon-mq/carillon/broker/publish"
	"github.com/carillon-mq/carillon/broker/route"
	"github.com/carillon-mq/carillon/broker/session"
	"github.com/carillon-mq/carillon/broker/subject"
	"github.com/carillon-mq/carillon/broker/work"
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

// box receives the answer to one message, or those to a fast batch.
type box struct {
	client *client
	op     *operation
	fast   *fastBatch // nil: it is for op
}

func (b *box) answered(text string) {
	if b.fast != nil {
		b.fast.answered(text)
		return
	}
	b.client.answered(b.op, text)
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

func (h *hub) Send(messages []protocol.Message) (behind work.Behind) {
	if h.life.dead.Load() {
		return behind
	}
	for i := range messages {
		reply, text := string(messages[i].Subject), string(messages[i].Data)
		h.mu.Lock()
		b := h.boxes[boxOf(reply)]
		h.mu.Unlock()
		if b == nil {
			continue
		}
		w := h.life.m.w
		w.after(w.delay(wireMin, wireMax), fmt.Sprintf("%s answers %s: %s", h.life, reply, text), func() { b.answered(text) })
	}
	return behind
}

func (h *hub) Interested([]byte) bool { return true }

// Forward brings a message to what runs on another broker, unless the way there is cut.
func (h *hub) Forward(broker string, m *protocol.Message) (linked bool, behind work.Behind) {
	w, from := h.life.m.w, h.life.m.id
	to := w.machine(broker)
	if to == nil || h.life.dead.Load() {
		return false, behind
	}
	one := protocol.Message{Subject: slices.Clone(m.Subject), Reply: slices.Clone(m.Reply), Header: m.Header, Data: slices.Clone(m.Data)}
	w.after(w.network.latency(from, broker), fmt.Sprintf("%s forwards %s to %s", h.life, m.Subject, broker), func() {
		if l := to.life; l != nil && !l.dead.Load() && l.ready.Load() && !w.network.isCut(from, broker) {
			go l.hub.take(0, []protocol.Message{one})
		}
	})
	return true, behind
}

// publish is one read of a client's connection. Like a connection, it blocks while too many
// messages wait.
func (h *hub) publish(c *client, messages []protocol.Message) (taken bool) {
	return h.take(c.number, messages)
}

// take passes messages to the Takers that offer their subjects. client is the number of their
// connection; 0: another broker forwarded them.
func (h *hub) take(client uint64, messages []protocol.Message) (taken bool) {
	h.mu.Lock()
	offers := slices.Clone(h.offers)
	h.mu.Unlock()
	var behind work.Behind
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
			if testutil.Take(o.taker, client, mine, memory, &behind) {
				behind.Add(o.taker)
			}
			memory.Release()
		}
	}
	behind.Wait()
	return taken
}

// noClients is a hub, as links see it, without subscriptions.
type noClients struct{}

func (noClients) Attach(session.Link, string) (route.ClientSide, []session.Interest) {
	return noClients{}, nil
}
func (noClients) SetInterest(session.Interest)                        {}
func (noClients) Deliver(*session.Message, session.Reach) (full bool) { return false }
func (noClients) Flush()                                              {}
func (noClients) Wait()                                               {}
func (noClients) Detach()                                             {}

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
