package sourcing

import (
	"errors"
	"fmt"
	"time"

	"github.com/carillon-mq/carillon/broker/coordination"
	"github.com/carillon-mq/carillon/broker/log"
	"github.com/carillon-mq/carillon/broker/protocol"
	"github.com/carillon-mq/carillon/broker/removal"
)

// fetcher decides what is asked of an origin, and what becomes of the answers. It is pure: no
// clock, no I/O. What is kept of a source is how far it has come, which the shard's log says; a
// fetcher remembers beyond that only which records it need not look at again.
type fetcher struct {
	of      coordination.StreamSource // as the stream that copies names it
	source  coordination.StreamSource // with the name of the stream that is copied: of, or of a shard of it
	index   string
	key     removal.SourceKey
	filters []string
	by      mapping
	share   *share // what of the stream is the shard's; nil: all

	origin string         // identity of the stream of which next is
	next   uint64         // nothing that matches is left below; 0: not known
	epoch  uint64         // of the offset before next; 0: not known
	epochs bool           // all brokers know epochs of sources
	come   removal.Source // of the last question
	// lost is the progress that the origin was found to have lost, and back the last progress of
	// which it has the record. Until the shard has a later record, the source goes on behind back.
	lost, back removal.Source
	reached    bool   // a record was taken since the start time of the source
	behind     bool   // the origin had more
	needs      int    // how many bytes the next record takes if that is more than a question asks for
	skipped    uint64 // how many records no answer carries
	failures   int    // in a row
	err        error  // of the last one; nil: it did not fail
	lag        uint64
}

// newFetcher returns the fetcher of a source.
func newFetcher(source coordination.StreamSource) *fetcher {
	f := &fetcher{of: source, source: source, index: source.Index(), by: newMapping(source.Transforms)}
	f.key = removal.KeyOf(f.index)
	if source.Filter != "" {
		f.filters = []string{source.Filter}
	}
	for _, m := range source.Transforms {
		from := m.Source
		if from == "" {
			from = ">"
		}
		f.filters = append(f.filters, from)
	}
	return f
}

// ask returns the next question to a stream of an identity, by how far the shard's log says that
// the source has come.
//
//  1. A source goes on behind the last record that it has taken.
//  2. If the stream was made anew since, or nothing was taken yet, it begins where its settings
//     say.
//  3. Records that didn't match, or were gone, are not looked at again.
//  4. If the stream has lost records that were taken, it goes on where its log became another one.
func (f *fetcher) ask(come removal.Source, origin string) question {
	if f.origin != origin {
		f.origin, f.next, f.epoch, f.reached, f.needs, f.skipped = origin, 0, 0, false, 0, 0
		f.lost, f.back = removal.Source{}, removal.Source{}
	}
	f.come = come
	least := uint64(0)
	if f.lost.Sequence > 0 && come == f.lost {
		come, least = f.back, f.source.StartSequence
	}
	q := question{Origin: origin, Filters: f.filters, Share: f.share, Bytes: max(smallBytes, f.needs), Exact: true, Stamps: true, Wait: patience}
	if f.next > f.source.StartSequence { // otherwise the stream may not have come so far yet
		q.Last, q.LastEpoch = f.next-1, f.epoch
	}
	if come.Sequence > 0 && come.Origin == origin {
		if q.Next = max(come.Sequence+1, least); come.Sequence > q.Last {
			q.Last, q.LastEpoch = come.Sequence, come.Epoch
		}
	} else {
		q.Next, q.Since = f.source.StartSequence, f.source.StartTime
	}
	if q.Next = max(q.Next, f.next); f.reached {
		q.Since = time.Time{}
	}
	if f.source.Mirrored || !f.epochs { // the offsets of a mirror don't move back
		q.LastEpoch = 0
	}
	return q
}

// answered returns the messages of an answer for the shard: nil, if there are none.
func (f *fetcher) answered(a *answer) (*Batch, error) {
	if a.Error != "" {
		return nil, errors.New(a.Error)
	}
	if a.Diverged > 0 {
		f.divergedAt(a)
		return nil, nil
	}
	b := &Batch{Of: f.of, Stream: f.source.Name, Key: f.key, Origin: f.origin}
	err := a.each(func(r *log.Record) {
		if !f.share.has(r.Subject) {
			return // a broker of an earlier version answers
		}
		m := protocol.Message{Subject: r.Subject, Header: r.Header, Data: r.Data}
		if m.Subject = f.by.of(r.Subject); f.source.Mirrored {
			b.Times = append(b.Times, r.Time)
		} else {
			b.added, b.Subjects = append(b.added, 0), append(b.Subjects, r.Subject)
			m.Data, m.Header = copied(&protocol.Message{Subject: r.Subject, Header: r.Header, Data: r.Data}, f.index, r.Offset, f.origin)
			b.added[len(b.added)-1] = max(0, len(m.Data)-len(r.Data))
		}
		if a.Stamped {
			b.Stamps = append(b.Stamps, r.Stamp)
		}
		b.Messages, b.Sequences = append(b.Messages, m), append(b.Sequences, r.Offset)
		if f.epochs {
			b.Epochs = append(b.Epochs, a.epochAt(r.Offset))
		}
	})
	if err != nil {
		return nil, err
	}
	f.reached = f.reached || len(b.Messages) > 0
	f.lag, f.behind = a.Lag+uint64(len(b.Messages)), a.More
	if len(b.Messages) == 0 {
		f.taken(a)
		return nil, nil
	}
	return b, nil
}

// divergedAt notes that the origin has other records from an offset on than those that were seen.
func (f *fetcher) divergedAt(a *answer) {
	if f.come.Sequence >= a.Diverged { // copied ones among them
		f.lost = f.come
		f.back = removal.Source{Key: f.key, Sequence: a.Diverged - 1, Epoch: a.epochAt(a.Diverged - 1), Origin: f.origin}
	}
	f.next = 0
	f.taken(a)
}

// loss says what the origin has lost of what was copied, or nil.
func (f *fetcher) loss() error {
	if f.lost.Sequence == 0 {
		return nil
	}
	return fmt.Errorf("the stream has lost its messages from %d up to %d after they were copied: the copies stay, and its new messages from %d on are copied as well", f.back.Sequence+1, f.lost.Sequence, f.back.Sequence+1)
}

// taken notes that the shard has all records of an answer.
func (f *fetcher) taken(a *answer) {
	if a.Next > f.next {
		f.next, f.epoch = a.Next, a.epochAt(a.Next-1)
	}
	f.lag, f.failures, f.err = a.Lag, 0, nil
	f.needs, f.skipped = a.Needs, f.skipped+a.Skipped
}

// failed notes a failure and returns the pause after it. jitter is between 0 and 1.
func (f *fetcher) failed(err error, jitter float64) time.Duration {
	f.err, f.behind = err, false
	f.next, f.epoch, f.reached, f.needs = 0, 0, false, 0 // the shard's log says how far the source has come
	rest := longestRest
	if f.failures < 16 {
		rest = min(firstRest<<f.failures, longestRest)
	}
	f.failures++
	return rest - time.Duration(jitter*float64(rest)/2)
}
