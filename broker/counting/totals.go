package counting

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/carillon-mq/carillon/broker/log"
	"github.com/carillon-mq/carillon/broker/protocol"
	"github.com/carillon-mq/carillon/broker/publish"
	"github.com/carillon-mq/carillon/broker/records"
	"github.com/carillon-mq/carillon/broker/work"
)

// Counters has the Totals of all shards of a broker.
type Counters struct {
	codec publish.Codec
	reads *work.Jobs
	held  atomic.Int64 // bytes

	mu  sync.Mutex
	all map[*Totals]struct{}
}

// New returns Counters without shards. Close ends them.
func New(codec publish.Codec) *Counters {
	return &Counters{codec: codec, reads: work.NewJobs(readers, maxReads, 0), all: map[*Totals]struct{}{}}
}

// Close ends reading.
func (s *Counters) Close() { s.reads.Close() }

// limit has shards forget their totals, the largest first, while they hold too much.
func (s *Counters) limit() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for s.held.Load() > maxHeld {
		var largest *Totals
		most := int64(0)
		for t := range s.all {
			if held := t.held.Load(); held > most {
				largest, most = t, held
			}
		}
		if largest == nil || !largest.Forget() {
			return // it forgets after its batch
		}
	}
}

// Totals has the totals of a shard's records, by offset.
type Totals struct {
	set        *Counters
	data       *log.Log
	unreadable func(error) error
	found      func()
	held       atomic.Int64

	mu     sync.Mutex
	known  map[uint64]Total    // nil until there is one
	read   map[uint64]answer   // of reads that have ended
	asked  map[uint64]struct{} // being read
	noted  atomic.Bool         // known has totals that may not be in the log yet
	forget bool                // known is to be forgotten when they are
	added  []added             // since Appended
	ended  bool
}

// added is a total that may not be in the log yet, and the one that it has replaced.
type added struct {
	offset, before uint64
	was            Total
	known          bool // was is
}

// answer is what a read found.
type answer struct {
	total Total
	err   error
}

// Of returns the totals of a shard. unreadable judges an error of its log, and found is called when
// a total was read, with no lock held. Close follows.
func (s *Counters) Of(data *log.Log, unreadable func(error) error, found func()) *Totals {
	t := &Totals{set: s, data: data, unreadable: unreadable, found: found}
	s.mu.Lock()
	s.all[t] = struct{}{}
	s.mu.Unlock()
	return t
}

// Close forgets everything.
func (t *Totals) Close() {
	t.set.mu.Lock()
	delete(t.set.all, t)
	t.set.mu.Unlock()
	t.mu.Lock()
	defer t.mu.Unlock()
	t.ended = true
	t.clear()
}

// At returns the total of the record at an offset; 0: there is none, and the total is zero. If wait
// is set it is being read, and found is called later. An error says why it can't be read for now.
func (t *Totals) At(offset uint64) (total Total, wait bool, err error) {
	if offset == 0 {
		return Total{}, false, nil
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if total, ok := t.known[offset]; ok {
		return total, false, nil
	}
	if a, ok := t.read[offset]; ok {
		if a.err != nil {
			t.drop(offset) // the next one tries again
		}
		return a.total, false, a.err
	}
	t.want(offset)
	return Total{}, true, nil
}

// Record is what an increment is stored as.
type Record struct {
	Data   []byte // header and payload; nil: none
	Header int    // size of the header
	Total  Total
	Before uint64 // the offset of the last record of the subject; 0: none
}

// Count returns what an increment is stored as, behind the last record of its subject. from is
// where it was copied from; nil: it is no copy. most is how large it may be; 0: any size. wait and
// the error are as with At, or why it is refused.
func (t *Totals) Count(topic string, m *protocol.Message, increment []byte, from *Origin, last uint64, most int) (r Record, wait bool, err error) {
	before, wait, err := t.At(last)
	switch e := err.(type) {
	case nil, *publish.NotServedError:
	case *publish.CounterError:
		err = &publish.CounterError{Topic: topic, Fault: e.Fault}
	default:
		err = &publish.StoreError{Topic: topic, Err: err}
	}
	if wait || err != nil {
		return r, wait, err
	}
	sources, replaced := before.Sources, ""
	if from != nil {
		total, _, valid := t.set.codec.Counter(m.Data[:m.Header], m.Data[m.Header:])
		if valid = valid && len(total) <= maxDigits; valid {
			replaced, sources, valid = before.Copied(t.set.codec, from, total)
		}
		if !valid {
			return r, false, &publish.CounterError{Topic: topic, Fault: publish.CounterBroken}
		}
		if increment = []byte(replaced); len(sources) > maxSources {
			return r, false, fmt.Errorf("topic %s: the totals of other streams in the counter %s take %d bytes (at most %d are possible: let fewer streams and subjects count there)", topic, m.Subject, len(sources), maxSources)
		}
	}
	sum, ok := before.Sum(increment)
	r = Record{Total: Total{Value: sum, Sources: sources}, Before: last}
	r.Data, r.Header = t.set.codec.AppendCounter(nil, m.Data[:m.Header], sum, replaced, sources)
	if _, sources, valid := t.set.codec.Counter(r.Data[:r.Header], r.Data[r.Header:]); valid && len(sources) <= maxSources {
		r.Total.Sources = slices.Clone(sources) // of the increment itself, perhaps
	} else {
		return r, false, &publish.CounterError{Topic: topic, Fault: publish.IncrementInvalid}
	}
	if !ok || most > 0 && len(r.Data) > most {
		return r, false, &publish.TooLargeError{Topic: topic, Size: len(r.Data), Max: most}
	}
	return r, false, nil
}

// Want has the total of a record read that At will be asked for.
func (t *Totals) Want(offset uint64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if _, ok := t.known[offset]; !ok && offset > 0 {
		if _, ok := t.read[offset]; !ok {
			t.want(offset)
		}
	}
}

// Reading reports whether the total of a record is being read. If it isn't,
// callers that wait for it ask again.
func (t *Totals) Reading(offset uint64) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	_, ok := t.asked[offset]
	return ok
}

// Add notes the total of a record that is about to be appended at an offset. It replaces that of
// the record before, at offset before.
func (t *Totals) Add(offset, before uint64, total Total) {
	t.mu.Lock()
	defer t.mu.Unlock()
	a := added{offset: offset, before: before}
	if a.was, a.known = t.known[before]; a.known {
		t.count(-a.was.size())
		delete(t.known, before)
	} else if read, ok := t.read[before]; ok {
		a.was, a.known = read.total, read.err == nil
	}
	t.added = append(t.added, a)
	t.drop(before)
	if t.known == nil {
		t.known = map[uint64]Total{}
	}
	t.known[offset] = total
	t.noted.Store(true)
	t.count(total.size())
}

// Appended says that all totals that were added are in the log.
func (t *Totals) Appended() {
	if !t.noted.Load() {
		return // the usual case: no counters
	}
	t.mu.Lock()
	clear(t.added)
	t.added = t.added[:0]
	if t.noted.Store(false); t.forget {
		t.clear()
	}
	t.mu.Unlock()
	if t.set.held.Load() > maxHeld {
		t.set.limit()
	}
}

// Undo says that totals that were added since Appended are not going to be in the log. Those that
// they have replaced are known again.
func (t *Totals) Undo() {
	t.mu.Lock()
	defer t.mu.Unlock()
	for i := len(t.added) - 1; i >= 0; i-- {
		a := &t.added[i]
		if total, ok := t.known[a.offset]; ok {
			t.count(-total.size())
			delete(t.known, a.offset)
		}
		if a.known {
			t.known[a.before] = a.was
			t.count(a.was.size())
		}
	}
	clear(t.added)
	t.added = t.added[:0]
	if t.noted.Store(false); t.forget {
		t.clear()
	}
}

// Forget forgets everything, or reports that Appended is going to.
func (t *Totals) Forget() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.noted.Load() {
		t.forget = true
		return false
	}
	t.clear()
	return true
}

// clear forgets everything. mu is held.
func (t *Totals) clear() {
	clear(t.known)
	clear(t.read)
	clear(t.added)
	t.added = t.added[:0]
	t.noted.Store(false)
	t.forget = false
	t.set.held.Add(-t.held.Swap(0))
}

// drop forgets what was read at an offset. mu is held.
func (t *Totals) drop(offset uint64) {
	if a, ok := t.read[offset]; ok {
		t.count(-a.total.size())
		delete(t.read, offset)
	}
}

// count counts the bytes of known and read. mu is held.
func (t *Totals) count(n int64) {
	t.held.Add(n)
	t.set.held.Add(n)
}

func (t *Total) size() int64 { return int64(len(t.Value) + len(t.Sources) + overhead) }

// want has a record read. mu is held.
func (t *Totals) want(offset uint64) {
	if _, ok := t.asked[offset]; ok || t.ended {
		return
	}
	if t.set.reads.Submit(func() { t.readAt(offset) }, 0) {
		if t.asked == nil {
			t.asked, t.read = map[uint64]struct{}{}, map[uint64]answer{}
		}
		t.asked[offset] = struct{}{}
	}
}

// readAt reads the total of a record.
func (t *Totals) readAt(offset uint64) {
	total, err := t.readTotal(offset)
	t.mu.Lock()
	delete(t.asked, offset)
	ended := t.ended
	if len(t.read) >= maxAnswers {
		for offset := range t.read { // those who still wait ask again
			t.drop(offset)
		}
	}
	if !ended {
		t.read[offset] = answer{total, err}
		t.count(total.size())
	}
	t.mu.Unlock()
	if t.set.held.Load() > maxHeld {
		t.set.limit()
	}
	if !ended {
		t.found()
	}
}

// errGone means that the log does not have a record any more.
var errGone = errors.New("the last record of the counter is gone")

func (t *Totals) readTotal(offset uint64) (total Total, err error) {
	if start, end, _ := t.data.Offsets(); offset < start || offset >= end {
		return total, errGone
	}
	found := false
	_, err = records.ScanBatches(t.data, offset, offset+1, math.MaxInt64, func(b log.Batch, next uint64) (more bool, err error) {
		it := b.Records()
		for r := (log.Record{}); it.Next(&r); {
			if r.Offset != offset {
				continue
			}
			value, sources, ok := t.set.codec.Counter(r.Data[:r.Header], r.Data[r.Header:])
			if !ok || len(value) > maxDigits || len(sources) > maxSources {
				return false, &publish.CounterError{Fault: publish.CounterBroken}
			}
			total, found = Total{Value: string(value), Sources: slices.Clone(sources)}, true
		}
		return false, it.Err()
	})
	_, broken := err.(*publish.CounterError)
	switch {
	case broken:
	case err != nil:
		err = t.unreadable(err)
	case !found:
		err = errGone
	}
	return total, err
}
