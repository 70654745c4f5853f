package removing

import (
	"errors"
	"fmt"

	"github.com/carillon-mq/carillon/broker/log"
	"github.com/carillon-mq/carillon/broker/removal"
)

// Loaded is what the logs of a copy say of removed records.
type Loaded struct {
	// Marked reports whether batches of the data log may have removed records, and Taken is below
	// which offset the state log has what they have removed.
	Marked bool
	Taken  uint64
	// Carried is what the batches that were read have removed: the state log may lack it.
	Carried []removal.Span
	// Expiries are when records expire, of those that may still be there, if what batches carry is
	// asked for. CarriedExpiries are those that the batches which were read have brought.
	Expiries, CarriedExpiries []removal.Expiry
	// Progress is how far sources have come, and ProgressCarried whether a batch that was read says
	// that, so that the state log may lack it.
	Progress        removal.Progress
	ProgressCarried bool
	// Limit is how many records a subject had at most as of the last Mark; 0: not known.
	Limit uint64
}

// Load adds to set what two logs say of removed records that the data log has below an offset: the
// state log below an offset, and the batches behind its last Mark, if carried. It reads past
// damage: the error is then the damage, a *log.CorruptError, or wraps removal.ErrMalformed if every
// replica has the same, and set may lack removed records.
func Load(state, data *log.Log, stateBelow, dataBelow uint64, carried bool, set *removal.Set) (Loaded, error) {
	l := loader{data: data, below: dataBelow, set: set, expiries: carried}
	err := l.each(state, stateBelow, func(b log.Batch) error { return l.batchOfState(b, stateBelow) })
	if err != nil {
		return l.loaded, err
	}
	if _, damaged := errors.AsType[*log.CorruptError](l.failed()); damaged {
		l.loaded.Marked = true // the Mark may have been there
	}
	l.next = max(l.loaded.Taken, data.Start())
	if carried && l.loaded.Marked {
		if err := l.each(data, dataBelow, l.batchOfData); err != nil {
			return l.loaded, err
		}
	}
	return l.loaded, l.failed()
}

// loader is the work of one Load.
type loader struct {
	data              *log.Log
	below             uint64
	set               *removal.Set
	expiries          bool // they are asked for
	loaded            Loaded
	next              uint64 // where each begins
	damage, malformed error
}

func (l *loader) failed() error {
	if l.damage != nil {
		return l.damage
	}
	return l.malformed
}

// each calls f with the batches of a log below an offset. An error of f is noted.
func (l *loader) each(from *log.Log, below uint64, f func(log.Batch) error) error {
	for c := from.NewCursor(max(l.next, from.Start())); c.Next() < below; {
		v, err := c.Read(readBytes)
		if corrupt, ok := errors.AsType[*log.CorruptError](err); ok && corrupt.Next > c.Next() {
			l.damage = err
			c.Seek(corrupt.Next)
			continue
		}
		if err != nil {
			return err
		}
		if v.End == v.From {
			break
		}
		for b, ok := v.Next(); ok; b, ok = v.Next() {
			if err := f(b); err != nil {
				l.malformed = err
			}
		}
		v.Release()
	}
	return nil
}

// add adds a span to the set, as far as the data log has its records.
func (l *loader) add(s removal.Span) {
	if part, ok := l.within(s); ok {
		l.set.Add(part.From, part.Next)
	}
}

// addCarried is add for what a batch has removed.
func (l *loader) addCarried(s removal.Span) {
	if part, ok := l.within(s); ok {
		l.set.Add(part.From, part.Next)
		l.loaded.Carried = append(l.loaded.Carried, part)
	}
}

// expire takes when a record expires, if the data log has it.
func (l *loader) expire(e removal.Expiry) {
	if _, ok := l.within(removal.Span{Epoch: e.Epoch, From: e.Offset, Next: e.Offset + 1}); ok && l.expiries {
		l.loaded.Expiries = append(l.loaded.Expiries, e)
	}
}

// expireCarried is expire for what a batch says.
func (l *loader) expireCarried(e removal.Expiry) {
	n := len(l.loaded.Expiries)
	l.expire(e)
	l.loaded.CarriedExpiries = append(l.loaded.CarriedExpiries, l.loaded.Expiries[n:]...)
}

// progress takes how far sources have come, if the data log has that record, or begins behind it.
func (l *loader) progress(data []byte, carried bool) error {
	p, err := removal.ParseProgress(data)
	before := &l.loaded.Progress
	if err != nil || p.Offset >= l.below || p.Offset < before.Offset {
		return err
	}
	if p.Offset >= l.data.Start() {
		if epoch, _ := l.data.EpochAt(p.Offset); epoch != p.Epoch {
			return nil
		}
	}
	if carried && p.Offset == before.Offset && p.Epoch == before.Epoch && !l.loaded.ProgressCarried {
		return nil // the state log may say of that offset what was passed since
	}
	l.loaded.ProgressCarried = carried && (l.loaded.ProgressCarried || p.Offset > l.loaded.Progress.Offset)
	l.loaded.Progress = p
	return nil
}

// within returns the part of a span whose records the data log has.
func (l *loader) within(s removal.Span) (part removal.Span, ok bool) {
	s.Next = min(s.Next, l.below)
	return s.Within(l.data)
}

// batchOfState takes the Items and Marks of a batch of the state log, of its records below an
// offset.
func (l *loader) batchOfState(b log.Batch, below uint64) (err error) {
	if b.Lost() {
		l.loaded.Marked = true
		return fmt.Errorf("%w: the state log lost its offsets from %d up to %d on all replicas", removal.ErrMalformed, b.Base(), b.End())
	}
	records := b.Records()
	for r := (log.Record{}); records.Next(&r) && r.Offset < below; {
		if string(r.Subject) != removal.Subject {
			continue
		}
		e := error(nil)
		if removal.AreExpiries(r.Data) {
			e = removal.EachExpiry(r.Data, l.expire)
		} else if removal.IsProgress(r.Data) {
			e = l.progress(r.Data, false)
		} else {
			e = removal.EachSpan(r.Data, l.add)
		}
		if e == nil && len(r.Attributes) > 0 {
			var m removal.Mark
			m, e = removal.ParseMark(r.Attributes)
			l.mark(m)
		}
		if e != nil {
			err = fmt.Errorf("offset %d of the state log: %w", r.Offset, e)
		}
	}
	if e := records.Err(); e != nil {
		err = fmt.Errorf("%w: %w", removal.ErrMalformed, e)
	}
	return err
}

// mark takes a Mark, if the data log still has what it speaks of (K5).
func (l *loader) mark(m removal.Mark) {
	l.loaded.Marked, l.loaded.Limit = true, m.Limit
	if m.Below <= l.loaded.Taken {
		return
	}
	if m.Below > l.data.Start() {
		if epoch, _ := l.data.EpochAt(m.Below - 1); epoch != m.Epoch {
			return
		}
	}
	l.loaded.Taken = m.Below
}

// batchOfData takes what a batch of the data log has removed.
func (l *loader) batchOfData(b log.Batch) error {
	if b.End() > l.below {
		return nil
	}
	unlimited, err := eachCarried(b, l.addCarried, l.expireCarried, func(data []byte) error { return l.progress(data, true) })
	if unlimited {
		l.loaded.Limit = 0
	}
	if err != nil {
		return fmt.Errorf("the batch at offset %d: %w", b.Base(), err)
	}
	return nil
}

// eachCarried calls f with each span that a batch of a data log has removed, and expire with when
// its records expire, and progress with how far sources have come. unlimited reports whether the
// batch has a record that may be beyond the limit of its subject (Batch.Unlimited). The error wraps
// removal.ErrMalformed.
func eachCarried(b log.Batch, f func(removal.Span), expire func(removal.Expiry), progress func([]byte) error) (unlimited bool, err error) {
	for it := b.Extensions(); ; {
		e, ok := it.Next()
		if !ok {
			return unlimited, nil
		}
		if e.Type != log.ExtensionRemovals {
			continue
		}
		if removal.AreExpiries(e.Data) {
			if err := removal.EachExpiry(e.Data, expire); err != nil {
				return unlimited, err
			}
			continue
		}
		if removal.IsProgress(e.Data) {
			if err := progress(e.Data); err != nil {
				return unlimited, err
			}
			continue
		}
		some := false
		if err := removal.EachSpan(e.Data, func(s removal.Span) { some = true; f(s) }); err != nil {
			return unlimited, err
		}
		unlimited = unlimited || !some
	}
}
