package admin

import (
	"time"

	"github.com/carillon-mq/carillon/broker/clock"
	"github.com/carillon-mq/carillon/broker/protocol"
)

// The subjects of requests about one broker's clock. The broker's id follows.
const (
	BrokerClockSubject        = Prefix + "BROKER.CLOCK."
	BrokerConfirmClockSubject = Prefix + "BROKER.CONFIRMCLOCK."
)

// Clock is this broker's clock. *clock.Clock implements it.
type Clock interface {
	Status() clock.Status
	Confirm(expected time.Time) error
}

// ConfirmClockRequest confirms the clock of a broker. A broker whose clock is further than
// clock.ConfirmWithin from Time refuses.
type ConfirmClockRequest struct {
	Time time.Time `json:"time"` // the client's time
}

// ClockInfo is the clock of one broker, after the confirmation if requested.
type ClockInfo struct {
	Error  *Error       `json:"error,omitempty"`
	Broker *Broker      `json:"broker,omitempty"`
	Clock  *BrokerClock `json:"clock,omitempty"`
}

// BrokerClock is the state of one broker's clock.
type BrokerClock struct {
	Clock time.Time     `json:"clock"` // the machine's
	Time  time.Time     `json:"time"`  // the broker's: the median of the brokers' votes
	Away  time.Duration `json:"away"`  // nanoseconds by which Clock is ahead of Time; negative: behind
	// Vote is the state of the broker's vote: sure, held, late or early (clock.State).
	Vote  string       `json:"vote"`
	Jumps uint64       `json:"jumps"`           // of Clock, since the broker started
	Doubt clock.Reason `json:"doubt,omitempty"` // why deletion by age is paused; empty: it is not
	Why   string       `json:"why,omitempty"`   // Doubt as a sentence
	Votes int          `json:"votes"`           // brokers whose votes count, including its own
	Sure  int          `json:"sure"`            // of Votes, those that are sure and agree with Time
}

// Clock sets the clock of requests. Call it before the first request.
func (s *Server) Clock(c Clock) *Server {
	s.clock = c
	return s
}

// answerClock answers for this broker's clock. It forwards a request for another broker's, once,
// and then returns nil.
func (s *Server) answerClock(r *request, m *protocol.Message, by origin) []byte {
	if data, elsewhere := s.elsewhere(r.broker, m, by); elsewhere {
		return data
	}
	if s.clock == nil {
		return encodeError(notReady())
	}
	if r.kind == brokerConfirmClock {
		if err := s.clock.Confirm(r.confirm.Time); err != nil {
			return encodeError(refuse(Refused, "confirm the clock of broker %s: %v", r.broker, err))
		}
	}
	broker, is := s.view().broker(r.broker), s.clock.Status()
	return encode(ClockInfo{Broker: &broker, Clock: &BrokerClock{
		Clock: is.Wall, Time: is.Time, Away: is.Away, Vote: is.State.String(), Jumps: is.Jumps,
		Doubt: is.Verdict.Doubt, Why: is.Verdict.Why, Votes: is.Verdict.Known, Sure: is.Verdict.Sure,
	}})
}
