package batching

import (
	"github.com/carillon-mq/carillon/broker/publish"
	"github.com/carillon-mq/carillon/broker/scheduling"
	wild "github.com/carillon-mq/carillon/broker/subject"
)

// Rules hold the messages of one batch to what they may ask for beside the others. The zero Rules
// are for the first message. They are pure.
type Rules struct {
	count    int
	subjects map[string]struct{} // of the messages before
	ids      map[string]struct{}
}

// Reset begins another batch.
func (r *Rules) Reset() {
	r.count = 0
	clear(r.subjects)
	clear(r.ids)
}

// Refusal returns why the next message, on a subject, refuses its batch, or nil. A condition on the
// last record is about what was there before the batch, so it can't be about what the batch writes.
func (r *Rules) Refusal(topic string, subject []byte, c *publish.Conditions, last uint64) error {
	switch {
	case len(c.ExpectedLastID) > 0:
		return unsupported(topic, "Nats-Expected-Last-Msg-Id")
	case c.Records > 0:
		return unsupported(topic, "Carillon-Records")
	case len(c.After) > 0:
		return unsupported(topic, "Carillon-After")
	case c.ExpectsLastBySubject && wild.HasWildcards(c.LastOf(subject)):
		return unsupported(topic, "Nats-Expected-Last-Subject-Sequence of a subject with wildcards")
	case c.Rollup == publish.RollupSubject && wild.HasWildcards(subject):
		return unsupported(topic, "Nats-Rollup of a subject with wildcards")
	case len(c.Schedule.Ends()) > 0:
		return unsupported(topic, "Nats-Schedule-Next")
	case len(c.Fires) > 0:
		return unsupported(topic, scheduling.Header)
	case c.ExpectsLast && r.count > 0 && c.ExpectedLast != last:
		return &publish.WrongLastError{Topic: topic, Last: last}
	case c.ExpectsLast && r.count > 0, c.ExpectsLastBySubject && has(r.subjects, c.LastOf(subject)):
		return &publish.BatchError{Topic: topic, Fault: publish.BatchRewritten}
	case c.Rollup == publish.RollupSubject && has(r.subjects, subject):
		return &publish.RollupError{Topic: topic, Why: "batch rollup sub invalid"}
	case c.Rollup == publish.RollupAll && r.count > 0:
		return &publish.RollupError{Topic: topic, Why: "batch rollup all invalid"}
	case len(c.ID) > 0 && has(r.ids, c.ID):
		return &publish.BatchError{Topic: topic, Fault: publish.BatchDuplicate}
	}
	if r.subjects == nil {
		r.subjects, r.ids = map[string]struct{}{}, map[string]struct{}{}
	}
	r.count++
	r.subjects[string(subject)] = struct{}{}
	if len(c.ID) > 0 {
		r.ids[string(c.ID)] = struct{}{}
	}
	return nil
}

func has(of map[string]struct{}, key []byte) bool {
	_, ok := of[string(key)]
	return ok
}

func unsupported(topic, header string) error {
	return &publish.BatchError{Topic: topic, Fault: publish.BatchUnsupported, What: header}
}
