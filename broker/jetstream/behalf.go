package jetstream

import (
	"fmt"

	"github.com/carillon-mq/carillon/broker/coordination"
	"github.com/carillon-mq/carillon/broker/identity"
	"github.com/carillon-mq/carillon/broker/jsapi"
	"github.com/carillon-mq/carillon/broker/protocol"
	"github.com/carillon-mq/carillon/broker/subscription"
	"github.com/carillon-mq/carillon/broker/transform"
)

// What brokers publish, deliver and copy because a stream or a consumer asks for it, they do on
// behalf of the user who created it or changed it last:
//
//  1. The client's own broker knows the user. It puts the name into a header of calls that create
//     or change streams and consumers, in place of whatever the client wrote there. A call that
//     a stream republishes gets the name identity.Unknown, which has no rights.
//  2. Whoever serves the call refuses it unless the user has all rights that it needs.
//  3. The name is kept with the stream or the consumer. Brokers look up the user's present rights
//     whenever they publish, deliver or copy, and without them they don't.

// asksForMore reports whether a call may have the broker publish, deliver or copy later.
func asksForMore(c jsapi.Call) bool {
	switch c {
	case jsapi.StreamCreate, jsapi.StreamUpdate, jsapi.ConsumerCreate, jsapi.ConsumerDurable:
		return true
	}
	return false
}

// sign returns the message with the name of its client's user, or without any.
func (s *Server) sign(client uint64, m *protocol.Message) *protocol.Message {
	user := ""
	if s.config.Behalf != nil {
		if user = s.config.User(client); user == "" {
			user = identity.Unknown // not a client's, but one that a stream has published again
		}
	}
	return identity.Sign(m, user)
}

// user returns on whose behalf a call is made. Empty: nobody's in particular.
func (c *call) user() string { return identity.SignedBy(c.header) }

// mayMake refuses what a call would make that a stream has published again, if users have limits
// of that: it would count for nobody.
func (s *Server) mayMake(user string, of *jsapi.Template) *jsapi.Error {
	if s.config.Behalf.MayMake(user) {
		return nil
	}
	return of.Forbid("a stream has republished this request, and only a user may make streams and consumers (have a client send it)")
}

// mayStream refuses a stream that would publish or copy what its user may not.
func (s *Server) mayStream(user string, of *jsapi.Template, stream *coordination.StreamSettings) *jsapi.Error {
	if r := stream.Republish; r != nil {
		by, err := transform.New(r.Source, r.Destination)
		if err != nil || by == nil {
			return of.With(err)
		}
		if to := by.Pattern(); !s.config.Behalf.MayPublishAll(user, to) {
			return of.Forbid(fmt.Sprintf("user %q has no right to publish on %q, where the stream would republish", user, to))
		}
	}
	for _, source := range stream.Copies() {
		if !s.config.Behalf.MayConsume(user, source.Name) {
			return of.Forbid(fmt.Sprintf("user %q has no right to create a consumer of stream %q, which would be copied (it needs to publish on $JS.API.CONSUMER.CREATE.%s.>)", user, source.Name, source.Name))
		}
	}
	return nil
}

// mayDeliver refuses a push consumer whose user may not publish on its deliver subject.
func (s *Server) mayDeliver(user, to string) *jsapi.Error {
	if to == "" || s.config.Behalf.MayDeliver(user, []byte(to)) {
		return nil
	}
	return jsapi.ErrConsumerCreate.Forbid(fmt.Sprintf("user %q has no right to publish on %q, the deliver subject", user, to))
}

// watchFor is Watch of the hub, where nobody is subscribed while the user has no right to deliver.
func (s *Server) watchFor(user, to, group string, changed func()) subscription.Interest {
	seen := s.config.Hub.Watch(to, group, changed)
	if s.config.Behalf == nil || user == "" {
		return seen
	}
	return &rightful{Interest: seen, behalf: s.config.Behalf, user: user, to: []byte(to), stop: s.config.Behalf.Watch(changed)}
}

// rightful is the interest in a deliver subject while a user has the right to it.
type rightful struct {
	subscription.Interest
	behalf *identity.Behalf
	user   string
	to     []byte
	stop   func()
}

func (r *rightful) Present() bool {
	return r.Interest.Present() && r.behalf.MayDeliver(r.user, r.to)
}

func (r *rightful) Stop() {
	r.stop()
	r.Interest.Stop()
}
