package producer

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/carillon-mq/carillon/broker/coordination"
	"github.com/carillon-mq/carillon/broker/protocol"
	"github.com/carillon-mq/carillon/broker/publish"
	"github.com/carillon-mq/carillon/broker/work"
)

// shelf is a Topic, and the hub that it answers through.
type shelf struct {
	publish.Hub
	desired coordination.Topic
	got     []protocol.Message
	sent    []string
}

func (s *shelf) Desired() *coordination.Topic { return &s.desired }

func (s *shelf) Publish(messages []protocol.Message) { s.got = append(s.got, messages...) }

func (s *shelf) Send(messages []protocol.Message) (behind work.Behind) {
	for i := range messages {
		s.sent = append(s.sent, string(messages[i].Subject))
	}
	return behind
}

func newShelf() (*shelf, *Producer) {
	s := &shelf{desired: coordination.Topic{Name: "dead", Spec: coordination.TopicSpec{Subjects: []string{"dead", "dead.>"}}}}
	return s, New(func(name string) Topic {
		if name != "dead" {
			return nil
		}
		return s
	})
}

func TestAnswersGoToWhoeverPublished(t *testing.T) {
	s, p := newShelf()
	var said []string
	for _, subject := range []string{"dead.a", "dead.b"} {
		p.Store("dead", &protocol.Message{Subject: []byte(subject)}, func(err error) {
			if err == nil {
				said = append(said, subject+" stored")
			} else {
				said = append(said, subject+" "+err.Error())
			}
		})
	}
	if len(s.got) != 2 || len(said) != 0 {
		t.Fatalf("published were %d, answered %q", len(s.got), said)
	}
	hub := p.Hub(s)
	answer := func(of protocol.Message, data string) protocol.Message {
		return protocol.Message{Subject: of.Reply, Data: []byte(data)}
	}
	refused := answer(s.got[1], `{"error":{"code":503,"err_code":10077,"description":"maximum bytes exceeded"},"stream":"dead","seq":0}`)
	stored := answer(s.got[0], `{"stream":"dead","seq":7,"duplicate":true}`)
	hub.Send([]protocol.Message{{Subject: []byte("_INBOX.1")}, refused, {Subject: []byte("_INBOX.2")}, stored})
	hub.Send([]protocol.Message{{Subject: []byte("_INBOX.3")}, refused}) // answered already
	large := false
	p.Store("dead", &protocol.Message{Subject: []byte("dead.c")}, func(err error) { large = errors.Is(err, publish.ErrTooLarge) })
	hub.Send([]protocol.Message{answer(s.got[2], `{"error":{"code":400,"err_code":10054,"description":"message size exceeds maximum allowed"},"stream":"dead","seq":0}`)})
	if !large {
		t.Error("that it was too large is not known")
	}
	if want := []string{"dead.b maximum bytes exceeded", "dead.a stored"}; !slices.Equal(said, want) {
		t.Errorf("answered were %q", said)
	}
	if want := []string{"_INBOX.1", "_INBOX.2", "_INBOX.3"}; !slices.Equal(s.sent, want) {
		t.Errorf("clients got %q", s.sent)
	}
}

func TestATopicThatWouldGiveNoAnswerIsNotAsked(t *testing.T) {
	for _, c := range []struct {
		name, topic, subject, want string
		change                     func(*coordination.Topic)
	}{
		{"missing", "none", "dead.a", "no such topic", nil},
		{"other subjects", "dead", "orders.a", "don't take orders.a; add dead.>", nil},
		{"being deleted", "dead", "dead.a", "being deleted", func(t *coordination.Topic) { t.Deleting = true }},
		{"no acks", "dead", "dead.a", "acknowledges nothing", func(t *coordination.Topic) { t.Spec.Stream.NoAck = true }},
	} {
		s, p := newShelf()
		if c.change != nil {
			c.change(&s.desired)
		}
		var got error
		p.Store(c.topic, &protocol.Message{Subject: []byte(c.subject)}, func(err error) { got = err })
		if got == nil || !strings.Contains(got.Error(), c.want) || len(s.got) != 0 {
			t.Errorf("%s: %v, published %d", c.name, got, len(s.got))
		}
	}
}
