package scheduling

import (
	"strings"
	"sync"
	"time"
	_ "time/tzdata" // the image has no time zones
)

// Schedule is when a message is published again: once at a time, in intervals, or as a cron pattern
// says. It never changes.
type Schedule struct {
	at    time.Time
	every time.Duration
	cron  *cron
	zone  *time.Location
}

// Parse parses a pattern: "@at" and a time as RFC 3339 has it, "@every" and a duration as Go writes
// it, or a cron pattern of six fields or its name. Only the last has a time zone; nil: UTC. The
// reason is None, BadPattern or BadZone.
func Parse(pattern string, zone []byte) (s Schedule, why Reason) {
	if zone != nil {
		if s.zone = zoneOf(string(zone)); s.zone == nil {
			return s, BadZone
		}
	}
	if len(pattern) > maxPattern {
		return s, BadPattern
	}
	if text, ok := strings.CutPrefix(pattern, "@at "); ok {
		at, err := time.Parse(time.RFC3339, text)
		if s.at = at; err != nil || at.IsZero() || zone != nil || at.Year() < 1970 || at.Year() > 2200 {
			return s, BadPattern
		}
		return s, None
	}
	if text, ok := strings.CutPrefix(pattern, "@every "); ok {
		every, err := time.ParseDuration(text)
		if s.every = every; err != nil || every < leastInterval || zone != nil {
			return s, BadPattern
		}
		return s, None
	}
	c, ok := parseCron(pattern)
	if s.cron = &c; !ok {
		return s, BadPattern
	}
	if s.zone == nil {
		s.zone = time.UTC
	}
	return s, None
}

// Repeats reports whether there is another time after each.
func (s *Schedule) Repeats() bool { return s.at.IsZero() }

// Next returns the time after another one, but not before now: times that have passed count once.
// Times are in nanoseconds since 1970. ok is false if a cron pattern has no such time for years.
func (s *Schedule) Next(after, now int64) (next int64, ok bool) {
	switch {
	case !s.Repeats():
		return s.at.UnixNano(), true
	case s.every > 0:
		if next = rounded(after) + int64(s.every); next < now {
			next = rounded(now) + int64(s.every)
		}
		return next, next > 0
	}
	t, ok := s.cron.next(time.Unix(0, after).In(s.zone))
	if ok && t.UnixNano() < now {
		t, ok = s.cron.next(time.Unix(0, rounded(now)).In(s.zone))
	}
	return t.UnixNano(), ok
}

// rounded returns the nearest second.
func rounded(t int64) int64 { return time.Unix(0, t).Round(time.Second).UnixNano() }

// zones are those that were asked for. There are some hundred names.
var zones sync.Map

// zoneOf returns the time zone of a name, or nil.
func zoneOf(name string) *time.Location {
	if name == "" || name == "Local" {
		return nil
	}
	if zone, ok := zones.Load(name); ok {
		return zone.(*time.Location)
	}
	zone, err := time.LoadLocation(name)
	if err != nil {
		return nil
	}
	zones.Store(name, zone)
	return zone
}
