package subscription

import (
	"bytes"
	"fmt"
	"math"
	"time"

	"github.com/carillon-mq/carillon/broker/coordination"
	"github.com/carillon-mq/carillon/broker/filter"
	"github.com/carillon-mq/carillon/broker/subject"
)

// settings are the values of a spec in the form that delivery needs.
type settings struct {
	filters    [][]byte       // none: all
	where      *filter.Filter // the condition; nil: none
	policy     coordination.AckPolicy
	wait       int64   // milliseconds
	backoff    []int64 // milliseconds
	maxPending int
	maxWaiting int
	maxDeliver uint32 // maximum deliveries of one record; 0: no bound

	replayOriginal bool

	endpoint      bool   // it pushes to an Endpoint
	flowControl   bool   // it awaits answers of the receiver
	relayed       bool   // a relay pulls for the push, from all shards (Pull.Relay)
	deliverTo     string // destination of a push to a subject; empty: none
	deliverGroup  string // queue group
	user          string // on whose behalf it is delivered there; empty: nobody's
	idleHeartbeat int64  // nanoseconds; 0: none
	rateLimit     uint64 // bits per second; 0: none
	every         int64  // nanoseconds between deliveries; 0: none

	priority coordination.PriorityPolicy
	pinFor   int64 // how long a pinned client may be silent, in nanoseconds
}

// settingsOf returns the settings of a spec for one of so many shards.
func settingsOf(spec *coordination.SubscriptionSpec, shards int) settings {
	s := settings{
		policy:     spec.Ack.Policy,
		wait:       milliseconds(spec.Ack.Wait),
		maxDeliver: uint32(min(spec.Ack.MaxDeliver, math.MaxUint32)),
		maxPending: spec.Ack.MaxPending,
		maxWaiting: spec.Consumer.MaxWaiting,

		endpoint: spec.Push != nil, deliverTo: spec.Consumer.DeliverSubject, deliverGroup: spec.Consumer.DeliverGroup, user: spec.Consumer.User, flowControl: spec.Consumer.FlowControl,
		idleHeartbeat: int64(max(spec.Consumer.IdleHeartbeat, 0)), rateLimit: spec.Consumer.RateLimit,
		every:          rateShare(spec, shards),
		replayOriginal: spec.Consumer.ReplayOriginal,
		priority:       spec.Consumer.PriorityPolicy, pinFor: int64(spec.Consumer.PriorityTimeout),
	}
	s.relayed = s.deliverTo != "" && shards > 1
	for _, f := range spec.Subjects {
		if f == ">" {
			s.filters = nil
			break
		}
		s.filters = append(s.filters, []byte(f))
	}
	if spec.Where != "" {
		s.where, _ = filter.Shared(spec.Where) // unsupported has seen it
	}
	for _, pause := range spec.Ack.Backoff {
		s.backoff = append(s.backoff, milliseconds(pause))
	}
	if s.policy == "" {
		s.policy = coordination.AckExplicit
	}
	if s.wait == 0 {
		s.wait = milliseconds(defaultAckWait)
	}
	switch {
	case s.maxPending == 0:
		s.maxPending = defaultMaxPending
	case s.maxPending < 0 || s.maxPending > mostPending:
		s.maxPending = mostPending
	}
	if s.maxWaiting <= 0 {
		s.maxWaiting = defaultMaxWaiting
	}
	if s.priority != "" {
		s.maxWaiting = min(s.maxWaiting, mostPrioritized)
	}
	return s
}

// milliseconds rounds up, so that a short pause does not become none.
func milliseconds(d time.Duration) int64 {
	whole := int64(d / time.Millisecond)
	if d%time.Millisecond > 0 {
		whole++
	}
	return whole
}

// ackWait returns the ack wait in milliseconds of a record's count-th delivery.
func (s *settings) ackWait(count uint32) int64 {
	if n := len(s.backoff); n > 0 {
		return s.backoff[min(max(int(count), 1), n)-1]
	}
	return s.wait
}

func (s *settings) matches(name []byte) bool {
	if len(s.filters) == 0 {
		return true
	}
	for _, f := range s.filters {
		if subject.Matches(f, name) {
			return true
		}
	}
	return false
}

// countsSubjects reports whether the lag is the number of records whose subject matches.
func (s *settings) countsSubjects() bool { return len(s.filters) > 0 && s.where == nil }

func (s *settings) sameFilters(other *settings) bool {
	if len(s.filters) != len(other.filters) || s.where != other.where {
		return false
	}
	for i := range s.filters {
		if !bytes.Equal(s.filters[i], other.filters[i]) {
			return false
		}
	}
	return true
}

// unsupported returns the first setting of the spec that is not supported yet, or "". None is
// ignored.
func unsupported(spec *coordination.SubscriptionSpec) string {
	c := &spec.Consumer
	pulled := c.DeliverSubject == ""
	for _, feature := range []struct {
		asked bool
		what  string
	}{
		{spec.Push != nil && spec.Ack.Policy != "" && spec.Ack.Policy != coordination.AckExplicit, "delivery to a URL (delivery.push) with another ack policy than Explicit"},
		{spec.Push != nil && !pulled, "delivery to a URL (delivery.push) and to a subject together"},
		{spec.Push != nil && c.PriorityPolicy != "", "delivery to a URL (delivery.push) with a priority policy"},
		{spec.DeadLetter != "" && spec.Ack.Policy == coordination.AckNone, "dead letters (deadLetter) without acks"},
		{pulled && c.DeliverGroup != "", "a queue group without a subject to deliver to"},
		{pulled && c.RateLimit > 0, "a rate limit without a subject to deliver to"},
		{pulled && (c.FlowControl || c.IdleHeartbeat > 0), "flow control without a subject to deliver to"},
	} {
		if feature.asked {
			return fmt.Sprintf("brokers can't serve %s yet; leave it out", feature.what)
		}
	}
	return misjudged(spec)
}

// misjudged returns why the condition of a spec can't be served, or "". The Topic may add reasons
// (SubscriptionSpec.Unjudgeable).
func misjudged(spec *coordination.SubscriptionSpec) string {
	if spec.Where == "" {
		if spec.Consumer.Metadata[coordination.WhereMetadata] != "" {
			return "a broker of an earlier version made it without its condition (metadata " + coordination.WhereMetadata + "); delete it and make it again"
		}
		return ""
	}
	if _, err := filter.Shared(spec.Where); err != nil {
		return "condition (filter.where): " + err.Error()
	}
	return spec.Unjudgeable(coordination.LimitsPolicy, 1)
}
