package work

import "math/bits"

// FairQueue holds items of clients. Each client has a queue of its own, and the queues take turns.
// Every operation takes constant time, and the memory of items is reused. It is not safe for
// concurrent use.
//
// If too much is queued, the newest item of a client with the most is dropped, by number or by
// bytes, whichever is exceeded. So a client with one small item gets in, unless all others have
// one, too. "The most" is exact to a factor of two: clients are ranked by powers of two.
//
// Rejected: a bound for each client. A client that is alone then has a fraction of the queue, and
// many clients together exceed it anyway.
type FairQueue[T any] struct {
	most, mostBytes int // 0: no bound

	clients  map[uint64]*client[T]
	lists    [1 + 2*classes]*client[T] // the turns, and the ranks by number and by bytes: circular
	n, bytes int
	spare    *client[T] // for reuse, linked by the turns' next
	unused   *Queued[T] // for reuse, linked by newer
	kept     int        // of both
}

const (
	classes  = 64
	turns    = 0
	byNumber = 1
	byBytes  = 1 + classes
)

// client is a client with queued items.
type client[T any] struct {
	key            uint64
	oldest, newest *Queued[T]
	items, bytes   int
	in             [3]place[T] // in the turns, and in a rank by number and one by bytes
}

// place is where a client stands in a list.
type place[T any] struct {
	list       int
	prev, next *client[T]
}

// Queued is an item in a FairQueue. It is valid until the item leaves the queue.
type Queued[T any] struct {
	item         T
	size         int
	of           *client[T]
	older, newer *Queued[T]
}

// NewFairQueue returns a queue for up to items, of bytes in total; 0: no bound.
func NewFairQueue[T any](items, bytes int) *FairQueue[T] {
	return &FairQueue[T]{most: items, mostBytes: bytes, clients: map[uint64]*client[T]{}}
}

// Push queues an item of a client that holds about size bytes. It returns nil if there is no room
// for it. dropped are the items of other clients that have left the queue for it.
func (q *FairQueue[T]) Push(key uint64, item T, size int) (queued *Queued[T], dropped []T) {
	return q.push(key, item, size, 0)
}

// push is Push while ready items are about to be taken, which don't count.
func (q *FairQueue[T]) push(key uint64, item T, size, ready int) (queued *Queued[T], dropped []T) {
	queued = q.append(key, item, size)
	c := queued.of
	for {
		rank := q.exceeded(ready)
		if rank == 0 {
			return queued, dropped
		}
		victim := q.heaviest(rank)
		if c.in[index(rank)].list == victim.in[index(rank)].list {
			q.Remove(queued)
			return nil, dropped
		}
		dropped = append(dropped, victim.newest.item)
		q.Remove(victim.newest)
	}
}

// Pop removes and returns the oldest item of the client whose turn it is.
func (q *FairQueue[T]) Pop() (item T, ok bool) {
	c := q.lists[turns]
	if c == nil {
		return item, false
	}
	q.lists[turns] = c.in[0].next // the next client's turn
	item = c.oldest.item
	q.Remove(c.oldest)
	return item, true
}

// Len returns the number of items.
func (q *FairQueue[T]) Len() int { return q.n }

// exceeded returns the rank whose bound is exceeded, or 0.
func (q *FairQueue[T]) exceeded(ready int) (rank int) {
	switch waits := q.n - ready; {
	case waits <= 0:
		return 0
	case q.most > 0 && waits > q.most:
		return byNumber
	case q.mostBytes > 0 && q.bytes > q.mostBytes:
		return byBytes
	}
	return 0
}

// heaviest returns a client of the highest class of a rank. There are items.
func (q *FairQueue[T]) heaviest(rank int) *client[T] {
	for i := rank + classes - 1; ; i-- {
		if c := q.lists[i]; c != nil {
			return c
		}
	}
}

func (q *FairQueue[T]) append(key uint64, item T, size int) *Queued[T] {
	c := q.clients[key]
	if c == nil {
		if c = q.spare; c != nil {
			q.spare = c.in[0].next
			q.kept--
			*c = client[T]{}
		} else {
			c = new(client[T])
		}
		c.key = key
		q.clients[key] = c
	}
	one := q.unused
	if one != nil {
		q.unused = one.newer
		q.kept--
	} else {
		one = new(Queued[T])
	}
	*one = Queued[T]{item: item, size: size, of: c, older: c.newest}
	if c.newest != nil {
		c.newest.newer = one
	} else {
		c.oldest = one
	}
	c.newest = one
	q.count(c, 1, size)
	return one
}

// Remove removes an item, which must be in the queue.
func (q *FairQueue[T]) Remove(one *Queued[T]) {
	c := one.of
	if one.older != nil {
		one.older.newer = one.newer
	} else {
		c.oldest = one.newer
	}
	if one.newer != nil {
		one.newer.older = one.older
	} else {
		c.newest = one.older
	}
	q.count(c, -1, -one.size)
	if c.items == 0 {
		delete(q.clients, c.key)
		if q.kept < keptItems {
			q.kept++
			c.in[0].next, q.spare = q.spare, c
		}
	}
	*one = Queued[T]{}
	if q.kept < keptItems {
		q.kept++
		one.newer, q.unused = q.unused, one
	}
}

// count counts items of a client, and moves it to the lists where it belongs.
func (q *FairQueue[T]) count(c *client[T], items, size int) {
	before := c.items
	q.n, q.bytes = q.n+items, q.bytes+size
	c.items, c.bytes = c.items+items, c.bytes+size
	lists := [3]int{turns, byNumber + bits.Len(uint(c.items)), byBytes + bits.Len(uint(c.bytes))}
	for i, list := range lists {
		if before > 0 && c.items > 0 && c.in[i].list == list {
			continue
		}
		if before > 0 {
			q.unlink(c, i)
		}
		if c.items > 0 {
			q.link(c, i, list)
		}
	}
}

// index returns the index into client.in of a list.
func index(list int) int {
	switch {
	case list >= byBytes:
		return 2
	case list >= byNumber:
		return 1
	}
	return 0
}

// link appends a client to a list.
func (q *FairQueue[T]) link(c *client[T], i, list int) {
	first := q.lists[list]
	if first == nil {
		q.lists[list], c.in[i] = c, place[T]{list, c, c}
		return
	}
	last := first.in[i].prev
	c.in[i] = place[T]{list, last, first}
	last.in[i].next, first.in[i].prev = c, c
}

// unlink removes a client from its list.
func (q *FairQueue[T]) unlink(c *client[T], i int) {
	at := c.in[i]
	if at.next == c {
		q.lists[at.list] = nil
	} else {
		at.prev.in[i].next, at.next.in[i].prev = at.next, at.prev
		if q.lists[at.list] == c {
			q.lists[at.list] = at.next
		}
	}
	c.in[i] = place[T]{}
}
