package removing

import (
	"slices"

	"github.com/carillon-mq/carillon/broker/log"
	"github.com/carillon-mq/carillon/broker/removal"
)

// Batch gathers what the records of a batch remove, and when they expire. The zero Batch removes
// nothing.
type Batch struct {
	spans     []removal.Span
	items     []byte
	expiries  []removal.Expiry
	unlimited bool // see Unlimited
	sourced   bool // it has progress
	progress  removal.Progress
	source    removal.Source
	keep      func(removal.SourceKey) bool
}

// Full reports whether the batch is to be appended before more is added.
func (b *Batch) Full() bool { return len(b.spans) >= removal.ItemSpans }

// Add adds records of one epoch, from from up to and without next.
func (b *Batch) Add(epoch, from, next uint64) {
	if from < next {
		b.spans = append(b.spans, removal.Span{Epoch: epoch, From: from, Next: next})
	}
}

// AddFrom adds records of a log.
func (b *Batch) AddFrom(l *log.Log, from, next uint64) {
	for span := range removal.Split(from, next, l.EpochAt) {
		b.spans = append(b.spans, span)
	}
}

// Touches reports whether the batch says when a record expires, or removes it.
func (b *Batch) Touches(offset uint64) bool {
	return slices.ContainsFunc(b.expiries, func(e removal.Expiry) bool { return e.Offset == offset }) ||
		slices.ContainsFunc(b.spans, func(s removal.Span) bool { return s.From <= offset && offset < s.Next })
}

// Expire notes when a record expires: one of the batch, or one before whose expiry moves to a later
// time.
func (b *Batch) Expire(epoch, offset uint64, at int64) {
	b.expiries = append(b.expiries, removal.Expiry{Epoch: epoch, Offset: offset, At: at})
}

// Source notes that a record of the batch is from a source, which has come so far. Records are
// added in the order of the log, and are all from one source. keep reports which sources are not
// forgotten.
func (b *Batch) Source(epoch, offset uint64, s removal.Source, keep func(removal.SourceKey) bool) {
	b.sourced, b.progress.Epoch, b.progress.Offset, b.source, b.keep = true, epoch, offset, s, keep
}

// Unlimited notes that the batch has a record which may be beyond the limit of its subject. Load
// finds that in the batch, since a Mark may not reach the replicas that the batch reaches.
func (b *Batch) Unlimited(k *Keeper, durability log.Durability) {
	k.Raise(0, durability)
	b.unlimited = true
}

// Carry appends what b has to the extensions of a batch that is going to end at an offset, and
// passes it to the shard's Keeper. It reports whether it passed something. The extensions are valid
// until Reset.
func (b *Batch) Carry(k *Keeper, end uint64, to []log.Extension) (extensions []log.Extension, some bool) {
	if b.unlimited {
		b.items = removal.AppendItem(b.items) // without spans
		to = append(to, log.Extension{Type: log.ExtensionRemovals, Data: b.items})
	}
	if len(b.spans) == 0 && len(b.expiries) == 0 && !b.sourced && !b.unlimited {
		return to, false
	}
	var progress *removal.Progress
	if b.sourced {
		before, from := k.Progress(), len(b.items)
		progress = &removal.Progress{Epoch: b.progress.Epoch, Offset: b.progress.Offset, Sources: before.With(b.source, b.keep)}
		b.items = removal.AppendProgress(b.items, progress)
		to = append(to, log.Extension{Type: log.ExtensionRemovals, Data: b.items[from:]})
	}
	if len(b.expiries) > 0 {
		from := len(b.items)
		b.items = removal.AppendExpiries(b.items, b.expiries...)
		to = append(to, log.Extension{Type: log.ExtensionRemovals, Data: b.items[from:]})
	}
	for spans := b.spans; len(spans) > 0; {
		n, from := min(len(spans), removal.ItemSpans), len(b.items)
		b.items = removal.AppendItem(b.items, spans[:n]...)
		to = append(to, log.Extension{Type: log.ExtensionRemovals, Data: b.items[from:]})
		spans = spans[n:]
	}
	k.carry(end, b.unlimited, b.spans, b.expiries, progress)
	return to, true
}

// Reset empties the batch.
func (b *Batch) Reset() {
	b.spans, b.items, b.expiries, b.unlimited = b.spans[:0], b.items[:0], b.expiries[:0], false
	b.sourced, b.progress, b.source, b.keep = false, removal.Progress{}, removal.Source{}, nil
}
