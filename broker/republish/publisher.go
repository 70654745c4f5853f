package republish

import (
	"errors"
	"log/slog"
	"sync/atomic"

	"github.com/carillon-mq/carillon/broker/log"
	"github.com/carillon-mq/carillon/broker/protocol"
	"github.com/carillon-mq/carillon/broker/work"
)

// Hub is the clients and Topics of this broker and of linked ones. *session.Hub implements it.
type Hub interface {
	// Publish publishes messages to subscribers and Topics. It copies them and never waits. It
	// returns the sender loops and links that are behind, of those that the messages went to.
	Publish(messages []protocol.Message) work.Behind
}

// Publisher publishes the queues of a broker.
type Publisher struct {
	hub     Hub
	may     func(user string, on []byte) bool
	payload int
	logger  *slog.Logger
	tasks   *work.Tasks[*Queue, scratch]
	held    atomic.Int64 // notes in all queues

	published, dropped atomic.Uint64
}

// Stats are counters of a Publisher.
type Stats struct {
	Published uint64
	Dropped   uint64 // too many waited, they were gone, too large, or their user had no right
}

// scratch is the memory of a worker.
type scratch struct {
	notes    []Note
	messages []protocol.Message
	bytes    []byte
	file     []byte // that cursors read into
}

// NewPublisher returns a Publisher; nil without a hub. Messages of more than payload bytes are not
// published: links and clients take none; 0: no bound. Neither are those that may not be published
// on behalf of the user of a stream; nil: all may. Close ends it.
func NewPublisher(hub Hub, payload int, may func(user string, on []byte) bool, logger *slog.Logger) *Publisher {
	if hub == nil {
		return nil
	}
	if may == nil {
		may = func(string, []byte) bool { return true }
	}
	p := &Publisher{hub: hub, payload: payload, may: may, logger: logger}
	p.tasks = work.NewTasks(workers, func(w *scratch, q *Queue, _ work.Lane) bool { return p.step(w, q) })
	return p
}

// Close ends publishing.
func (p *Publisher) Close() {
	if p != nil {
		p.tasks.Close()
	}
}

// Stats returns the counters.
func (p *Publisher) Stats() Stats {
	if p == nil {
		return Stats{}
	}
	return Stats{p.published.Load(), p.dropped.Load()}
}

// reserve returns for how many of some notes there is room, which is the caller's then.
func (p *Publisher) reserve(some int) int {
	over := p.held.Add(int64(some)) - waitingInAll
	if over <= 0 {
		return some
	}
	back := min(over, int64(some))
	p.held.Add(-back)
	return some - int(back)
}

// step publishes some messages of a queue, and reports whether there are more.
func (p *Publisher) step(w *scratch, q *Queue) (more bool) {
	w.notes, more = q.take(w.notes[:0], atOnce)
	if len(w.notes) == 0 {
		return false
	}
	if q.cursor == nil {
		q.cursor = q.source.NewCursor(w.notes[0].Offset)
	}
	own := q.cursor.Lend(w.file)
	left, err := p.publish(w, q, w.notes)
	w.file = q.cursor.Lend(own)
	if cap(w.bytes) > keptBytes {
		w.bytes = nil
	}
	if left > 0 {
		p.dropped.Add(uint64(left))
		p.logger.Warn("messages of a stream can't be read, and are not republished", "topic", q.source.Name(), "messages", left, "error", err)
	}
	return more
}

// publish publishes messages in order. It returns how many could not be read, and why.
func (p *Publisher) publish(w *scratch, q *Queue, due []Note) (left int, err error) {
	for len(due) > 0 {
		if q.cursor.Next() != due[0].Offset {
			q.cursor.Seek(due[0].Offset)
		}
		v, err := q.cursor.Read(readBytes)
		if gone, ok := errors.AsType[*log.RangeError](err); ok && gone.Start > due[0].Offset {
			due = p.pass(due, gone.Start)
			continue
		}
		if err != nil || v.End <= due[0].Offset {
			v.Release()
			return len(due), err
		}
		w.messages, w.bytes = w.messages[:0], w.bytes[:0]
		for b, ok := v.Next(); ok && len(due) > 0; b, ok = v.Next() {
			due = p.encode(w, b, due)
		}
		end := v.End
		v.Release()
		due = p.pass(due, end)
		if len(w.messages) > 0 {
			p.published.Add(uint64(len(w.messages)))
			behind := p.hub.Publish(w.messages)
			behind.Wait()
			clear(w.messages)
		}
	}
	return 0, nil
}

// pass returns the notes from an offset on: the log doesn't have those before it any more.
func (p *Publisher) pass(due []Note, start uint64) []Note {
	n := 0
	for n < len(due) && due[n].Offset < start {
		n++
	}
	p.dropped.Add(uint64(n))
	return due[n:]
}

// encode adds the messages of a batch to those that are published, and returns the notes behind it.
func (p *Publisher) encode(w *scratch, b log.Batch, due []Note) []Note {
	it := b.Records()
	for r := (log.Record{}); len(due) > 0 && it.Next(&r); {
		for len(due) > 0 && due[0].Offset+uint64(due[0].Count) <= r.Offset {
			due = due[1:]
		}
		if len(due) == 0 || r.Offset < due[0].Offset {
			continue
		}
		n := &due[0]
		last := n.Last
		if r.Offset > n.Offset {
			last = r.Offset - 1 // of the same message, which carries several
		}
		m, bytes, ok := n.Rule.append(w.bytes, &r, n, last)
		if ok && (p.payload > 0 && len(m.Data) > p.payload || !p.may(n.Rule.user, m.Subject)) {
			ok = false
			p.dropped.Add(1)
		}
		if w.bytes = bytes; ok {
			w.messages = append(w.messages, m)
		}
	}
	for len(due) > 0 && due[0].Offset+uint64(due[0].Count) <= b.End() {
		due = due[1:]
	}
	return due
}
