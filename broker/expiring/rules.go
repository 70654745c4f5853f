package expiring

import (
	"math"
	"time"

	"github.com/carillon-mq/carillon/broker/clock"
	"github.com/carillon-mq/carillon/broker/coordination"
	"github.com/carillon-mq/carillon/broker/publish"
	"github.com/carillon-mq/carillon/broker/removing"
	"github.com/carillon-mq/carillon/broker/scheduling"
)

// Rules are what a Topic says of records that expire. By the zero value none does.
type Rules struct {
	On     bool          // messages may have a TTL
	Age    time.Duration // after which the others expire; 0: never
	Marker time.Duration // the TTL of markers; 0: there are none
	// least is the shortest TTL: a record must not expire before a marker that is older.
	least time.Duration
	// Schedules are what messages may ask for that are published when they are due; nil: nothing.
	Schedules *scheduling.Rules
}

// RulesOf returns the rules of a Topic. If they are on, nothing else removes its records by age.
func RulesOf(spec *coordination.TopicSpec) (r Rules) {
	if spec.Stream.AllowSchedules {
		r.Schedules = &scheduling.Rules{Subjects: spec.Subjects, TTLs: spec.Stream.AllowMessageTTL}
	}
	if !spec.Stream.AllowMessageTTL {
		return r
	}
	r.On, r.Age, r.Marker = true, spec.Retention.Age, spec.Stream.SubjectDeleteMarkerTTL.Truncate(time.Second)
	if spec.Stream.MaxPerSubject != 1 {
		r.least = r.Marker
	}
	return r
}

// Expires returns when a message expires that is published now on a subject, or its schedule is
// due, whichever comes first; 0: neither. Times are those of records. The refusal is for
// publish.Codec.
func (r *Rules) Expires(topic string, subject []byte, c *publish.Conditions, now int64, removed *removing.Keeper) (at int64, refusal error) {
	if at, refusal = r.ttl(topic, c, now, removed); refusal != nil || c.Schedule == nil {
		return at, refusal
	}
	schedule, ok, why := r.Schedules.Check(c.Schedule, subject)
	if ends := len(c.Schedule.Ends()) > 0; why == scheduling.None && !ok && !(ends && c.Records > 0) {
		return at, nil
	}
	var due int64
	if ok {
		if due, ok = schedule.Next(now, now); !ok {
			why = scheduling.BadPattern
		}
	}
	switch {
	case why != scheduling.None:
		return 0, &scheduling.Error{Topic: topic, Reason: why}
	case c.Records > 0:
		return 0, &publish.RecordsError{Topic: topic, Why: "a message with several records can't be scheduled, nor end a schedule"}
	case !removed.MayExpire():
		return 0, &publish.FullError{Topic: topic, Of: "messages with a TTL or a schedule", Max: removing.MaxExpiries}
	}
	if due = max(due, 1); at == 0 {
		return due, nil
	}
	return min(at, due), nil
}

// ttl returns when a message expires.
func (r *Rules) ttl(topic string, c *publish.Conditions, now int64, removed *removing.Keeper) (at int64, refusal error) {
	switch {
	case c.TTL == 0:
		return 0, nil
	case !r.On:
		return 0, &publish.TTLError{Topic: topic}
	case c.Records > 0:
		return 0, &publish.RecordsError{Topic: topic, Why: "a message with several records can't have a TTL"}
	case c.TTL == publish.Never:
		return 0, nil
	case !removed.MayExpire():
		return 0, &publish.FullError{Topic: topic, Of: "messages with a TTL", Max: removing.MaxExpiries}
	}
	return r.end(c.TTL, now), nil
}

// end returns when a message with a TTL expires that was published at a time.
func (r *Rules) end(ttl time.Duration, published int64) int64 {
	if ttl = max(ttl, r.least); published > math.MaxInt64-int64(ttl) {
		return math.MaxInt64
	}
	return published + int64(ttl)
}

// Paused returns why records don't expire by age at the moment, as a reason and for people; empty:
// they do, or never.
func (r *Rules) Paused(c *clock.Clock) (reason clock.Reason, why string) {
	if v := c.Verdict(); r.Age > 0 && v.Doubt != clock.None {
		return v.Doubt, v.Why
	}
	return clock.None, ""
}
