package removing

import (
	"context"
	"slices"

	"github.com/carillon-mq/carillon/broker/log"
	"github.com/carillon-mq/carillon/broker/removal"
	"github.com/carillon-mq/carillon/broker/work"
)

// progress is how far the sources of a shard have come, of a Keeper, whose mu guards it. Each batch
// with records of a source says it of all sources.
type progress struct {
	fresh   []removal.Progress // of batches that are not on all in-sync replicas yet
	kept    removal.Progress   // of the last other one
	added   bool               // the last batch has brought one
	untaken bool               // the state log may lack kept
	noting  bool               // a Note is under way
	turn    uint64             // rises with each kept
	// hold keeps the last batch that says what the state log lacks, if there is one.
	hold   *log.Hold
	closed bool // nothing is held any more
}

// load replaces all by what the logs say. carried: the state log may lack it.
func (x *progress) load(data *log.Log, p removal.Progress, carried bool) {
	x.release()
	*x = progress{kept: p, untaken: carried}
	if carried {
		x.holdFrom(data, p.Offset)
	}
}

// add adds what a batch says that is going to be appended to a log; nil: nothing.
func (x *progress) add(data *log.Log, p *removal.Progress) {
	if x.added = p != nil; !x.added {
		return
	}
	if x.fresh = append(x.fresh, *p); x.hold == nil {
		_, end, _ := data.Offsets()
		x.holdFrom(data, end)
	}
}

// undo takes back the last add: the batch was not appended.
func (x *progress) undo() {
	if x.added {
		x.fresh, x.added = x.fresh[:len(x.fresh)-1], false
	}
}

// next returns the offset of the first fresh one; 0: there is none.
func (x *progress) next() uint64 {
	if len(x.fresh) == 0 {
		return 0
	}
	return x.fresh[0].Offset
}

// commit notes that what is before an offset is on all in-sync replicas.
func (x *progress) commit(end uint64) {
	n := 0
	for n < len(x.fresh) && x.fresh[n].Offset < end {
		n++
	}
	if n > 0 {
		x.kept, x.untaken, x.turn = x.fresh[n-1], true, x.turn+1
		x.fresh = slices.Delete(x.fresh, 0, n)
		x.added = x.added && len(x.fresh) > 0
	}
}

// pass adds how far a source has come with records that are in the log already, all of them before
// the offset end. A batch that is going to be appended behind it may say so as well.
func (x *progress) pass(epoch, end uint64, s removal.Source, keep func(removal.SourceKey) bool) {
	last := x.last()
	if of, ok := last.Of(s.Key); ok && of.Covers(&s) {
		return
	}
	next := removal.Progress{Epoch: epoch, Offset: end - 1, Sources: last.With(s, keep)}
	if n := len(x.fresh); n > 0 && x.fresh[n-1].Offset >= next.Offset {
		x.fresh[n-1].Sources = next.Sources
		return
	}
	x.fresh, x.added = append(x.fresh, next), false
}

// last is how far sources have come by the end of the log.
func (x *progress) last() removal.Progress {
	if n := len(x.fresh); n > 0 {
		return x.fresh[n-1]
	}
	return x.kept
}

// holdFrom moves the hold.
func (x *progress) holdFrom(data *log.Log, offset uint64) {
	if before := x.hold; !x.closed {
		if x.hold = data.Hold(offset); before != nil {
			before.Release()
		}
	}
}

// release ends the hold.
func (x *progress) release() {
	if x.hold != nil {
		x.hold.Release()
		x.hold = nil
	}
}

// Progress returns how far sources have come by the end of the log, of which the last batches may
// not be on all in-sync replicas yet.
func (k *Keeper) Progress() removal.Progress {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.progress.last()
}

// Pass notes that a source has come so far without a record of its own: others are there already
// that its records are duplicates of. Commit is to follow.
func (k *Keeper) Pass(s removal.Source, keep func(removal.SourceKey) bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	_, end, _ := k.Data.Offsets()
	epoch, _ := k.Data.EpochAt(end - 1)
	k.progress.pass(epoch, end, s, keep)
	k.sourced.Store(k.progress.next())
}

// Note writes to the state log how far sources have come, as far as it lacks that. done is called,
// perhaps before Note returns, when that is on all in-sync replicas, or has failed, and at once if
// another Note is under way.
func (k *Keeper) Note(durability log.Durability, done func(error)) {
	if !k.beginNote() {
		done(nil)
		return
	}
	finish := func(err error) {
		k.mu.Lock()
		k.progress.noting = false
		k.mu.Unlock()
		done(err)
	}
	if err := k.takeOver(carriage{}, k.taken.Load(), durability, finish); err != nil {
		finish(err)
	}
}

// beginNote reports whether there is something to note, and nobody does.
func (k *Keeper) beginNote() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	x := &k.progress
	if !x.untaken || x.noting {
		return false
	}
	x.noting = true
	return true
}

// Unnoted reports whether the state log may lack how far sources have come.
func (k *Keeper) Unnoted() bool {
	_, _, ok := k.unnoted()
	return ok
}

// unnoted returns what the state log may lack, and its turn.
func (k *Keeper) unnoted() (p removal.Progress, turn uint64, ok bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.progress.kept, k.progress.turn, k.progress.untaken
}

// noted notes that the state log says how far sources have come with an offset, as of a turn.
func (k *Keeper) noted(offset, turn uint64) {
	k.mu.Lock()
	defer k.mu.Unlock()
	x := &k.progress
	if turn == x.turn {
		x.untaken = false
	}
	if !x.untaken && len(x.fresh) == 0 {
		x.release()
	} else {
		x.holdFrom(k.Data, offset+1)
	}
}

// LetGo waits until the data log may lose its records below an offset: until the state log says how
// far sources have come with them.
func (k *Keeper) LetGo(ctx context.Context, below uint64, durability log.Durability) error {
	for {
		k.mu.Lock()
		hold := k.progress.hold
		k.mu.Unlock()
		if hold == nil || hold.Offset() >= below {
			return nil
		}
		done := make(chan error, 1)
		k.Note(durability, func(err error) { done <- err })
		select {
		case err := <-done:
			if err != nil {
				return err
			}
		case <-ctx.Done():
			return ctx.Err()
		}
		if !work.Sleep(ctx, letGoRest) { // what is committed is about to be known
			return ctx.Err()
		}
	}
}

// Close releases what k holds of the data log.
func (k *Keeper) Close() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.progress.release()
	k.progress.closed = true
}

// progressRecord returns the record of a state log with p.
func progressRecord(now int64, p *removal.Progress) log.Record {
	return log.Record{Time: now, Subject: []byte(removal.Subject), Data: removal.AppendProgress(nil, p)}
}
