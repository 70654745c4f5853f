package session

import (
	"bytes"
	"fmt"
	"net"
	"strings"
	"time"

	"github.com/carillon-mq/carillon/broker/protocol"
)

// Headers of a message that declares attributes of its subject.
const (
	declareHeader = "Carillon-Attributes"       // an object of JSON
	declareBound  = "Carillon-Attributes-Bound" // false: they stay when the connection is gone
)

var declareMark = []byte("\n" + declareHeader + ":")

// Declarer sets what the messages of one connection declare about their subjects. Only that
// connection's reader calls it.
type Declarer interface {
	// Declare returns nil, nil if a subject has the attributes of a text, and the message is to be
	// published; or refusal says why they can't be set. Otherwise set is called later, once. Then
	// made is sent the outcome, within a bounded time; nil: the message waits for nothing. subject
	// and text are valid during the call of Declare.
	//
	// The Hub is locked while Declare runs, and not while set does. So Declare must not use it, not
	// even to refuse what another client has asked for, and set may.
	Declare(subject, text []byte, bound bool) (set func() (made <-chan *Refusal), refusal *Refusal)
}

// Refusal is why what a message declares was not set, so that it is not published.
type Refusal struct {
	Code   int                       // as HTTP has it
	Text   string                    // one line
	Answer func(reply []byte) []byte // for the reply subject of the message, besides headers; nil: empty
}

// Declaring has clients declare attributes of subjects by headers of messages. open returns the
// Declarer of a connection, from its reader. Without it, these headers mean nothing. Call it before
// Serve.
func (h *Hub) Declaring(open func(client uint64) Declarer) { h.declarer = open }

// declaration is what the message that is read next declares, while the reader waits for it.
type declaration struct {
	set     func() (made <-chan *Refusal) // nil: the outcome is there
	refusal *Refusal
}

// declares looks at what a message declares about its subject. It reports true if the message is to
// wait until awaitDeclared has set that. One that declares nothing costs a search in its headers.
// What publish refuses sets nothing.
func (c *Conn) declares(op *protocol.Op) (wait bool) {
	if c.declared != nil || c.hub.declarer == nil || !bytes.Contains(op.Data[:op.Header], declareMark) {
		return false
	}
	is := c.identity.Load()
	m := Message{Subject: op.Subject, Reply: op.Reply, Header: op.Header, Data: op.Data}
	to, only, wants := wantsTrace(&m)
	switch {
	case !declarable(op.Subject), wants && (only || !is.MayPublish(to)), !c.headers.Load(), bytes.HasPrefix(op.Reply, ackPrefix),
		is != nil && is.Limits.Payload > 0 && len(op.Data) > is.Limits.Payload,
		!is.MayPublish(op.Subject), is != nil && maySchedule(is, &m) != nil:
		return false
	}
	if c.declarer == nil {
		c.declarer = c.hub.declarer(c.id)
	}
	header := protocol.Header(op.Data[:op.Header])
	text, _ := header.Get(declareHeader)
	bound, _ := header.Get(declareBound)
	set, refusal := c.declarer.Declare(op.Subject, text, !strings.EqualFold(string(bound), "false"))
	if set == nil && refusal == nil {
		return false
	}
	c.declared = &declaration{set, refusal}
	return set != nil
}

// declarable reports whether the header means something on a subject. Programs copy the headers of
// requests to their answers.
func declarable(subject []byte) bool {
	return !bytes.HasPrefix(subject, []byte("$")) && !bytes.HasPrefix(subject, []byte("_INBOX."))
}

// waitsDeclared reports whether the message that is read next waits for what it declares.
func (c *Conn) waitsDeclared() bool { return c.declared != nil && c.declared.set != nil }

// awaitDeclared has what the message that is read next declares set, and waits for that. Its input
// stays where it is.
func (c *Conn) awaitDeclared() error {
	if c.closed() {
		return net.ErrClosed
	}
	made := c.declared.set()
	c.declared.set = nil
	if made == nil {
		return nil
	}
	look := time.NewTicker(rateStep)
	defer look.Stop()
	for !c.closed() {
		select {
		case c.declared.refusal = <-made:
			return nil
		case <-look.C:
		case <-c.hub.quit:
			return net.ErrClosed
		}
	}
	return net.ErrClosed
}

// refuse answers a message that is not published: on its reply subject, or by an -ERR. The text of
// that is one after which clients stay connected, since most close their connection on others.
func (c *Conn) refuse(b *batch, m *Message, why *Refusal) error {
	if len(m.Reply) == 0 {
		return protocol.NotDeclared(m.Subject, why.Text)
	}
	c.confirm(b) // a verbose client waits for one answer to each operation
	block := fmt.Appendf(nil, "NATS/1.0\r\nNats-Service-Error-Code: %d\r\nNats-Service-Error: %s\r\n\r\n", why.Code, why.Text)
	answer := Message{Subject: m.Reply, Header: len(block), Data: block}
	if why.Answer != nil {
		answer.Data = append(block, why.Answer(m.Reply)...)
	}
	b.pause()
	b.behind.Join(c.hub.Send([]Message{answer}))
	b.resume()
	return nil
}
