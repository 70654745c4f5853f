package main

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"runtime"
	"time"

	"github.com/carillon-mq/carillon/broker/filter"
	"github.com/carillon-mq/carillon/broker/subject"
	"github.com/carillon-mq/carillon/client"
)

// batchesPerCore is how many batches are judged, or wait for those before them, for each core: one
// more than it works on, so that it has the next one while what it found is printed.
const batchesPerCore = 2

// mostBatches bounds their memory on machines with many cores. Each has an answer of 1 MiB, or of
// one large message, and what is printed of it, or up to 65,536 messages that are kept.
const mostBatches = 32

// recordsPerLook is after how many records of a batch it is looked whether the query has ended. A
// condition may take some tenths of a second for the most expensive record.
const recordsPerLook = 64

// judged is what a batch was found to have. The goroutine that judges it uses it until done, and
// then the one that hands on the findings of its shard.
type judged struct {
	shard  int
	batch  client.Batch
	done   chan struct{}
	judge  *filter.Judge // nil: all match
	record filter.Record
	stamp  filter.Stamp // of record
	found  found        // scratch
	findings

	out      bytes.Buffer  // what is printed of those that match, or
	matching []found       // these themselves, or
	partial  *shardPartial // results of them
}

// set sets the record that is judged.
func (j *judged) set(v *client.View) {
	r := &j.record
	r.Subject, r.Header, r.Data, r.Time = v.Subject, v.Header, v.Data, v.Time
	r.SetAttributes(&j.stamp, v.Attributes)
}

// findings are counts, and what went wrong.
type findings struct {
	read, matched, failed int
	why                   error // of the first one that failed
	err                   error // the batch was not judged to its end
}

// prepare makes room for the batches that are judged at once.
func (q *query) prepare() {
	n := min(batchesPerCore*runtime.GOMAXPROCS(0), mostBatches)
	q.free = make(chan *judged, n)
	for range n {
		j := &judged{done: make(chan struct{}, 1)}
		if q.filter != nil {
			j.judge = q.filter.NewJudge()
		}
		if q.aggregation != nil {
			j.partial = q.aggregation.newShard()
		}
		q.free <- j
	}
}

// keeps says that messages that match are kept until it is their turn. Otherwise they are printed,
// or results are computed of them, on the goroutine that judges.
func (q *query) keeps() bool { return q.store != nil || q.count > 0 }

// step is what comes next of a shard: a batch, or offsets that can't be read, or that it has
// nothing more before a time.
type step struct {
	*judged
	unread uint64
	idle   time.Time
}

// line is how the batches of a part are judged: several at once, and handed on in their order.
type line struct {
	*query
	part
	steps chan step
}

// inRange reports whether a record with that offset and time is in the range that is asked for.
type inRange func(offset uint64, time int64) bool

// part is a part of a shard that is read.
type part struct {
	number int     // of the shard
	end    uint64  // of it: it has none of the records from there on; 0: without an end
	in     inRange // nil: all are
	// unjudged says that the broker has not judged the records.
	unjudged bool
}

// records judges the records of a reader, unless its broker has done so, and hands on those that
// match.
func (q *query) records(outer context.Context, r *client.Reader, p part) error {
	ctx, cancel := context.WithCancel(outer)
	defer cancel()
	l := &line{q, p, make(chan step, cap(q.free))}
	ended := make(chan error)
	go func() {
		err := l.handOn()
		cancel() // nobody takes what is still read
		for s := range l.steps {
			l.wait(s)
		}
		ended <- err
	}()
	err := l.read(ctx, r)
	close(l.steps)
	if failed := <-ended; failed != nil {
		return failed
	}
	return err
}

// read reads batches, and has them judged.
func (l *line) read(ctx context.Context, r *client.Reader) error {
	for l.end == 0 || r.Offset() < l.end {
		b, err := l.next(ctx, r, l.end == 0)
		if first, next := passedOver(r, err); next > 0 {
			if l.end == 0 || first < l.end {
				l.pass(first, next, err)
			}
			r.Seek(next)
			continue
		}
		if err != nil {
			return err
		}
		select {
		case j := <-l.free:
			j.shard, j.batch = l.number, *b
			go func() {
				j.err = l.judgeBatch(ctx, j)
				j.done <- struct{}{}
			}()
			l.steps <- step{judged: j}
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

// pass notes that messages can't be read, of which those from the end of the part on do not matter.
func (l *line) pass(first, next uint64, why error) {
	if l.end > 0 {
		next = min(next, l.end)
	}
	l.note("shard %d: messages from %d to %d can't be read: %v", l.number, first, next-1, why)
	l.steps <- step{unread: next - first}
}

// idlePoll is how often a shard without new messages is asked how late it is there.
const idlePoll = time.Second

// next returns the next records. While there are none, time goes on for the results' windows.
func (l *line) next(ctx context.Context, r *client.Reader, follows bool) (*client.Batch, error) {
	for {
		if l.aggregation == nil || !follows {
			return r.Batch(ctx)
		}
		waiting, cancel := context.WithTimeout(ctx, idlePoll)
		b, err := r.Batch(waiting)
		cancel()
		if !errors.Is(err, context.DeadlineExceeded) || ctx.Err() != nil {
			return b, err
		}
		if at, ok := r.CaughtUp(); ok {
			l.steps <- step{idle: at.Add(-idleLateness)}
		}
	}
}

// judgeBatch judges the records of a batch, unless the broker has judged them.
func (l *line) judgeBatch(ctx context.Context, j *judged) error {
	if !l.unjudged {
		return l.takeBatch(ctx, j)
	}
	r, of, wanted := &j.record, []byte(nil), false
	for v := range j.batch.Views() {
		if l.end > 0 && v.Offset >= l.end {
			break
		}
		if j.partial != nil {
			j.partial.greatest = max(j.partial.greatest, v.Time)
		}
		if l.in != nil && !l.in(v.Offset, v.Time) {
			continue
		}
		if j.read++; j.read%recordsPerLook == 0 && ctx.Err() != nil {
			return ctx.Err()
		}
		if j.read == 1 || len(l.subjects) > 0 && !bytes.Equal(v.Subject, of) {
			of, wanted = v.Subject, l.selects(v.Subject)
		}
		if !wanted {
			continue
		}
		j.set(&v)
		if j.judge != nil {
			switch j.judge.Judge(r) {
			case filter.No:
				continue
			case filter.Failed:
				if j.failed++; j.why == nil {
					j.why = l.filter.Why(r)
				}
				continue
			}
		}
		if err := l.matches(j, v); err != nil {
			return err
		}
	}
	return nil
}

// takeBatch takes the records of a batch that the broker has judged. It knows how many that looked
// at for all of them, and not for each.
func (l *line) takeBatch(ctx context.Context, j *judged) error {
	b, n := &j.batch, 0
	if j.read, j.failed = b.Examined, b.Unjudged; j.failed > 0 {
		j.why = errors.New(b.Why)
	}
	if j.partial != nil && b.Examined > 0 {
		j.partial.greatest = b.Latest
	}
	for v := range b.Views() {
		if n++; n%recordsPerLook == 0 && ctx.Err() != nil {
			return ctx.Err()
		}
		if l.in != nil && !l.in(v.Offset, v.Time) {
			continue
		}
		j.set(&v)
		if err := l.matches(j, v); err != nil {
			return err
		}
	}
	return nil
}

// selects reports whether a subject is asked for.
func (q *query) selects(name []byte) bool {
	for _, pattern := range q.subjects {
		if subject.Matches(pattern, name) {
			return true
		}
	}
	return len(q.subjects) == 0
}

// matches notes a record that matches. It is the one in j.record.
func (q *query) matches(j *judged, v client.View) error {
	j.matched++
	j.found = found{j.shard, j.read, j.failed, v}
	switch {
	case q.keeps():
		j.matching = append(j.matching, j.found)
	case q.aggregation != nil:
		return j.partial.add(&j.record)
	default:
		if err := q.print(&j.out, &j.found); err != nil {
			return fmt.Errorf("print a message: %w", err)
		}
	}
	return nil
}

// handOn hands on what was found, in the order of the shard.
func (l *line) handOn() error {
	for s := range l.steps {
		if s.unread > 0 {
			l.passed(s.unread)
			continue
		}
		if s.judged == nil {
			if err := l.idle(l.number, s.idle); err != nil {
				return err
			}
			continue
		}
		<-s.done
		err := s.err
		if err == nil {
			err = l.took(s.judged)
		}
		l.again(s.judged)
		if err != nil {
			return err
		}
	}
	return nil
}

// wait waits for a step that is not handed on.
func (l *line) wait(s step) {
	if s.judged != nil {
		<-s.done
		l.again(s.judged)
	}
}

// again makes room for another batch.
func (q *query) again(j *judged) {
	clear(j.matching) // which hold the batch
	j.out.Reset()
	if j.partial != nil {
		j.partial.Reset()
		j.partial.why, j.partial.greatest = nil, math.MinInt64
	}
	j.batch, j.matching, j.findings = client.Batch{}, j.matching[:0], findings{}
	q.free <- j
}

// idle notes that all messages of a shard that were stored before a time were read.
func (q *query) idle(shard int, at time.Time) error {
	q.printing.Lock()
	defer q.printing.Unlock()
	if err := q.aggregation.reached(shard, at.UnixNano()); err != nil {
		return err
	}
	return q.out.Flush()
}

// passed counts offsets that can't be read. Those behind the last message that is wanted do not
// count.
func (q *query) passed(offsets uint64) {
	q.printing.Lock()
	defer q.printing.Unlock()
	if q.count == 0 || q.matched < q.count {
		q.unread += offsets
	}
}

// ended notes that nothing more comes of a shard.
func (q *query) ended(shard int) error {
	q.printing.Lock()
	defer q.printing.Unlock()
	if q.aggregation == nil {
		return nil
	}
	if err := q.aggregation.ended(shard); err != nil {
		return err
	}
	return q.out.Flush()
}

// passedOver returns the first offset of records that no reader gets, and the one behind them, or
// 0 if an error is about something else.
func passedOver(r *client.Reader, err error) (first, next uint64) {
	e, ok := errors.AsType[*client.ReadError](err)
	switch {
	case ok && e.Code == client.Damaged && e.Next > r.Offset():
		return max(r.Offset(), min(e.Offset, e.Next-1)), e.Next
	case ok && e.Code == client.TooLarge && e.Offset >= r.Offset():
		return e.Offset, e.Offset + 1
	}
	return 0, 0
}

// took prints what a batch of one shard has, and counts it.
func (q *query) took(j *judged) (err error) {
	q.printing.Lock()
	defer q.printing.Unlock()
	defer func() { q.lost = cmp.Or(q.lost, err) }()
	if q.count > 0 && q.matched+j.matched >= q.count {
		// What is behind the last message that is wanted was judged for nothing.
		j.matched = q.count - q.matched
		if j.matching = j.matching[:j.matched]; j.matched > 0 {
			last := &j.matching[j.matched-1]
			j.read, j.failed = last.read, last.failed
		} else {
			j.read, j.failed = 0, 0
		}
		q.enough()
	}
	q.read, q.matched, q.failed = q.read+j.read, q.matched+j.matched, q.failed+j.failed
	if q.why == nil && j.failed > 0 {
		q.why = j.why
	}
	for n := range j.matching {
		if err := q.take(j, &j.matching[n]); err != nil {
			return err
		}
	}
	if _, err := q.out.Write(j.out.Bytes()); err != nil {
		return fmt.Errorf("print a message: %w", err)
	}
	if j.partial != nil {
		if err := q.aggregation.merge(j.shard, j.partial); err != nil {
			return err
		}
	}
	return q.out.Flush()
}

// take writes a message that was kept, prints it, or adds it to the results.
func (q *query) take(j *judged, f *found) error {
	switch {
	case j.partial != nil:
		j.set(&f.View)
		return j.partial.add(&j.record)
	case q.store != nil:
		return q.store(f)
	}
	if err := q.print(&j.out, f); err != nil {
		return fmt.Errorf("print a message: %w", err)
	}
	return nil
}
