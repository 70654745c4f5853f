package admin

import (
	"github.com/carillon-mq/carillon/broker/identity"
	"github.com/carillon-mq/carillon/broker/protocol"
)

// origin is who sent a request.
type origin struct {
	client    uint64 // of this broker; 0: none
	forwarded bool   // by another broker
	key       uint64 // the client, as pools tell clients apart
}

// originOf returns the origin of a message of a client of this broker, or of a forwarded one.
func originOf(m *protocol.Message, client uint64, forwarded bool) origin {
	if !forwarded {
		return origin{client: client, key: client}
	}
	header, _ := protocol.SplitData(m.Data, m.Header)
	return origin{forwarded: true, key: identity.ForwardedKey(header)}
}

// pass forwards a request to another broker with the name of its client, and reports whether there
// is a link. A forwarded request is not forwarded again.
func (s *Server) pass(broker string, m *protocol.Message, by origin) bool {
	return !by.forwarded && s.forward(broker, identity.NameClient(m, s.self, by.client))
}
