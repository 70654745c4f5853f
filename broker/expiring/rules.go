package expiring

import (
	"math"
	"time"

	"github.com/carillon-mq/carillon/broker/clock"
	"github.com/carillon-mq/carillon/broker/coordination"
	"github.com/carillon-mq/carillon/broker/publish"
	"github.com/carillon-mq/carillon/broker/removing"
)

// Rules are what a Topic says of records that expire. By the zero value none does.
type Rules struct {
	On     bool          // messages may have a TTL
	Age    time.Duration // after which the others expire; 0: never
	Marker time.Duration // the TTL of markers; 0: there are none
	// least is the shortest TTL: a record must not expire before a marker that is older.
	least time.Duration
}

// RulesOf returns the rules of a Topic. If they are on, nothing else removes its records by age.
func RulesOf(spec *coordination.TopicSpec) (r Rules) {
	if !spec.Stream.AllowMessageTTL {
		return r
	}
	r = Rules{On: true, Age: spec.Retention.Age, Marker: spec.Stream.SubjectDeleteMarkerTTL.Truncate(time.Second)}
	if spec.Stream.MaxPerSubject != 1 {
		r.least = r.Marker
	}
	return r
}

// Expires returns when a message expires that is published now; 0: not by a TTL. Times are those of
// records. The refusal is for publish.Codec.
func (r *Rules) Expires(topic string, c *publish.Conditions, now int64, removed *removing.Keeper) (at int64, refusal error) {
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
	ttl := max(c.TTL, r.least)
	if now > math.MaxInt64-int64(ttl) {
		return math.MaxInt64, nil
	}
	return now + int64(ttl), nil
}

// Paused returns why records don't expire by age at the moment, as a reason and for people; empty:
// they do, or never.
func (r *Rules) Paused(c *clock.Clock) (reason clock.Reason, why string) {
	if v := c.Verdict(); r.Age > 0 && v.Doubt != clock.None {
		return v.Doubt, v.Why
	}
	return clock.None, ""
}
