package admin

import (
	"time"

	"github.com/carillon-mq/carillon/broker/clock"
	"github.com/carillon-mq/carillon/broker/protocol"
)

// The subjects of requests about the clock of one broker, whose id is appended.
const (
	BrokerClockSubject        = Prefix + "BROKER.CLOCK."
	BrokerConfirmClockSubject = Prefix + "BROKER.CONFIRMCLOCK."
)

// Clock is the clock of this broker; *clock.Clock is one.
type Clock interface {
	Status() clock.Status
	Confirm(expected time.Time) error
}

// ConfirmClockRequest confirms the clock of a broker. A broker whose clock is further than
// clock.ConfirmWithin from Time refuses.
type ConfirmClockRequest struct {
	Time time.Time `json:"time"` // what the time is, by whoever asks
}

// ClockInfo is the clock of one broker, after a confirmation if that was asked for.
type ClockInfo struct {
	Error  *Error       `json:"error,omitempty"`
	Broker *Broker      `json:"broker,omitempty"`
	Clock  *BrokerClock `json:"clock,omitempty"`
}

// BrokerClock is what one broker knows of the time.
type BrokerClock struct {
	Clock time.Time     `json:"clock"` // its machine's
	Time  time.Time     `json:"time"`  // what it goes by: the median of the brokers' votes
	Away  time.Duration `json:"away"`  // nanoseconds by which Clock is ahead of Time; negative: behind
	// Vote is how far the broker's vote can be relied on: sure, held, late or early (clock.State).
	Vote  string       `json:"vote"`
	Jumps uint64       `json:"jumps"`           // of Clock, since the broker started
	Doubt clock.Reason `json:"doubt,omitempty"` // why Time is in doubt, so that nothing is deleted by its age; empty: it is not
	Why   string       `json:"why,omitempty"`   // the same for people
	Votes int          `json:"votes"`           // brokers whose clocks it knows, its own among them
	Sure  int          `json:"sure"`            // of these, those that are sure and agree with Time
}

// Clock has the Server answer for this broker's clock, too. It is to be called before the first
// request.
func (s *Server) Clock(c Clock) *Server {
	s.clock = c
	return s
}

// answerClock answers for this broker's clock. A request for another broker's is handed to that
// broker, once; the answer is nil then.
func (s *Server) answerClock(r *request, m *protocol.Message, forwarded bool) []byte {
	v := s.view()
	_, member := v.state.Broker(r.broker)
	switch {
	case r.broker != s.self && !member:
		return encodeError(refuse(NotFound, "there is no broker with the id %.100q, or it is away (see: carillon brokers)", r.broker))
	case r.broker != s.self && !forwarded && s.hub.Forward(r.broker, m):
		return nil
	case r.broker != s.self:
		return encodeError(refuse(Unavailable, "broker %s can't be reached from this one (ask again in a moment)", r.broker))
	case s.clock == nil:
		return encodeError(notReady())
	}
	if r.kind == brokerConfirmClock {
		if err := s.clock.Confirm(r.confirm.Time); err != nil {
			return encodeError(refuse(Refused, "confirm the clock of broker %s: %v", r.broker, err))
		}
	}
	broker, is := v.broker(r.broker), s.clock.Status()
	return encode(ClockInfo{Broker: &broker, Clock: &BrokerClock{
		Clock: is.Wall, Time: is.Time, Away: is.Away, Vote: is.State.String(), Jumps: is.Jumps,
		Doubt: is.Verdict.Doubt, Why: is.Verdict.Why, Votes: is.Verdict.Known, Sure: is.Verdict.Sure,
	}})
}
