package expiring

import (
	"context"
	"errors"
	"math"
	"slices"

	"github.com/carillon-mq/carillon/broker/log"
	"github.com/carillon-mq/carillon/broker/protocol"
	"github.com/carillon-mq/carillon/broker/publish"
	"github.com/carillon-mq/carillon/broker/records"
	"github.com/carillon-mq/carillon/broker/removing"
	"github.com/carillon-mq/carillon/broker/scheduling"
)

// fired is a schedule whose message was published, and perhaps not kept.
type fired struct {
	due   int64 // of the schedule
	next  int64 // when it is published again, on the clock's Mono
	tries int
}

// fire publishes the messages of schedules that are due: some. It returns what has expired of due,
// which is in order, and reports whether there are more schedules. The error is about records that
// can't be read; the others are dealt with.
func (e *expirer[S]) fire(ctx context.Context, s S, p *place, rules Rules, removed *removing.Keeper, due []uint64, now, mono int64) (expired []uint64, more bool, err error) {
	for offset := range p.fired {
		if _, found := slices.BinarySearch(due, offset); !found {
			delete(p.fired, offset)
		}
	}
	var messages []protocol.Message
	size := 0
	for _, offset := range due {
		at := removed.DueAt(offset)
		f := p.fired[offset]
		if f.due != at {
			f = fired{due: at}
		}
		if at == 0 || mono < f.next {
			continue
		}
		if more = len(messages) == firedAtOnce || size > firedBytes; more {
			break
		}
		r, unread := s.Get(offset)
		if _, gone := errors.AsType[*records.NoRecordError](unread); gone {
			continue
		}
		if unread != nil {
			err = errors.Join(err, unread)
			continue
		}
		c := e.conditions(&r)
		if !c.Schedule.Schedules() || c.TTL > 0 && rules.On && rules.end(c.TTL, r.Time) <= now {
			expired = append(expired, offset)
			continue
		}
		m, ok, unread := e.result(ctx, s, &rules, &r, &c, at, now)
		if unread != nil {
			err = errors.Join(err, unread)
			continue
		}
		if !ok { // it has no time any more, by a later database of time zones
			expired = append(expired, offset)
			continue
		}
		if f.tries++; f.tries == markerTries {
			e.Logger.Warn("the message of a schedule is not kept: its topic does not take it", "topic", s.Name(), "schedule", string(r.Subject), "offset", offset)
		}
		f.next = mono + min(int64(markerRest)<<min(f.tries-1, 16), int64(firedRest))
		p.fired[offset] = f
		messages, size = append(messages, m), size+len(m.Data)
	}
	if len(messages) > 0 {
		s.Publish(messages)
	}
	return expired, more, err
}

// result returns the message of a schedule that is due. ok is false if the schedule has no meaning
// any more.
func (e *expirer[S]) result(ctx context.Context, s S, rules *Rules, r *log.Record, c *publish.Conditions, at, now int64) (m protocol.Message, ok bool, err error) {
	schedule, why := scheduling.Parse(string(c.Schedule.Pattern), c.Schedule.Zone)
	if why != scheduling.None {
		return m, false, nil
	}
	f := scheduling.Firing{Offset: r.Offset, Due: at}
	if schedule.Repeats() {
		if f.Next, ok = schedule.Next(at, now); !ok {
			return m, false, nil
		}
		if c.TTL > 0 && rules.On {
			f.Next = min(f.Next, rules.end(c.TTL, r.Time))
		}
	}
	of := r
	if source := c.Schedule.Source; len(source) > 0 {
		_, end := s.Offsets()
		last, err := s.LastBelow(ctx, string(source), end, false)
		if err != nil {
			return m, false, err
		}
		if last > 0 {
			found, err := s.Get(last)
			if _, gone := errors.AsType[*records.NoRecordError](err); !gone && err != nil {
				return m, false, err
			} else if !gone {
				of = &found
			}
		}
	}
	return scheduling.Result(f, c.Schedule, r.Subject, of.Data[:of.Header], of.Data[of.Header:]), true, nil
}

// Fired is of which schedule a message is, or which one it ends. The zero value is that of any
// other message.
type Fired struct {
	scheduling.Firing
	ends bool
}

// Ending is the Fired of a message that ends the schedule at an offset.
func Ending(offset uint64) Fired {
	return Fired{Firing: scheduling.Firing{Offset: offset}, ends: true}
}

// Judge returns of which schedule a message is, by what it says in c. batch has what its batch is
// going to carry. It is refused if the schedule is not due any more: its message was kept, or it
// was replaced or removed.
func Judge(topic string, c *publish.Conditions, m *protocol.Message, removed *removing.Keeper, batch *removing.Batch) (f Fired, refusal error) {
	if len(c.Fires) == 0 {
		return f, nil
	}
	firing, ok := scheduling.ParseFiring(c.Fires)
	if !ok || firing.Due <= 0 || firing.Inner < 0 || firing.Inner > len(m.Data)-m.Header || batch.Touches(firing.Offset) || removed.DueAt(firing.Offset) != firing.Due {
		return f, &scheduling.Error{Topic: topic, Reason: scheduling.BadScheduler}
	}
	return Fired{Firing: firing}, nil
}

// Keep notes in batch what becomes of the schedule: it is removed and never due again, or due at
// its next time. Until that is committed the Keeper knows by the latter that the message is under
// way.
func (f *Fired) Keep(data *log.Log, batch *removing.Batch) {
	if f.Offset == 0 {
		return
	}
	next := f.Next
	if next == 0 {
		batch.AddFrom(data, f.Offset, f.Offset+1)
		next = math.MaxInt64
	}
	epoch, _ := data.EpochAt(f.Offset)
	batch.Expire(epoch, f.Offset, next)
}

// Record returns a record without what was said to the leader alone.
func (f *Fired) Record(r log.Record) log.Record {
	if f.Offset > 0 && !f.ends {
		r.Data, r.Header = r.Data[r.Header:], f.Inner
	}
	return r
}
