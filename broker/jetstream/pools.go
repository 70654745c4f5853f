package jetstream

import (
	"context"

	"github.com/carillon-mq/carillon/broker/identity"
	"github.com/carillon-mq/carillon/broker/jsapi"
	"github.com/carillon-mq/carillon/broker/protocol"
	"github.com/carillon-mq/carillon/broker/work"
)

// The pools are shared fairly by user, and then by connection (work.FairJobs), as
// identity.NameClient says.

// brokers is the client of what brokers ask for.
var brokers = work.Client{}

// accountOf returns on whose account a client of this broker works.
func (s *Server) accountOf(client uint64) string {
	if s.config.Account == nil || client == 0 {
		return ""
	}
	return s.config.Account(client)
}

// from returns the message with the name of its client, to be forwarded.
func (s *Server) from(client uint64, m *protocol.Message) *protocol.Message {
	return identity.NameClient(m, s.config.Self, client, s.accountOf(client))
}

// named returns a message of a call with the name of the call's client, to be forwarded. If another
// broker forwarded the call, that one has named the client.
func (s *Server) named(c *call, m *protocol.Message) *protocol.Message {
	if c.forwarded {
		return m
	}
	return s.from(c.client, m)
}

// Run serves the call. It implements work.Job.
func (c *call) Run() { c.server.serve(c) }

// Drop refuses the call. It implements work.Job.
func (c *call) Drop() { c.server.overload(c) }

// continued is a call that continues on another pool.
type continued struct {
	*call
	do func()
}

func (c continued) Run() { c.do() }

// asked is a request of another broker, or of this one.
type asked struct{ do, drop func() }

func (a asked) Run() { a.do() }

func (a asked) Drop() {
	if a.drop != nil {
		a.drop()
	}
}

// submit has a pool do more of a call, or refuses the call if the pool is full.
func (s *Server) submit(to *work.FairJobs, c *call, do func()) {
	c.server = s
	if !to.Submit(c.by, continued{c, do}, c.size()) {
		s.overload(c)
	}
}

// submitCall has a pool serve a call, or refuses it if the pool is full.
func (s *Server) submitCall(c *call) {
	c.server = s
	if !s.poolOf(c).Submit(c.by, c, c.size()) {
		s.overload(c)
	}
}

// overload refuses a call for which there is no room.
func (s *Server) overload(c *call) {
	s.overloaded.Add(1)
	s.refuse(c, jsapi.ErrInsufficientResources)
}

// submitSlow continues a call on the pool for work that waits for etcd or other brokers.
func (s *Server) submitSlow(c *call, do func(ctx context.Context)) { s.continueOn(s.slow, c, do) }

// continueOn continues a call on another pool.
func (s *Server) continueOn(pool *work.FairJobs, c *call, do func(ctx context.Context)) {
	s.submit(pool, c, func() {
		ctx, cancel := context.WithDeadline(s.ctx, c.deadline)
		defer cancel()
		do(ctx)
	})
}
