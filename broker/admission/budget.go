package admission

import (
	"slices"
	"sync/atomic"
	"time"
)

// Budget divides bytes among claims. T is what has claims. It is not safe for concurrent use.
type Budget[T any] struct {
	size, share int64
	used        int64 // by held claims
	waits       int   // claims that wait
	addresses   map[string]*address[T]
	turns       []*address[T] // addresses with waiting claims, in the order of their turns
	held        []*Claim[T]
	looked      time.Time   // Evict was called last
	granted     []*Claim[T] // result of grant
	slow        []*Claim[T] // scratch of Evict
}

// address is the claims from one address.
type address[T any] struct {
	name    string
	open    int // claims that are open
	held    int64
	waiting []*Claim[T] // in the order of their arrival

	// Scratch of Evict: bytes that it holds after those that were evicted have gone, and bytes that
	// it has waited for too long.
	kept, overdue int64
}

// Claim is the part of the budget of one client's operation. It is used for one operation after
// another.
type Claim[T any] struct {
	Owner   T
	from    *address[T]
	state   state
	size    int64
	since   time.Time // held or waiting since
	arrived atomic.Int64

	// Of a held claim.
	index   int   // in Budget.held
	first   int64 // bytes that had arrived when it was granted
	mark    int64 // bytes that had arrived when its Window began
	marked  time.Time
	slow    bool // below Floor throughout its last Window
	evicted bool
}

type state uint8

const (
	idle state = iota
	waiting
	held
)

// New returns a Budget of size bytes.
func New[T any](size int64) *Budget[T] {
	return &Budget[T]{size: size, share: size / Shares, addresses: make(map[string]*address[T])}
}

// Open returns a claim of an owner at an address. Close ends it.
func (b *Budget[T]) Open(owner T, from string) *Claim[T] {
	a := b.addresses[from]
	if a == nil {
		a = &address[T]{name: from}
		b.addresses[from] = a
	}
	a.open++
	return &Claim[T]{Owner: owner, from: a}
}

// Ask claims size bytes for an operation of which some bytes have arrived. It reports whether the
// claim is held at once. Otherwise it waits, and a later Return or Close grants it.
func (b *Budget[T]) Ask(c *Claim[T], size, arrived int64, now time.Time) bool {
	c.state, c.size, c.since = waiting, size, now
	c.arrived.Store(arrived)
	b.waits++
	a := c.from
	if a.waiting = append(a.waiting, c); len(a.waiting) == 1 {
		b.turns = append(b.turns, a)
	}
	b.grant(now)
	return c.state == held
}

// Arrived says how many bytes of the operation have arrived. It is safe to call at any time.
func (c *Claim[T]) Arrived(bytes int64) { c.arrived.Store(bytes) }

// Return ends the operation of a claim, which is held, waits, or neither. It returns the claims
// that are held from now on; the slice is valid until the next call.
func (b *Budget[T]) Return(c *Claim[T], now time.Time) []*Claim[T] {
	a := c.from
	switch c.state {
	case held:
		b.used -= c.size
		a.held -= c.size
		last := len(b.held) - 1
		b.held[c.index] = b.held[last]
		b.held[c.index].index = c.index
		b.held[last] = nil
		b.held = b.held[:last]
	case waiting:
		b.waits--
		i := slices.Index(a.waiting, c)
		if a.waiting = slices.Delete(a.waiting, i, i+1); len(a.waiting) == 0 {
			at := slices.Index(b.turns, a)
			b.turns = slices.Delete(b.turns, at, at+1)
		}
	}
	c.state = idle
	return b.grant(now)
}

// Close is Return, and ends the claim.
func (b *Budget[T]) Close(c *Claim[T], now time.Time) []*Claim[T] {
	granted := b.Return(c, now)
	if c.from.open--; c.from.open == 0 {
		delete(b.addresses, c.from.name)
	}
	return granted
}

// grant grants what waits and fits, by turns.
func (b *Budget[T]) grant(now time.Time) []*Claim[T] {
	clear(b.granted)
	b.granted = b.granted[:0]
	for i := 0; i < len(b.turns); {
		a := b.turns[i]
		c := a.waiting[0]
		if a.held > 0 && a.held+c.size > b.share {
			i++
			continue
		}
		if b.used > 0 && b.used+c.size > b.size {
			break
		}
		a.waiting = slices.Delete(a.waiting, 0, 1)
		b.turns = slices.Delete(b.turns, i, i+1)
		if len(a.waiting) > 0 {
			b.turns = append(b.turns, a)
		}
		b.waits--
		b.used += c.size
		a.held += c.size
		c.state, c.since, c.index, c.slow, c.evicted = held, now, len(b.held), false, false
		c.first = c.arrived.Load()
		c.mark, c.marked = c.first, now
		b.held = append(b.held, c)
		b.granted = append(b.granted, c)
	}
	return b.granted
}

// Size returns the budget in bytes.
func (b *Budget[T]) Size() int64 { return b.size }

// Used returns the bytes of held claims.
func (b *Budget[T]) Used() int64 { return b.used }

// Waiting returns the number of claims that wait.
func (b *Budget[T]) Waiting() int { return b.waits }
