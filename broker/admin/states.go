package admin

import (
	"bytes"
	"context"
	"strings"
	"time"

	"github.com/carillon-mq/carillon/broker/activity"
	"github.com/carillon-mq/carillon/broker/protocol"
	"github.com/carillon-mq/carillon/broker/subscription"
)

// SubscriptionStatesSubject is the subject of requests about the Subscriptions of a Topic, as one
// broker sees them. The Topic and the broker's id follow.
const SubscriptionStatesSubject = Prefix + "SUBSCRIPTION.STATES."

const (
	// statesAtOnce bounds the requests for states that are answered at a time: each may read some
	// MiB of a log, to count.
	statesAtOnce = 4
	// statesTimeout bounds counting for one answer. Beyond it, lags are upper bounds.
	statesTimeout = 250 * time.Millisecond
)

// StatesRequest asks for one Subscription, or for a page of all of them.
type StatesRequest struct {
	Name string `json:"name,omitempty"` // empty: all
	ListRequest
}

// SubscriptionStates is what one broker knows of a Topic's Subscriptions.
type SubscriptionStates struct {
	Error  *Error      `json:"error,omitempty"`
	Broker *Broker     `json:"broker,omitempty"`
	Shards []ShardLead `json:"shards"` // those that it leads
	// Next is set if there is more: request the page after this name.
	Next string `json:"next,omitempty"`
	// Clients are how many clients of this broker read by each Subscription; those of none are left
	// out.
	Clients map[string]int `json:"clients"`
}

// ShardLead is a shard that the answering broker leads.
type ShardLead struct {
	Shard         int                   `json:"shard"`
	Subscriptions []subscription.Report `json:"subscriptions"` // sorted by name
}

// Subscriptions is the part of subscription.Service that is used.
type Subscriptions interface {
	List(shard string) []*subscription.Subscription
}

// Subscriptions makes the server answer for Subscriptions that this broker serves.
func (s *Server) Subscriptions(of Subscriptions, readers *activity.Clients) *Server {
	s.subscriptions, s.readers = of, readers
	return s
}

// answerStates answers for the shards that this broker leads, later. It forwards a request for
// another broker's, once. It returns what it answers at once, or nil.
func (s *Server) answerStates(r *request, m *protocol.Message, by origin) []byte {
	if s.view().state.Topic(r.topic) == nil {
		return encodeError(noTopic(r.topic))
	}
	if data, elsewhere := s.elsewhere(r.broker, m, by); elsewhere {
		return data
	}
	if s.subscriptions == nil {
		return encodeError(notReady())
	}
	reply, what := bytes.Clone(m.Reply), *r
	busy := refuse(Busy, "more than %d requests about Subscriptions are under way on broker %s, and %d wait (ask again in a moment)", statesAtOnce, r.broker, tasksWaiting)
	if !s.stateTasks.submit(by, 0, func(ctx context.Context) {
		ctx, stop := context.WithTimeout(ctx, statesTimeout)
		defer stop()
		s.send(protocol.Message{Subject: reply, Data: encode(s.states(ctx, &what))})
	}, func() { s.refuse(reply, busy) }) {
		return encodeError(busy)
	}
	return nil
}

// states returns one page of what this broker knows of a Topic's Subscriptions.
func (s *Server) states(ctx context.Context, r *request) SubscriptionStates {
	v := s.view()
	broker := v.broker(r.broker)
	answer := SubscriptionStates{Broker: &broker, Shards: []ShardLead{}}
	desired := v.state.Topic(r.topic)
	if desired == nil {
		answer.Error = noTopic(r.topic)
		return answer
	}
	page := v.statesPage(desired.ID, r.states.Name, r.page)
	answer.Next, answer.Clients = page.next, map[string]int{}
	for _, one := range v.state.Subscriptions(desired.ID) {
		if page.has(one.Name) {
			if n := s.readers.Of(one); n > 0 {
				answer.Clients[one.Name] = n
			}
		}
	}
	t := s.topics.ByID(desired.ID)
	if t == nil {
		return answer
	}
	for _, shard := range t.Shards() {
		if shard.Leader() != s.self {
			continue
		}
		lead := ShardLead{Shard: shard.Number(), Subscriptions: []subscription.Report{}}
		for _, one := range s.subscriptions.List(shard.Key()) {
			if page.has(one.Name()) {
				lead.Subscriptions = append(lead.Subscriptions, one.Report(ctx))
			}
		}
		answer.Shards = append(answer.Shards, lead)
	}
	return answer
}

// names is a page of names: those behind after, up to last, or a single one.
type names struct {
	single, after, last string
	next                string // of the next page
}

// statesPage returns the page of a request, of the declared Subscriptions of a Topic.
func (v view) statesPage(topicID, single string, r ListRequest) names {
	page := names{single: single, after: r.After}
	if single != "" {
		return page
	}
	n := 0
	for _, one := range v.state.Subscriptions(topicID) { // sorted by name
		if strings.Compare(one.Name, r.After) <= 0 {
			continue
		}
		if n == r.Limit {
			page.next = page.last
			break
		}
		page.last = one.Name
		n++
	}
	return page
}

func (n *names) has(name string) bool {
	if n.single != "" {
		return name == n.single
	}
	return name > n.after && name <= n.last
}
