package republish

import (
	"sync"

	"github.com/carillon-mq/carillon/broker/log"
	"github.com/carillon-mq/carillon/broker/work"
)

// Note is a message that was appended and is to be published again.
type Note struct {
	Rule   *Rule
	Offset uint64
	Count  uint32 // of its records
	Known  bool   // Last is known
	Last   uint64 // offset of the message before it on its subject; 0: none
}

// Source is a shard that this broker leads.
type Source interface {
	Name() string
	// Offsets returns the offsets that readers see: start ≤ offset < end.
	Offsets() (start, end uint64)
	NewCursor(from uint64) *log.Cursor
}

// Queue has the messages of one led shard that are to be published again. Its methods are safe for
// concurrent use; Append is called in the order of the log.
type Queue struct {
	work.State
	publisher *Publisher
	source    Source
	cursor    *log.Cursor // the worker's; nil: nothing was read yet

	mu     sync.Mutex
	notes  []Note
	head   int // of notes: those before it were taken
	closed bool
	full   bool // notes were dropped since the queue was empty
}

// Init prepares a queue. by may be nil: then nothing is published. Close ends it.
func (q *Queue) Init(by *Publisher, of Source) { q.publisher, q.source = by, of }

// Append adds messages that were appended to the log. They are published when they are committed.
func (q *Queue) Append(notes []Note) {
	if q.publisher == nil || len(notes) == 0 {
		return
	}
	q.mu.Lock()
	if q.closed {
		q.mu.Unlock()
		return
	}
	room := min(waiting-(len(q.notes)-q.head), len(notes))
	room = q.publisher.reserve(room)
	if q.head > 0 && len(q.notes)+room > cap(q.notes) {
		q.notes = q.notes[:copy(q.notes, q.notes[q.head:])]
		q.head = 0
	}
	q.notes = append(q.notes, notes[:room]...)
	begins := room < len(notes) && !q.full
	q.full = q.full || begins
	q.mu.Unlock()
	q.publisher.dropped.Add(uint64(len(notes) - room))
	if begins {
		q.publisher.logger.Warn("messages of a stream are not republished, since too many wait for it", "topic", q.source.Name())
	}
	q.Moved() // they may be committed already
}

// Moved has the publisher look for messages that are committed now. It is called when the high
// watermark has moved.
func (q *Queue) Moved() {
	if q.publisher == nil {
		return
	}
	q.mu.Lock()
	due := q.head < len(q.notes)
	if due {
		_, end := q.source.Offsets()
		due = q.notes[q.head].Offset < end
	}
	q.mu.Unlock()
	if due {
		q.publisher.tasks.Wake(q, work.Normal)
	}
}

// Close drops what waits. Nothing is added any more.
func (q *Queue) Close() {
	if q.publisher == nil {
		return
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	q.publisher.held.Add(-int64(len(q.notes) - q.head))
	q.closed, q.notes, q.head = true, nil, 0
}

// take moves the notes of committed messages to dst, at most some, and reports whether there are
// more.
func (q *Queue) take(dst []Note, most int) (due []Note, more bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	_, end := q.source.Offsets()
	for q.head < len(q.notes) && q.notes[q.head].Offset+uint64(q.notes[q.head].Count) <= end {
		if len(dst) == most {
			more = true
			break
		}
		dst = append(dst, q.notes[q.head])
		q.head++
	}
	q.publisher.held.Add(-int64(len(dst)))
	if q.head == len(q.notes) {
		q.head, q.full = 0, false
		if q.notes = q.notes[:0]; cap(q.notes) > atOnce {
			q.notes = nil
		}
	}
	return dst, more
}
