package viewing

import (
	"context"
	"errors"
	"sync/atomic"
)

// errMemory is why a part or an owner does not go on, and why present values are not told.
var errMemory = errors.New("the views of this broker take more memory than they may: use keys with fewer values, shorter windows, or fewer views; or more or larger brokers")

// budget is the memory that all parts and owners of a broker share: keys, windows, sketches, and
// what is computed of them for a moment. Sizes are those of contents; the process takes up to some
// twice as much.
//
//	B1  Anyone grows, or is restored, while all together have less than two thirds of it. At a third
//	    a part stops that is ahead: closed windows wait for their owner, and take more than lead. An
//	    owner stops there with windows that wait for other shards. So the second third is for the
//	    shards that are waited for.
//	B2  What is needed for a moment (loan) is granted while all together have less than five
//	    sixths. Of loans that don't fit, one of each kind is granted at a time.
//	B3  Within its share a part or an owner always grows. The share is a sixth, divided by
//	    shareTimes and by the number of holders.
//	B4  So all together never have more than all of it. Beyond five sixths they grow within
//	    shares only. Of those that do, at most j-1 have more than the share of j holders, since they
//	    got it when there were fewer than j. So they have no more than the shares of 1, 2, 3 … up to
//	    maxParts+maxOwners holders together, and that is a sixth.
//	B5  There may be more for: a step that each may have begun (a record of a part, and the smallest
//	    page and rowsAtOnce results of an owner), the loans that don't fit (B2), results that are
//	    being written, which the owner held as windows, and encodesAtOnce checkpoints that are
//	    decoded for the first time. Pages under way are not counted: pageBytes bounds them.
//
// Nobody is made to give back what it has. A part that may not grow reads no further, and one that
// can't be restored waits; both say so, look again each second, and go on when there is room. So a
// view that needs more than there is stands still.
//
// Rejected: memory by turns, with parts that leave theirs to others. Each view would be late, and
// it can't be seen that all go on. Rejected: a share of all that is reserved, divided by the
// holders, without shareTimes. What n holders have taken of it leaves none for the next one.
type budget struct {
	memory  atomic.Int64 // what all may hold
	bytes   atomic.Int64 // what all hold
	holders atomic.Int64 // parts and owners, including those that end

	// Each has an element while one has a loan of its kind that does not fit.
	telling chan struct{} // a shard's present values
	making  chan struct{} // a view's
}

func (b *budget) init(memory int64) {
	b.memory.Store(memory)
	b.telling, b.making = make(chan struct{}, 1), make(chan struct{}, 1)
}

// sixths returns so many sixths of what all may hold.
func (b *budget) sixths(n int64) int64 { return b.memory.Load() * n / 6 }

// share is what each may hold whatever others have.
func (b *budget) share() int64 { return b.sixths(1) / shareTimes / max(1, b.holders.Load()) }

// grows reports whether one that holds size bytes may hold a little more.
func (b *budget) grows(size int64, ahead bool) bool {
	limit := b.sixths(4)
	if ahead {
		limit = b.sixths(2)
	}
	return size < b.share() || b.bytes.Load() < limit
}

// lead is how many bytes of closed windows a part may have that its owner has not acknowledged
// before it is ahead: some thousands of windows, since the owner asks every half second.
func (b *budget) lead() int64 { return min(pageBytes, b.memory.Load()/64) }

// room returns up to how many bytes an owner may hold that holds size.
func (b *budget) room(size int64) int64 {
	return max(b.share(), size+max(0, b.sixths(2)-b.bytes.Load()))
}

// take takes more for one that holds some bytes, all of it or nothing.
func (b *budget) take(held, more int64) bool {
	if held+more <= b.share() {
		b.bytes.Add(more)
		return true
	}
	return b.add(more, b.sixths(4))
}

// add adds to what all hold unless that would be beyond a limit.
func (b *budget) add(more, limit int64) bool {
	for {
		all := b.bytes.Load()
		if all+more > limit {
			return false
		}
		if b.bytes.CompareAndSwap(all, all+more) {
			return true
		}
	}
}

// give gives back what was taken.
func (b *budget) give(size int64) { b.bytes.Add(-size) }

// lendable is how much all may hold together with loans.
func (b *budget) lendable() int64 { return b.sixths(5) }

// pageBytes is how large a page an owner asks for.
func (b *budget) pageBytes(owners int64) int {
	return int(min(pageBytes, max(leastPage, b.sixths(1)/asksAtOnce/max(1, owners))))
}

// loan is memory that is needed for a moment. One goroutine uses it at a time.
type loan struct {
	of   *budget
	kind chan struct{} // of budget
	turn bool          // it may be beyond what all may hold
	size int64
}

// take takes more, all of it or nothing. In its turn a loan is refused only beyond lendable.
func (l *loan) take(more int64) bool {
	most := l.of.lendable()
	if l.turn && l.size+more <= most {
		l.of.bytes.Add(more)
	} else if !l.of.add(more, most) {
		return false
	}
	l.size += more
	return true
}

// rest returns how much take would grant.
func (l *loan) rest() int64 {
	if l.turn {
		return l.of.lendable() - l.size
	}
	return max(0, l.of.lendable()-l.of.bytes.Load())
}

// resize counts what is needed in truth.
func (l *loan) resize(size int64) {
	l.of.give(l.size - size)
	l.size = size
}

// wait waits for the turn of a loan that does not fit. It reports false when ctx ends.
func (l *loan) wait(ctx context.Context) bool {
	select {
	case l.kind <- struct{}{}:
		l.turn = true
	case <-ctx.Done():
	}
	return l.turn
}

// give gives back the loan, and its turn. nil is no loan.
func (l *loan) give() {
	if l == nil {
		return
	}
	l.resize(0)
	if l.turn {
		l.turn = false
		<-l.kind
	}
}
