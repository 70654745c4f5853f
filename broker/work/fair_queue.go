package work

// FairQueue holds items of clients that wait, and counts those that run. Users share it, and the
// connections of a user share what is the user's. Operations take logarithmic time, and the memory
// of items is reused. It is not safe for concurrent use.
//
//  1. Turns: the next item is of the user with the fewest running ones. Of several such users it is
//     the one that was served the longest ago. Its connections take turns by the same rule.
//  2. Places: a user may have all but a reserve of them, and a connection all of these but another
//     one. The last place is for a user of which nothing runs, and the last one of a user for such
//     a connection (reservePart).
//  3. Room: if too much waits, the user with the most loses an item, by number or by bytes,
//     whichever is exceeded: the newest one of its connection with the most. So a user with one
//     small item gets in, unless all others have one, too.
//
// Rejected: a bound for each user. One that is alone then has a fraction of the queue, and many
// together exceed it anyway.
type FairQueue[T any] struct {
	most, mostBytes int // 0: no bound
	places          places

	users   map[uint64]*Share[T]
	clients map[Client]*Share[T]
	ranks   ranking[T] // of users with items
	n       int
	bytes   int
	running int
	turn    uint64     // the latest
	spare   *Share[T]  // for reuse, linked by next
	unused  *Queued[T] // for reuse, linked by newer
	kept    int        // of both
}

// Queued is an item in a FairQueue. It is valid until the item leaves the queue.
type Queued[T any] struct {
	item         T
	size         int
	of           *Share[T]
	older, newer *Queued[T]
}

// NewFairQueue returns a queue with room for items, of bytes in total, and with places. Bounds of 0
// for what waits are none. Nothing of a queue without places is taken.
func NewFairQueue[T any](places, items, bytes int) *FairQueue[T] {
	return &FairQueue[T]{
		places: newPlaces(places), most: items, mostBytes: bytes,
		users: map[uint64]*Share[T]{}, clients: map[Client]*Share[T]{},
	}
}

// Start takes a place for an item of a client that has not waited, until Next or Leave. It reports
// false if it has to wait.
func (q *FairQueue[T]) Start(of Client) (running *Share[T], ok bool) {
	c := q.share(of)
	if !mayHave(q.places.all, q.places.user, q.running, c.user.running) || !mayHave(q.places.user, q.places.connection, c.user.running, c.running) {
		q.release(c)
		return nil, false
	}
	q.served(c)
	q.change(c, 0, 0, 1)
	return c, true
}

// Next takes the next item, which runs in the place of one that has ended. If none may run, that
// one keeps its place: call Next again before Leave if the queue was not locked in between.
func (q *FairQueue[T]) Next(ended *Share[T]) (item T, running *Share[T], ok bool) {
	q.change(ended, 0, 0, -1)
	u := q.ranks.first(byTurn)
	if u == nil || !mayHave(q.places.all, q.places.user, q.running, u.running) {
		q.change(ended, 0, 0, 1)
		return item, nil, false
	}
	c := u.connections.first(byTurn)
	one := c.oldest
	item = one.item
	q.served(c)
	q.change(c, 0, 0, 1)
	q.Remove(one)
	q.release(ended)
	return item, c, true
}

// Leave gives up the place of an item that has ended, after Next had none for it.
func (q *FairQueue[T]) Leave(ended *Share[T]) {
	q.change(ended, 0, 0, -1)
	q.release(ended)
}

// Push queues an item of a client that holds about size bytes. It returns nil if there is no room
// for it. dropped are the items of other clients that have left the queue for it.
func (q *FairQueue[T]) Push(of Client, item T, size int) (queued *Queued[T], dropped []T) {
	queued = q.append(of, item, size)
	c := queued.of
	for {
		by, exceeded := q.exceeded()
		if !exceeded {
			return queued, dropped
		}
		u := q.ranks.first(by)
		if !before(by, u, c.user) {
			u = c.user
		}
		victim := u.connections.first(by)
		if u == c.user && !before(by, victim, c) {
			q.Remove(queued)
			return nil, dropped
		}
		dropped = append(dropped, victim.newest.item)
		q.Remove(victim.newest)
	}
}

// Len returns the number of items that wait.
func (q *FairQueue[T]) Len() int { return q.n }

// exceeded returns in which order shares exceed what may wait.
func (q *FairQueue[T]) exceeded() (by order, exceeded bool) {
	switch {
	case q.most > 0 && q.n > q.most:
		return byNumber, true
	case q.mostBytes > 0 && q.bytes > q.mostBytes:
		return byBytes, true
	}
	return 0, false
}

func (q *FairQueue[T]) append(of Client, item T, size int) *Queued[T] {
	one := q.unused
	if one != nil {
		q.unused = one.newer
		q.kept--
	} else {
		one = new(Queued[T])
	}
	c := q.share(of)
	*one = Queued[T]{item: item, size: size, of: c, older: c.newest}
	if c.newest != nil {
		c.newest.newer = one
	} else {
		c.oldest = one
	}
	c.newest = one
	q.change(c, 1, size, 0)
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
	q.change(c, -1, -one.size, 0)
	q.release(c)
	*one = Queued[T]{}
	if q.kept < keptItems {
		q.kept++
		one.newer, q.unused = q.unused, one
	}
}

// served has a connection and its user wait for the others.
func (q *FairQueue[T]) served(c *Share[T]) {
	q.turn++
	c.turn, c.user.turn = q.turn, q.turn
}

// change counts what waits and runs of a connection, and ranks it and its user anew.
func (q *FairQueue[T]) change(c *Share[T], items, bytes, running int) {
	q.n, q.bytes, q.running = q.n+items, q.bytes+bytes, q.running+running
	u := c.user
	for _, s := range [...]*Share[T]{c, u} {
		if s.items == 0 && items > 0 {
			q.turn++
			s.turn = q.turn
		}
		s.items, s.bytes, s.running = s.items+items, s.bytes+bytes, s.running+running
	}
	u.connections.settle(byTurn, c, c.items > 0 && c.running < q.places.connection)
	next := u.connections.first(byTurn)
	q.ranks.settle(byTurn, u, next != nil && mayHave(q.places.user, q.places.connection, u.running, next.running))
	if items == 0 {
		return
	}
	if q.most > 0 {
		u.connections.settle(byNumber, c, c.items > 0)
		q.ranks.settle(byNumber, u, u.items > 0)
	}
	if q.mostBytes > 0 {
		u.connections.settle(byBytes, c, c.items > 0)
		q.ranks.settle(byBytes, u, u.items > 0)
	}
}

// share returns the share of a client, which may be a new one.
func (q *FairQueue[T]) share(of Client) *Share[T] {
	if c := q.clients[of]; c != nil {
		return c
	}
	u := q.users[of.User]
	if u == nil {
		u = q.newShare(of)
		q.users[of.User] = u
	}
	c := q.newShare(of)
	c.user = u
	q.clients[of] = c
	return c
}

func (q *FairQueue[T]) newShare(of Client) *Share[T] {
	s := q.spare
	if s == nil {
		return &Share[T]{client: of}
	}
	q.spare = s.next
	q.kept--
	s.next, s.client = nil, of
	return s
}

// release forgets the share of a connection, and that of its user, if they are empty.
func (q *FairQueue[T]) release(c *Share[T]) {
	if !c.empty() {
		return
	}
	u := c.user
	delete(q.clients, c.client)
	q.reuse(c)
	if u.empty() {
		delete(q.users, u.client.User)
		q.reuse(u)
	}
}

func (q *FairQueue[T]) reuse(s *Share[T]) {
	if q.kept < keptItems {
		q.kept++
		s.reset()
		s.next, q.spare = q.spare, s
	}
}
