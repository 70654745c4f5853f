package admin

import (
	"slices"
	"strings"

	"github.com/carillon-mq/carillon/broker/coordination"
	"github.com/carillon-mq/carillon/broker/identity"
	"github.com/carillon-mq/carillon/broker/protocol"
)

// sight is which records of a Topic a user may read at present: those on subjects that it may
// subscribe to.
type sight struct {
	sees func(subject []byte) bool // nil: there are no users, so all of them
	// likely: the user may subscribe to all subjects of the Topic. The Topic may still keep records of
	// subjects that it had before.
	likely bool
	// certain: the Topic keeps no records that permissions hide from the user.
	certain bool
}

// reader returns the user on whose behalf a request for records is served. Empty: there are no
// users, or a broker forwarded the request without naming one.
func (s *Server) reader(m *protocol.Message, by origin) string {
	if s.behalf == nil {
		return ""
	}
	if by.forwarded {
		header, _ := protocol.SplitData(m.Data, m.Header)
		return identity.SignedBy(header)
	}
	if user := s.user(by.client); user != "" {
		return user
	}
	return identity.Unknown // a stream has published it again, or its client has gone
}

// sight returns what the user may read of a Topic, by its rights at present, or why it may not make
// a request. subjects are the patterns that the request names; none: all of the Topic.
func (s *Server) sight(user, request string, of *coordination.Topic, subjects []string) (sight, *Error) {
	is, known := s.behalf.Identity(user)
	switch {
	case user == identity.Unknown:
		return sight{}, refuse(Forbidden, "records are for clients, and not for streams that publish requests again")
	case !known:
		return sight{}, refuse(Forbidden, "topic %s: there is no user %.100q any more, or its access has ended", of.Name, user)
	case is == nil:
		return sight{likely: true, certain: true}, nil
	case !is.MayPublish([]byte(request)):
		return sight{}, refuse(Forbidden, "topic %s: user %.100q may not make this request any more (it takes the right to publish on %s)", of.Name, user, request)
	}
	for _, asked := range [][]string{of.ReadBy(nil), subjects} {
		if len(asked) > 0 && !slices.ContainsFunc(asked, is.MaySeeSome) {
			return sight{}, refuse(Forbidden, "topic %s: user %.100q may read none of it: that takes the right to subscribe to subjects of %.300s", of.Name, user, strings.Join(asked, ", "))
		}
	}
	all := func(patterns []string) bool {
		return !slices.ContainsFunc(patterns, func(p string) bool { return !is.MaySeeAll(p) })
	}
	may := sight{sees: is.MaySee, likely: all(of.ReadBy(nil))}
	may.certain = may.likely && of.Generation <= 1 || is.MaySeeAll(">") // its subjects never changed
	return may, nil
}

// unsigned refuses a forwarded request for records that names no user, where there are users. While
// a broker of an earlier version is registered, which names none, such a request gets what it got
// there: all records.
func (s *Server) unsigned(state *coordination.State, topic, user string, by origin) *Error {
	if !by.forwarded || s.behalf == nil || user != "" || !state.AllHave(coordination.FeatureRecordRights) {
		return nil
	}
	return refuse(NotServed, "topic %s: the broker that forwarded the request does not say for which user (give all brokers the same users)", topic)
}

// unfiltered refuses to forward a request for records to a leader of an earlier version, which
// would return those that the user may not read, too.
func (s *Server) unfiltered(state *coordination.State, leader string, of *coordination.Topic, request string, by origin) *Error {
	if by.forwarded || by.user == "" {
		return nil
	}
	b, registered := state.Broker(leader)
	if b.Features.Has(coordination.FeatureRecordRights) {
		return nil
	}
	may, refusal := s.sight(by.user, request, of, nil)
	switch {
	case refusal != nil || may.certain:
	case !registered:
		refusal = refuse(NotServed, "topic %s: its leader %s is away (ask again in a second)", of.Name, leader)
	default:
		refusal = refuse(NotServed, "topic %s: its leader %s is of a version that can't leave out what this user may not subscribe to (finish the update of the brokers)", of.Name, leader)
	}
	return refusal
}
