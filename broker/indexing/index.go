package indexing

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/carillon-mq/carillon/broker/log"
	"github.com/carillon-mq/carillon/broker/removal"
	"github.com/carillon-mq/carillon/broker/subject"
	"github.com/carillon-mq/carillon/broker/subjectindex"
	"github.com/carillon-mq/carillon/broker/work"
)

// Index is the subject index of a log that this broker leads. Goroutines may share it.
type Index struct {
	work.State // of the set's readers
	maker      maker
	set        *Indexes
	log        *log.Log
	removed    *removal.Set // nil: no record is removed
	ctx        *lifetime    // ends when Close begins

	// unreadable judges an error of reading the log: another replica may have what is damaged here.
	unreadable func(err error) error

	asked    atomic.Int64 // when it was asked last, in nanoseconds since 1970
	needed   atomic.Int64 // the same, by conditions
	unwanted atomic.Bool  // a reader is to close it
	// readFailed and makeFailed say that the last step, and the last writing of a file, failed.
	readFailed, makeFailed atomic.Bool

	// stepping is held by the reader, which alone opens and closes the shard's index. It comes before
	// turn.
	stepping sync.Mutex

	turn     chan struct{} // held by what uses the fields below; never over writing or opening files
	over     bool
	wanted   bool                // a question asked for it since it was closed
	shard    *subjectindex.Shard // nil: it is not open
	stale    bool                // shard can't follow the segments of the log; a reader opens it anew
	making   context.Context     // of the work on shard; cancel ends it
	cancel   func()
	layout   log.Layout
	segments []log.SegmentState // that shard knows, oldest first; the last takes what is read next
	ahead    []log.SegmentState // that follow
	unsealed bool               // one of segments may be sealed since
	end      uint64             // shard has all records below
	want     uint64             // and questions wanted all below
	start    uint64
	cursor   *log.Cursor
	bytes    int64         // of shard's parts, as the set counts them
	progress chan struct{} // closed when there is progress; nil: nobody waits
}

// lifetime is a context that ends when its channel is closed. Unlike one of package context it
// costs its parent nothing: most indexes are never open.
type lifetime struct {
	context.Context
	done chan struct{}
}

func newLifetime() *lifetime { return &lifetime{context.Background(), make(chan struct{})} }

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
type NotReadyError struct {
	Why string
	// Busy: the broker has no room for the index. Waiting for it is of no use.
	Busy bool
}

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

func busy(err error) bool {
	is, ok := errors.AsType[*NotReadyError](err)
	return ok && is.Busy
}

func (x *Index) notReady(why string) error { return &NotReadyError{Why: why} }

func (x *Index) busy(why string) error { return &NotReadyError{Why: why, Busy: true} }

// lock takes the turn. A question waits for other questions, and for one read of a reader, but no
// longer than lockTime or its patience.
func (x *Index) lock(ctx context.Context, patience time.Duration) error {
	select {
	case x.turn <- struct{}{}:
		return nil
	default:
	}
	timer := time.NewTimer(max(patience, lockTime))
	defer timer.Stop()
	select {
	case x.turn <- struct{}{}:
		return nil
	case <-timer.C:
		return x.notReady("the disk is slow")
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (x *Index) unlock() { <-x.turn }

// asker is what a question is for.
type asker uint8

const (
	forReaders    asker = iota // they can do without, or read the log
	forConditions              // messages are refused without
)

// ask returns the shard's index with all records below the end of a range.
func (x *Index) ask(ctx context.Context, patience time.Duration, by asker, end uint64) (*subjectindex.Shard, error) {
	if err := x.lock(ctx, patience); err != nil {
		return nil, err
	}
	defer x.unlock()
	now := time.Now().UnixNano()
	if x.asked.Store(now); by == forConditions {
		x.needed.Store(now)
	}
	x.want = max(x.want, end)
	switch {
	case x.over:
		return nil, x.notReady("the broker leads the shard no longer")
	case x.shard == nil && !x.set.admit(x, by):
		return nil, x.busy("too many indexes are in use")
	case x.shard == nil:
		x.wanted = true
		x.set.readers.Wake(x, work.Urgent)
		return nil, x.notReady("it is being opened")
	}
	if x.stale = x.stale || !x.adapt(); x.stale {
		x.set.readers.Wake(x, work.Urgent)
		return nil, x.notReady("it is being opened anew")
	}
	err := x.read(ctx, end, askBytes)
	x.count()
	if err != nil {
		if notReady(err) {
			x.set.readers.Wake(x, work.Urgent)
		}
		return nil, err
	}
	return x.shard, nil
}

// query calls f with the index until the answer is no error that passes, or for as long as the
// caller has patience. With none it asks once.
func (x *Index) query(ctx context.Context, patience time.Duration, by asker, end uint64, f func(s *subjectindex.Shard) error) error {
	var over <-chan time.Time
	for n := 0; ; n++ {
		wait, err := x.waitForWork(ctx, patience)
		if err != nil {
			return err
		}
		shard, err := x.ask(ctx, patience, by, end)
		if err == nil {
			err = f(shard)
		}
		if err != nil {
			err = x.unreadable(err)
		}
		if err == nil || wait == nil || !notReady(err) || busy(err) || x.readFailed.Load() || x.makeFailed.Load() {
			return err
		}
		if over == nil {
			timer := time.NewTimer(patience)
			defer timer.Stop()
			over = timer.C
		}
		x.set.wake(x)
		select {
		case <-wait:
		case <-over:
			return err
		case <-ctx.Done():
			return err
		case <-x.ctx.Done():
			return err
		}
		if n >= quickTries {
			select { // progress with other files may be frequent
			case <-time.After(tryTime):
			case <-ctx.Done():
				return err
			}
		}
	}
}

// waitForWork returns a channel that is closed when there is progress, or nil without patience.
func (x *Index) waitForWork(ctx context.Context, patience time.Duration) (<-chan struct{}, error) {
	if patience <= 0 {
		return nil, nil
	}
	if err := x.lock(ctx, patience); err != nil {
		return nil, err
	}
	defer x.unlock()
	if x.progress == nil {
		x.progress = make(chan struct{})
	}
	return x.progress, nil
}

// report wakes those that wait for progress. The turn is held.
func (x *Index) report() {
	if x.progress != nil {
		close(x.progress)
		x.progress = nil
	}
}

// Last returns the offset of the last record from start up to, not including, end whose subject
// matches a pattern; 0: there is none. end is at most the log's. All questions wait for an index
// that is not ready for as long as the caller has patience, and end with ctx.
func (x *Index) Last(ctx context.Context, patience time.Duration, pattern string, start, end uint64) (offset uint64, err error) {
	in := subjectindex.Range{From: start, To: end}
	if of := []byte(pattern); subject.Valid(of) { // no filter is needed for one subject
		err = x.query(ctx, patience, forReaders, end, func(s *subjectindex.Shard) (err error) {
			offset, err = s.Last(ctx, of, in)
			return err
		})
		return offset, err
	}
	filter, err := subjectindex.NewFilter(pattern)
	if err != nil {
		return 0, err
	}
	err = x.query(ctx, patience, forReaders, end, func(s *subjectindex.Shard) (err error) {
		offset, err = s.LastMatch(ctx, filter, in)
		return err
	})
	return offset, err
}

// LastOf is Last for one subject, which may be no valid pattern. It is for conditions.
func (x *Index) LastOf(ctx context.Context, patience time.Duration, subject string, start, end uint64) (offset uint64, err error) {
	err = x.query(ctx, patience, forConditions, end, func(s *subjectindex.Shard) (err error) {
		offset, err = s.Last(ctx, []byte(subject), subjectindex.Range{From: start, To: end})
		return err
	})
	return offset, err
}

// walked is how many records of a subject are found one by one, and not with all others.
const walked = 64

// OffsetsOf returns the offsets of the oldest records of a subject from start up to, not including,
// end, in order, at most some, and how many it has. The subject may be no valid pattern. It is for
// conditions.
func (x *Index) OffsetsOf(ctx context.Context, patience time.Duration, subject string, start, end uint64, most int) (offsets []uint64, count uint64, err error) {
	in := subjectindex.Range{From: start, To: end}
	err = x.query(ctx, patience, forConditions, end, func(s *subjectindex.Shard) error {
		offsets = nil
		info, err := s.Info(ctx, []byte(subject), in)
		count = info.Count
		if err != nil || count == 0 {
			return err
		}
		filter, invalid := subjectindex.NewFilter(subject)
		if count <= min(walked, uint64(most)) || invalid != nil {
			for at := info.Last; err == nil && at > 0; at, err = s.Last(ctx, []byte(subject), subjectindex.Range{From: start, To: at}) {
				offsets = append(offsets, at)
			}
			slices.Reverse(offsets)
			offsets = offsets[:min(len(offsets), most)]
			return err
		}
		err = s.Offsets(ctx, filter, in, func(of []byte, offset uint64) error {
			if string(of) != subject { // subject has wildcards
				return nil
			}
			if offsets = append(offsets, offset); len(offsets) == most {
				return errEnough
			}
			return nil
		})
		if errors.Is(err, errEnough) {
			err = nil
		}
		return err
	})
	return offsets, count, err
}

// Matching returns the records from start up to, not including, end whose subjects match a pattern.
// Offsets are returned only if they are at most some, and with 0 neither is Count. It is for
// conditions.
func (x *Index) Matching(ctx context.Context, patience time.Duration, pattern string, start, end uint64, most int) (m Matches, err error) {
	in := subjectindex.Range{From: start, To: end}
	filter, err := subjectindex.NewFilter(pattern)
	if err != nil {
		return m, err
	}
	err = x.query(ctx, patience, forConditions, end, func(s *subjectindex.Shard) (err error) {
		m = Matches{}
		if m.Last, err = s.LastMatch(ctx, filter, in); err != nil || most == 0 {
			return err
		}
		if m.Count, err = s.Count(ctx, filter, in); err != nil || m.Count > uint64(most) {
			return err
		}
		err = s.Offsets(ctx, filter, in, func(_ []byte, offset uint64) error {
			m.Offsets = append(m.Offsets, offset)
			return nil
		})
		slices.Sort(m.Offsets)
		m.Count = uint64(len(m.Offsets)) // some may be removed meanwhile
		return err
	})
	return m, err
}

// errEnough ends a walk over offsets.
var errEnough = errors.New("enough")

// Count returns how many records from start up to, not including, end match one of some patterns.
func (x *Index) Count(ctx context.Context, patience time.Duration, patterns []string, start, end uint64) (n uint64, err error) {
	in := subjectindex.Range{From: start, To: end}
	filter, err := subjectindex.NewFilter(patterns...)
	if err != nil {
		return 0, err
	}
	err = x.query(ctx, patience, forReaders, end, func(s *subjectindex.Shard) (err error) {
		n, err = s.Count(ctx, filter, in)
		return err
	})
	return n, err
}

// NumSubjects returns how many subjects have records from start up to, not including, end.
func (x *Index) NumSubjects(ctx context.Context, patience time.Duration, start, end uint64) (n uint64, err error) {
	err = x.query(ctx, patience, forReaders, end, func(s *subjectindex.Shard) (err error) {
		n, err = s.NumSubjects(ctx, subjectindex.Range{From: start, To: end})
		return err
	})
	return n, err
}

// Subjects calls f with each subject that matches a pattern and has records from start up to, not
// including, end, in the order of their bytes, and with how many. f must not keep the subject.
// After an error f may have been called with a part of them; begin is called before each attempt.
func (x *Index) Subjects(ctx context.Context, patience time.Duration, pattern string, start, end uint64, begin func(), f func(subject []byte, records uint64)) error {
	filter, err := subjectindex.NewFilter(pattern)
	if err != nil {
		return err
	}
	return x.query(ctx, patience, forReaders, end, func(s *subjectindex.Shard) error {
		begin()
		return s.Subjects(ctx, filter, subjectindex.Range{From: start, To: end}, "", func(subject []byte, info subjectindex.Info) bool {
			f(subject, info.Count)
			return true
		})
	})
}

// Lasts calls f with each subject that has records from start up to, not including, end, and with
// the offset of the last one, until it says no. f must not keep the subject. begin is called before
// each attempt. It is for conditions.
func (x *Index) Lasts(ctx context.Context, patience time.Duration, start, end uint64, begin func(), f func(subject []byte, last uint64) bool) error {
	all, err := subjectindex.NewFilter()
	if err != nil {
		return err
	}
	return x.query(ctx, patience, forConditions, end, func(s *subjectindex.Shard) error {
		begin()
		return s.Subjects(ctx, all, subjectindex.Range{From: start, To: end}, "", func(subject []byte, info subjectindex.Info) bool {
			return f(subject, info.Last)
		})
	})
}

// Close closes the index for good, once. Questions that are being answered finish.
func (x *Index) Close() {
	close(x.ctx.done)
	x.stepping.Lock()
	defer x.stepping.Unlock()
	x.turn <- struct{}{}
	x.over, x.wanted = true, false
	x.unlock()
	x.shut()
	x.set.closed(x)
}
