package indexing

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/carillon-mq/carillon/broker/log"
	"github.com/carillon-mq/carillon/broker/subjectindex"
)

// Index is the subject index of a log that this broker leads. Goroutines may share it.
type Index struct {
	set *Indexes
	log *log.Log
	ctx *lifetime // ends when Close begins

	asked    atomic.Int64 // when it was asked last, in nanoseconds since 1970
	unwanted atomic.Bool  // the worker is to close it
	failing  atomic.Bool  // the last piece of work failed
	queued   bool         // for the worker; guarded by the set's mu

	turn     chan struct{} // held by what uses the fields below
	over     bool
	shard    *subjectindex.Shard // nil: it is not open
	layout   log.Layout
	segments []log.SegmentState // that shard knows, oldest first; the last takes what is read next
	ahead    []log.SegmentState // that follow
	unsealed bool               // one of segments may be sealed since
	end      uint64             // shard has all records below
	want     uint64             // and questions wanted all below
	start    uint64
	cursor   *log.Cursor
	bytes    int64         // of shard's parts, as the set counts them
	progress chan struct{} // closed when the worker has done a piece; nil: nobody waits
}

// lifetime is a context that ends when its channel is closed. Unlike one of package context it costs
// its parent nothing: most indexes are never open.
type lifetime struct {
	context.Context
	done chan struct{}
}

func (l *lifetime) Done() <-chan struct{} { return l.done }

func (l *lifetime) Err() error {
	select {
	case <-l.done:
		return context.Canceled
	default:
		return nil
	}
}

// NotReadyError reports that an index is not complete yet. The caller reads the log, or asks again
// later.
type NotReadyError struct{ Why string }

func (e *NotReadyError) Error() string {
	return fmt.Sprintf("the index of the subjects is not ready: %s; try again in a moment", e.Why)
}

// notReady reports whether an error says that the index may have the answer later.
func notReady(err error) bool {
	if missing, ok := errors.AsType[*subjectindex.MissingError](err); ok {
		return !missing.Damaged
	}
	_, ok := errors.AsType[*NotReadyError](err)
	return ok || errors.Is(err, subjectindex.ErrClosed)
}

func (x *Index) notReady(why string) error { return &NotReadyError{Why: why} }

// lock takes the turn.
func (x *Index) lock(ctx context.Context) error {
	select {
	case x.turn <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (x *Index) unlock() { <-x.turn }

// ask returns the shard's index with all records below the end of a range.
func (x *Index) ask(ctx context.Context, end uint64) (*subjectindex.Shard, error) {
	if err := x.lock(ctx); err != nil {
		return nil, err
	}
	defer x.unlock()
	x.asked.Store(time.Now().UnixNano())
	x.want = max(x.want, end)
	switch {
	case x.over:
		return nil, x.notReady("the broker leads the shard no longer")
	case x.shard == nil && !x.set.admit(x):
		return nil, x.notReady("too many indexes are in use")
	}
	if err := x.follow(x.ctx, end, askBytes); err != nil {
		if notReady(err) {
			x.set.submit(x)
		}
		return nil, err
	}
	return x.shard, nil
}

// query calls f with the index until the answer is no error that passes, or for as long as the
// caller has patience. With none it asks once.
func (x *Index) query(ctx context.Context, patience time.Duration, end uint64, f func(s *subjectindex.Shard) error) error {
	var over <-chan time.Time
	for {
		wait, err := x.waitForWork(ctx, patience)
		if err != nil {
			return err
		}
		shard, err := x.ask(ctx, end)
		if err == nil {
			err = f(shard)
		}
		if err == nil || wait == nil || !notReady(err) || x.failing.Load() {
			return err
		}
		if over == nil {
			timer := time.NewTimer(patience)
			defer timer.Stop()
			over = timer.C
		}
		x.set.submit(x)
		select {
		case <-wait:
		case <-over:
			return err
		case <-ctx.Done():
			return err
		case <-x.ctx.Done():
			return err
		}
	}
}

// waitForWork returns a channel that is closed when the worker has done a piece of work, or nil
// without patience.
func (x *Index) waitForWork(ctx context.Context, patience time.Duration) (<-chan struct{}, error) {
	if patience <= 0 {
		return nil, nil
	}
	if err := x.lock(ctx); err != nil {
		return nil, err
	}
	defer x.unlock()
	if x.progress == nil {
		x.progress = make(chan struct{})
	}
	return x.progress, nil
}

// Last returns the offset of the last record from start up to, not including, end whose subject
// matches a pattern; 0: there is none. end is at most the log's. All questions wait for an index
// that is not ready for as long as the caller has patience.
func (x *Index) Last(ctx context.Context, patience time.Duration, pattern string, start, end uint64) (offset uint64, err error) {
	in := subjectindex.Range{From: start, To: end}
	filter, err := subjectindex.NewFilter(pattern)
	if err != nil {
		return 0, err
	}
	err = x.query(ctx, patience, end, func(s *subjectindex.Shard) (err error) {
		offset, err = s.LastMatch(ctx, filter, in)
		return err
	})
	return offset, err
}

// Count returns how many records from start up to, not including, end match one of some patterns.
func (x *Index) Count(ctx context.Context, patience time.Duration, patterns []string, start, end uint64) (n uint64, err error) {
	in := subjectindex.Range{From: start, To: end}
	filter, err := subjectindex.NewFilter(patterns...)
	if err != nil {
		return 0, err
	}
	err = x.query(ctx, patience, end, func(s *subjectindex.Shard) (err error) {
		n, err = s.Count(ctx, filter, in)
		return err
	})
	return n, err
}

// NumSubjects returns how many subjects have records from start up to, not including, end.
func (x *Index) NumSubjects(ctx context.Context, patience time.Duration, start, end uint64) (n uint64, err error) {
	err = x.query(ctx, patience, end, func(s *subjectindex.Shard) (err error) {
		n, err = s.NumSubjects(ctx, subjectindex.Range{From: start, To: end})
		return err
	})
	return n, err
}

// Subjects calls f with each subject that matches a pattern and has records from start up to, not
// including, end, in the order of their bytes, and with how many. f must not keep the subject. After
// an error f may have been called with a part of them; begin is called before each attempt.
func (x *Index) Subjects(ctx context.Context, patience time.Duration, pattern string, start, end uint64, begin func(), f func(subject []byte, records uint64)) error {
	filter, err := subjectindex.NewFilter(pattern)
	if err != nil {
		return err
	}
	return x.query(ctx, patience, end, func(s *subjectindex.Shard) error {
		begin()
		return s.Subjects(ctx, filter, subjectindex.Range{From: start, To: end}, "", func(subject []byte, info subjectindex.Info) bool {
			f(subject, info.Count)
			return true
		})
	})
}

// Close closes the index for good, once. Questions that are being answered finish.
func (x *Index) Close() {
	close(x.ctx.done)
	x.turn <- struct{}{}
	defer x.unlock()
	x.over = true
	x.shut()
	x.set.closed(x)
}

// shut closes the shard's index, if it is open. The turn is held.
func (x *Index) shut() {
	if x.shard == nil {
		return
	}
	if err := x.shard.Close(); err != nil {
		x.set.log.Warn("files of a subject index were left behind; they are deleted when it is used again", "log", x.log.Name(), "error", err)
	}
	x.shard, x.cursor, x.segments, x.ahead = nil, nil, nil, nil
	x.set.parts.Add(-x.bytes)
	x.bytes = 0
}
