package scheduling

import (
	"slices"

	"github.com/carillon-mq/carillon/broker/subject"
)

// Request is what the headers of a message say of schedules. Its slices point into the header. A
// nil slice is an absent header.
type Request struct {
	Pattern, Zone, TTL, Rollup, Target, Source, Scheduler, Next []byte
	// BadTTL reports that TTL is none, and RollsUp that the message itself asks for a rollup other
	// than of its subject.
	BadTTL, RollsUp bool
}

// Schedules reports whether the message is a schedule.
func (q *Request) Schedules() bool { return q != nil && len(q.Pattern) > 0 }

// Ends returns the subject whose schedule the message ends; nil: none.
func (q *Request) Ends() []byte {
	if q == nil || string(q.Next) != "purge" {
		return nil
	}
	return q.Scheduler
}

// Reason is why a message is refused.
type Reason uint8

// The reasons.
const (
	None         Reason = iota
	Disabled            // the stream allows no schedules
	BadPattern          // a pattern, or a cron pattern without a time
	BadZone             // a time zone
	BadTTL              // Nats-Schedule-TTL
	NoTTL               // the stream allows no TTLs
	BadRollup           // Nats-Schedule-Rollup, or Nats-Rollup
	BadTarget           // Nats-Schedule-Target
	BadSource           // Nats-Schedule-Source
	BadScheduler        // Nats-Scheduler or Nats-Schedule-Next
)

// Error reports a message that is refused.
type Error struct {
	Topic  string
	Reason Reason
}

func (e *Error) Error() string {
	return "topic " + e.Topic + ": " + [...]string{
		"", "messages can't be scheduled", "the pattern of a schedule is invalid", "the time zone of a schedule is unknown", "the TTL of a schedule is invalid",
		"its messages may not have a TTL", "the rollup of a schedule is invalid", "the target of a schedule is invalid", "the source of a schedule is invalid",
		"only the stream itself says which schedule a message is of, and a message ends the schedule of another subject only",
	}[e.Reason]
}

// Rules are what a stream says of schedules. A nil Rules allows none.
type Rules struct {
	Subjects []string // of the stream
	TTLs     bool     // messages may have a TTL
}

// Check returns the schedule of a message on a subject, or why it is refused. ok is false if it has
// no schedule, and is not refused either.
func (r *Rules) Check(q *Request, name []byte) (s Schedule, ok bool, why Reason) {
	switch {
	case r == nil && (len(q.Pattern) > 0 || string(q.Next) == "purge"):
		return s, false, Disabled
	case (len(q.Scheduler) > 0 || len(q.Next) > 0) && !q.endsAnother(name):
		return s, false, BadScheduler
	case len(q.Pattern) == 0:
		return s, false, None
	}
	if s, why = Parse(string(q.Pattern), q.Zone); why == None {
		why = r.check(q, name)
	}
	return s, why == None, why
}

// endsAnother reports whether a message on a subject ends the schedule of another one.
func (q *Request) endsAnother(name []byte) bool {
	of := q.Ends()
	return len(of) > 0 && string(of) != string(name) && subject.Valid(of)
}

func (r *Rules) check(q *Request, name []byte) Reason {
	switch {
	case q.BadTTL:
		return BadTTL
	case len(q.Rollup) > 0 && string(q.Rollup) != "sub":
		return BadRollup
	case len(q.TTL) > 0 && !r.TTLs:
		return NoTTL
	case !subject.Valid(q.Target) || string(q.Target) == string(name) || !r.has(q.Target):
		return BadTarget
	case len(q.Source) > 0 && (!subject.Valid(q.Source) || string(q.Source) == string(q.Target) || string(q.Source) == string(name) || !r.has(q.Source)):
		return BadSource
	case q.RollsUp:
		return BadRollup
	}
	return None
}

func (r *Rules) has(name []byte) bool {
	return slices.ContainsFunc(r.Subjects, func(of string) bool { return subject.Matches([]byte(of), name) })
}
