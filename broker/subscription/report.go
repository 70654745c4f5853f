package subscription

import (
	"context"
	"time"
)

// Report is what a shard's leader tells the operator and the command line of one Subscription.
type Report struct {
	Name        string `json:"name"`
	Lag         uint64 `json:"lag"`
	Pending     int    `json:"pending"`
	Redelivered int    `json:"redelivered"`
	// DeadLettered counts since this broker leads; GivenUp wait for their dead-letter Topic.
	DeadLettered      uint64 `json:"deadLettered,omitempty"`
	GivenUp           int    `json:"givenUp,omitempty"`
	DeadLetterTrouble string `json:"deadLetterTrouble,omitempty"`
	// Endangered is why retention is about to delete a message that was not acknowledged.
	Endangered string `json:"endangered,omitempty"`
	// Endpoint is why the endpoint that it pushes to is not reached; EndpointWhy is for people.
	Endpoint    string `json:"endpoint,omitempty"`
	EndpointWhy string `json:"endpointWhy,omitempty"`
	// Push is the state of that endpoint; nil: clients pull, or nothing was pushed yet.
	Push *PushReport `json:"push,omitempty"`
	// Unjudged counts messages that the condition could not judge since this broker leads, and
	// UnjudgedWhy says why it could not judge one of the newest.
	Unjudged    uint64 `json:"unjudged,omitempty"`
	UnjudgedWhy string `json:"unjudgedWhy,omitempty"`
	// Trouble is why records can't be read at present.
	Trouble string `json:"trouble,omitempty"`
}

// PushReport is the state of an endpoint.
type PushReport struct {
	Held     int       `json:"held"`    // records that were handed over and are not settled
	Sending  int       `json:"sending"` // requests under way
	Answer   string    `json:"answer,omitempty"`
	Answered time.Time `json:"answered,omitzero"`
	Retry    time.Time `json:"retry,omitzero"` // of an open circuit: the next request
}

// Report returns the state of the Subscription. Counting its lag ends with ctx; then the lag is an
// upper bound.
func (s *Subscription) Report(ctx context.Context) Report {
	s.Count(ctx)
	i := s.Info()
	r := Report{
		Name: s.Name(), Lag: i.Lag, Pending: i.Pending, Redelivered: i.Redelivered,
		DeadLettered: i.DeadLettered, GivenUp: i.GivenUp, DeadLetterTrouble: i.DeadLetterTrouble, Endangered: s.Endangered(&i),
		Endpoint: i.Endpoint.Reason, EndpointWhy: i.Endpoint.Trouble, Trouble: i.Trouble,
		Unjudged: i.Unjudged, UnjudgedWhy: i.UnjudgedWhy,
	}
	if e := &i.Endpoint; i.Pushes {
		r.Push = &PushReport{Held: e.Held, Sending: e.Sending, Answer: e.Answer, Answered: e.Answered, Retry: e.Retry}
	}
	return r
}
