package sourcing

import (
	"context"
	"encoding/binary"
	"fmt"
	"math"

	"github.com/carillon-mq/carillon/broker/log"
	"github.com/carillon-mq/carillon/broker/subject"
)

// Origin is a shard that this broker leads and that is the origin of a source. *topic.ShardLeader
// implements it.
type Origin interface {
	// Offsets returns the offsets that readers see: start ≤ offset < end.
	Offsets() (start, end uint64)
	// Scan calls f with some records, as a records.Reader does.
	Scan(from, end uint64, budget int64, f func(r *log.Record) bool) (done bool, err error)
	// Messages returns the number of records from start up to, not including, end.
	Messages(start, end uint64) uint64
	// EpochAt returns the epoch of the record at an offset, and up to where it goes; 0: not known.
	EpochAt(offset uint64) (epoch, until uint64)
	// Watch calls changed after end has moved, until stop.
	Watch(changed func()) (stop func())
}

// read answers a question once, from what there is. most is how many bytes of records an answer has
// at most.
func read(o Origin, q *question, most int) *answer {
	start, end := o.Offsets()
	if from := diverged(o, q, start, end); from > 0 {
		return &answer{Next: from, Diverged: from, Lag: o.Messages(from, end), Epochs: epochs(nil, o, from-1)}
	}
	if q.Last >= end {
		return &answer{Error: fmt.Sprintf("the stream has lost its end: it has come to %d, and %d was seen before", end-1, q.Last)}
	}
	a := &answer{Next: max(q.Next, start, 1), Stamped: q.Stamps}
	if a.Next >= end {
		return a
	}
	since := int64(math.MinInt64)
	if !q.Since.IsZero() {
		since = q.Since.UnixNano()
	}
	for budget := int64(scanBytes); ; budget *= 2 {
		full, seen := false, false
		done, err := o.Scan(a.Next, end, budget, func(r *log.Record) bool {
			seen = true
			if r.Time < since || !matches(q.Filters, r.Subject) || !q.Share.has(r.Subject) {
				a.Next = r.Offset + 1
				return true
			}
			size, stamp := recordBytes(r), []byte(nil)
			if with := size + binary.MaxVarintLen32 + len(r.Stamp); a.Stamped && len(r.Stamp) > 0 && with <= most {
				size, stamp = with, r.Stamp // beside one of the largest size there is no room
			}
			if size > most {
				a.Next, a.Skipped = r.Offset+1, a.Skipped+1
				return true
			}
			if full = len(a.records)+size > q.Bytes && (q.Exact || len(a.records) > 0); full {
				if len(a.records) == 0 {
					a.Needs = size
				}
				return false
			}
			if a.Epochs = epochs(a.Epochs, o, r.Offset); len(a.Epochs) >= maxEpochs {
				full = true
				return false
			}
			if a.records = appendRecord(a.records, r); a.Stamped {
				a.appendStamp(stamp)
			}
			a.Next = r.Offset + 1
			return true
		})
		switch {
		case err != nil && len(a.records) == 0:
			a.Error = err.Error()
			return a
		case err != nil, full:
			a.More = true
		case done:
			a.Next = end
		case !seen:
			continue // nothing is left in what was read
		default:
			a.More = true
		}
		a.Lag, a.Epochs = o.Messages(a.Next, max(end, a.Next)), epochs(a.Epochs, o, a.Next-1)
		return a
	}
}

// epochs adds the epoch of an offset to those of offsets before.
func epochs(all []epoch, o Origin, offset uint64) []epoch {
	at, _ := o.EpochAt(offset)
	if n := len(all); n > 0 && all[n-1].Epoch == at {
		return all
	}
	return append(all, epoch{From: offset, Epoch: at})
}

// diverged returns the first offset up to the last one that was seen that has a record of a later
// epoch than that one; 0: there is none. All records of a log before it are those that were seen,
// since epochs only rise along a log, and those of a new leader are later than all before.
func diverged(o Origin, q *question, start, end uint64) uint64 {
	for at := start; q.LastEpoch > 0 && at <= q.Last && at < end; {
		epoch, until := o.EpochAt(at)
		if epoch > q.LastEpoch {
			return at
		}
		at = max(until, at+1)
	}
	return 0
}

func matches(filters []string, name []byte) bool {
	for _, f := range filters {
		if subject.Matches([]byte(f), name) {
			return true
		}
	}
	return len(filters) == 0
}

// serve answers a question, and waits for records if there are none. reading bounds how many read
// at once: the answer keeps its place there until done.
func serve(ctx context.Context, find func(origin string) Origin, q *question, reading chan struct{}, most int) (a *answer, done func()) {
	nothing := func() {}
	ctx, cancel := context.WithTimeout(ctx, min(q.Wait, patience))
	defer cancel()
	changed := make(chan struct{}, 1)
	var watched Origin
	stop := func() {}
	defer func() { stop() }()
	for {
		o := find(q.Origin)
		if o == nil {
			return &answer{Error: errNotLed}, nothing
		}
		if o != watched {
			stop()
			watched, stop = o, o.Watch(func() {
				select {
				case changed <- struct{}{}:
				default:
				}
			})
		}
		select {
		case reading <- struct{}{}:
		case <-ctx.Done():
			if a == nil {
				a = &answer{Error: "the stream's broker has too much to answer"}
			}
			return a, nothing
		}
		if a = read(o, q, most); len(a.records) > 0 {
			return a, func() { <-reading }
		}
		<-reading
		if a.Error != "" || a.More || a.Skipped > 0 || a.Diverged > 0 {
			return a, nothing
		}
		q.Next = max(q.Next, a.Next) // Since holds until a record is taken
		select {
		case <-changed:
		case <-ctx.Done():
			return a, nothing
		}
	}
}

// errNotLed is the error of a question to a broker that does not lead the stream.
const errNotLed = "the stream is not served at the moment"
