package admin

import (
	"github.com/carillon-mq/carillon/broker/identity"
	"github.com/carillon-mq/carillon/broker/protocol"
	"github.com/carillon-mq/carillon/broker/work"
)

// origin is who sent a request.
type origin struct {
	client    uint64      // of this broker; 0: none
	account   string      // of that client
	forwarded bool        // by another broker
	by        work.Client // as pools tell clients apart
	user      string      // of a request for records, see reader; empty: of another one
}

// originOf returns the origin of messages of a client of this broker.
func (s *Server) originOf(client uint64) origin {
	by := origin{client: client}
	if client == 0 {
		return by
	}
	if s.account != nil {
		by.account = s.account(client)
	}
	by.by = identity.ClientOf(by.account, client)
	return by
}

// forwardedBy returns the origin of a message that another broker has forwarded.
func forwardedBy(m *protocol.Message) origin {
	header, _ := protocol.SplitData(m.Data, m.Header)
	return origin{forwarded: true, by: identity.ForwardedClient(header)}
}

// pass forwards a request to another broker with the name of its client, and reports whether there
// is a link. A forwarded request is not forwarded again.
func (s *Server) pass(broker string, m *protocol.Message, by origin) bool {
	return !by.forwarded && s.forward(broker, identity.NameClient(m, s.self, by.client, by.account))
}
