package subscription

import (
	"github.com/carillon-mq/carillon/broker/filter"
	"github.com/carillon-mq/carillon/broker/log"
	"github.com/carillon-mq/carillon/broker/work"
)

// task is a Subscription, a cursorStore or the tail of one.
type task interface {
	work.Task
	// step does a bounded part of the work and reports whether there is more.
	step(w *worker) (more bool)
}

// tasks steps the Subscriptions and cursor stores of a Service.
type tasks struct{ *work.Tasks[task, worker] }

func newTasks(workers int) tasks {
	return tasks{work.NewTasks(workers, func(w *worker, t task, _ work.Lane) bool { return t.step(w) })}
}

// wake makes a worker step t soon. Cursor stores come first, since acks wait for their disk writes.
func (q tasks) wake(t task) {
	if _, store := t.(*cursorStore); store {
		q.Wake(t, work.Urgent)
	} else {
		q.Wake(t, work.Normal)
	}
}

// worker holds the buffers of one worker goroutine. The task that is stepped borrows them, so that
// idle tasks hold none.
type worker struct {
	readMemory  []byte // for first deliveries
	otherMemory []byte // for everything else

	// The read position of first deliveries. While open, view is held. have reports that record is
	// an undelivered record of it. saved is the reader before view.
	view     log.View
	records  log.RecordIter
	batchEnd uint64
	record   log.Record
	open     bool
	have     bool
	saved    log.Cursor

	// The read position of redeliveries.
	otherView    log.View
	otherRecords log.RecordIter
	otherEnd     uint64 // end of the current batch
	other        log.Record
	otherOpen    bool

	// Of readView: it was called by what was called last, it was called in this step, and what it
	// read last is of no use.
	read, unlocked, stale bool

	delivery Delivery
	found    []uint64 // of verdicts, before they are merged
	judging  filter.Record
	stamp    filter.Stamp // of judging
}
