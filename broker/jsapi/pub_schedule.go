package jsapi

import (
	"bytes"

	"github.com/carillon-mq/carillon/broker/publish"
	"github.com/carillon-mq/carillon/broker/scheduling"
)

// noteSchedule notes a header about schedules, the first one of each name. It reports whether it is
// one.
func (p *Publish) noteSchedule(key, value []byte) bool {
	if !bytes.HasPrefix(key, []byte("Nats-Schedule")) {
		return false
	}
	if p.Schedule == nil {
		p.Schedule = &scheduling.Request{}
	}
	q := p.Schedule
	to := map[string]*[]byte{
		"Nats-Schedule": &q.Pattern, "Nats-Schedule-Time-Zone": &q.Zone, "Nats-Schedule-TTL": &q.TTL, "Nats-Schedule-Rollup": &q.Rollup,
		"Nats-Schedule-Target": &q.Target, "Nats-Schedule-Source": &q.Source, "Nats-Scheduler": &q.Scheduler, "Nats-Schedule-Next": &q.Next,
	}[string(key)]
	if to == nil {
		return false
	}
	if *to == nil {
		*to = append([]byte{}, value...)
	}
	return true
}

// finishSchedule judges what is said of a schedule beside other headers. A scheduled message is a
// rollup of its subject: a subject has one schedule.
func (p *Publish) finishSchedule() {
	q := p.Schedule
	if !q.Schedules() {
		return
	}
	if len(q.TTL) > 0 {
		_, ok := parseTTL(string(q.TTL))
		q.BadTTL = !ok
	}
	if q.RollsUp = p.Rollup == publish.RollupAll; !q.RollsUp {
		p.Rollup = publish.RollupSubject
	}
}

// scheduleErrors are the refusals of scheduled messages, by their reason.
var scheduleErrors = [...]*Error{
	scheduling.Disabled: ErrMessageSchedulesDisabled, scheduling.BadPattern: ErrMessageSchedulesPatternInvalid, scheduling.BadZone: ErrMessageSchedulesTimeZoneInvalid,
	scheduling.BadTTL: ErrMessageSchedulesTTLInvalid, scheduling.NoTTL: ErrMessageTTLDisabled, scheduling.BadRollup: ErrMessageSchedulesRollupInvalid,
	scheduling.BadTarget: ErrMessageSchedulesTargetInvalid, scheduling.BadSource: ErrMessageSchedulesSourceInvalid, scheduling.BadScheduler: ErrMessageSchedulesSchedulerInvalid,
}

// ScheduleError returns the refusal of a scheduled message.
func ScheduleError(why scheduling.Reason) *Error { return scheduleErrors[why] }
