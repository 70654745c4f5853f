package admin

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/carillon-mq/carillon/broker/coordination"
	"github.com/carillon-mq/carillon/broker/identity"
	"github.com/carillon-mq/carillon/broker/protocol"
	"github.com/carillon-mq/carillon/broker/viewing"
)

// ViewGetSubject is the subject of requests for the present values of a View. The broker that
// writes its results answers.
const ViewGetSubject = Prefix + "VIEW.GET"

// valuesAtOnce bounds the requests for present values that are answered at a time. Those for one
// View share what the shards say.
const valuesAtOnce = 8

const (
	// troublesAtOnce bounds the requests about one View that wait for the broker that writes its
	// results. What that says is small.
	troublesAtOnce = 16
	// troubleTimeout bounds the wait: a View is shown also while that broker does not answer. It is
	// less than programs wait for an answer.
	troubleTimeout = 1500 * time.Millisecond
)

// ViewGetRequest requests present values of a View.
type ViewGetRequest struct {
	View string `json:"view"`
	viewing.Ask
}

// ViewValues are present values, or why there are none.
type ViewValues struct {
	Error *Error `json:"error,omitempty"`
	*viewing.Values
}

// Values returns present values of a View of a Topic with an id, whose first shard this broker
// leads. The error may wrap viewing.ErrNotOwned.
type Values func(ctx context.Context, topicID, name string, ask *viewing.Ask) (*viewing.Values, error)

// ViewTrouble returns why the results of a View are not up to date, as the broker says that writes
// them; empty: they are. made is View.Made.
type ViewTrouble func(ctx context.Context, topicID, name string, made int64) string

// ViewTrouble makes the server ask for the trouble of Views that it answers for.
func (s *Server) ViewTrouble(of ViewTrouble) *Server {
	s.viewTrouble = of
	return s
}

// answerInfo answers with a View. It asks for its trouble for a client that may have its values,
// since a reason may name a key, and answers later then.
func (s *Server) answerInfo(name string, m *protocol.Message, by origin) []byte {
	v := s.view()
	info, d := v.viewInfo(name), v.state.View(name)
	if s.viewTrouble == nil || d == nil {
		return encode(info)
	}
	from := v.state.Topic(d.Spec.Topic)
	if from == nil || s.mayGet(from, d, by) != nil {
		return encode(info)
	}
	with := func(trouble string) []byte {
		info.View.Trouble = trouble
		return encode(info)
	}
	reply := bytes.Clone(m.Reply)
	busy := fmt.Sprintf("%s: more than %d requests about views wait for other brokers (ask again in a moment)", viewing.NotKnown, troublesAtOnce)
	if !s.troubleTasks.submit(by, len(m.Data), func(ctx context.Context) {
		s.send(protocol.Message{Subject: reply, Data: with(s.viewTrouble(ctx, from.ID, d.Name, d.Made))})
	}, func() { s.send(protocol.Message{Subject: reply, Data: with(busy)}) }) {
		return with(busy)
	}
	return nil
}

// Values makes the server answer for Views that this broker writes the results of.
func (s *Server) Values(of Values) *Server {
	s.values = of
	return s
}

// answerValues answers with present values, later. It forwards a request to the broker that writes
// the View's results, once. It returns what it answers at once, or nil.
func (s *Server) answerValues(r *request, m *protocol.Message, by origin) []byte {
	asked, state := r.view.get, s.topics.State()
	d := state.View(asked.View)
	if d == nil {
		return encodeError(noView(asked.View))
	}
	from := state.Topic(d.Spec.Topic)
	if from == nil {
		return encodeError(noTopic(d.Spec.Topic))
	}
	if refusal := s.mayGet(from, d, by); refusal != nil { // another broker has judged its client
		return encodeError(refusal)
	}
	leader := ""
	if shard := state.Shard(from.ID, 0); shard != nil {
		leader = shard.Leader
	}
	if leader == "" {
		return encodeError(refuse(NotServed, "shard 0 of topic %s, which view %s reads, has no leader (ask again in a moment)", from.Name, d.Name))
	}
	if data, elsewhere := s.elsewhere(leader, m, by); elsewhere {
		return data
	}
	if s.values == nil {
		return encodeError(notReady())
	}
	reply := bytes.Clone(m.Reply)
	busy := refuse(Busy, "more than %d requests for values of views are under way on this broker, and %d wait (ask again in a moment)", valuesAtOnce, tasksWaiting)
	if !s.valueTasks.submit(by, len(m.Data), func(ctx context.Context) {
		s.send(protocol.Message{Subject: reply, Data: encode(s.viewValues(ctx, from.ID, &asked))})
	}, func() { s.refuse(reply, busy) }) {
		return encodeError(busy)
	}
	return nil
}

// mayGet returns why a client may not have the values of a View, or nil: they tell of the messages
// that the View reads, so it takes the right to subscribe to all of them.
func (s *Server) mayGet(from *coordination.Topic, d *coordination.View, by origin) *Error {
	if by.forwarded {
		return nil
	}
	if by.client == 0 {
		return refuse(Forbidden, "values of views are for clients, and not for streams")
	}
	var is *identity.Identity
	if s.rights != nil {
		is = s.rights(by.client)
	}
	for _, pattern := range from.ReadBy(d.Spec.Compute.Filter.Subjects) {
		if !is.MaySubscribe([]byte(pattern), nil) || is.Filters(pattern, "") {
			return refuse(Forbidden, "this user may not have the values of view %s: that takes the right to subscribe to %.100s of topic %s, which it reads", d.Name, pattern, from.Name)
		}
	}
	return nil
}

func (s *Server) viewValues(ctx context.Context, topicID string, asked *ViewGetRequest) ViewValues {
	values, err := s.values(ctx, topicID, asked.View, &asked.Ask)
	switch {
	case errors.Is(err, viewing.ErrAfter):
		return ViewValues{Error: refuse(BadRequest, "%v", err)}
	case err != nil:
		return ViewValues{Error: refuse(NotServed, "view %s: %v", asked.View, err)}
	}
	return ViewValues{Values: values}
}

func noView(name string) *Error {
	return refuse(NotFound, "there is no view %.100q (see: carillon view list)", name)
}
