package jetstream

import (
	"bytes"

	"github.com/carillon-mq/carillon/broker/identity"
	"github.com/carillon-mq/carillon/broker/protocol"
	"github.com/carillon-mq/carillon/broker/subscription"
)

// puller is who sent a message for a consumer.
type puller struct {
	client    uint64 // of this broker; 0: it was forwarded
	forwarded bool   // by another broker, which names the account of a pull in a header
	pulls     bool   // the message is a pull, or an ack that is one, too
	account   string // of a client of this broker that pulls
}

// pullerOf returns who sent a message, and the message with the name of the user if its limits
// decide. The user is named in a header as for calls, and the account only when the message is
// forwarded: most pulls are not copied.
func (s *Server) pullerOf(client uint64, m *protocol.Message, forwarded bool) (puller, *protocol.Message) {
	p := puller{client: client, forwarded: forwarded, pulls: true}
	if forwarded {
		return p, m
	}
	p.account = s.accountOf(client)
	if s.config.Behalf == nil || m.Header == 0 && s.config.Behalf.Limits(s.config.User(client)).Pulls == 0 {
		return p, m
	}
	return p, s.sign(client, m)
}

// passPull forwards a message for a consumer to the leader of its stream. It reports false if this
// broker leads or has no link to the leader.
func (s *Server) passPull(leader string, m *protocol.Message, by puller) bool {
	if leader == "" || leader == s.config.Self {
		return false
	}
	if by.pulls && !by.forwarded {
		m = identity.NameAccount(m, by.account)
	}
	return s.sendToLeader(leader, m)
}

// quota returns the quota for a pull. The broker that serves it counts.
func (s *Server) quota(by puller, header protocol.Header) *subscription.PullQuota {
	account, most := by.account, 0
	if by.forwarded {
		account = identity.ForwardedAccount(header)
	}
	if len(header) > 0 && s.config.Behalf != nil {
		user := identity.SignedBy(header)
		if most = s.config.Behalf.Limits(user).Pulls; account == "" { // of a broker of an earlier version
			account = "user " + user
		}
	}
	quota := s.room.Of(account)
	quota.Bound(most)
	return quota
}

// isAckNext reports whether an ack is a pull, too.
func isAckNext(m *protocol.Message) bool {
	_, payload := protocol.SplitData(m.Data, m.Header)
	return len(m.Reply) > 0 && bytes.HasPrefix(payload, []byte("+NXT"))
}
