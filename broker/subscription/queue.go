package subscription

import (
	"github.com/carillon-mq/carillon/broker/log"
	"github.com/carillon-mq/carillon/broker/work"
)

// task is a Subscription or a cursorStore.
type task interface {
	work.Task
	// step does a bounded part of the work and returns whether there is more.
	step(w *worker) (more bool)
}

// tasks steps the Subscriptions and cursor stores of a Service.
type tasks struct{ *work.Tasks[task, worker] }

func newTasks(workers int) tasks {
	return tasks{work.NewTasks(workers, func(w *worker, t task, _ work.Lane) bool { return t.step(w) })}
}

// wake makes a worker step t soon. Cursor stores come first: acks wait for their disk writes.
func (q tasks) wake(t task) {
	if _, store := t.(*cursorStore); store {
		q.Wake(t, work.Urgent)
	} else {
		q.Wake(t, work.Normal)
	}
}

// worker is what one goroutine of the queue lends to the tasks that it steps, so that these need no
// memory of their own while they are idle.
type worker struct {
	readMemory  []byte // of files, for what is delivered first
	otherMemory []byte // and for everything else

	// What the Subscription that is stepped reads for the first time: while open, view is held, and
	// have says that record is one of it that was not delivered yet. saved is its reader before view.
	view     log.View
	records  log.RecordIter
	batchEnd uint64
	record   log.Record
	open     bool
	have     bool
	saved    log.Cursor

	// What it reads to deliver it again.
	otherView    log.View
	otherRecords log.RecordIter
	otherEnd     uint64 // of the batch that they are of
	other        log.Record
	otherOpen    bool

	delivery Delivery
}
