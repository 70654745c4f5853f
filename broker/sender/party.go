package sender

import (
	"math"
	"sync/atomic"
)

// party is the senders of a room whose shards one broker leads, or no broker (""). They are its
// members while they are listed, and it exists while it has some.
type party struct {
	broker string
	held   tally        // of all members
	crowd  atomic.Int32 // len(waiters), which is written under mu of room

	// Guarded by mu of room.
	members int
	waiters []*Sender
	low     amount // no waiter that waits for its share holds less
}

// nobody is the low of a party that nobody waits for: more than outboxes hold, and far from
// overflow.
var nobody = amount{math.MaxInt64 / 4, math.MaxInt64 / 4}

// enlist adds a member that publishers wait for. mu of room is held.
func (p *party) enlist(f *Sender) {
	if f.place == 0 {
		p.waiters = append(p.waiters, f)
		f.place = len(p.waiters)
		p.crowd.Store(int32(len(p.waiters)))
	}
}

// strike removes a member that nobody waits for, or whose publishers judge it themselves. mu of
// room is held.
func (p *party) strike(f *Sender) {
	if f.place == 0 {
		return
	}
	n := len(p.waiters) - 1
	last := p.waiters[n]
	p.waiters[f.place-1], last.place = last, f.place
	p.waiters[n], f.place = nil, 0
	p.waiters = p.waiters[:n]
	p.crowd.Store(int32(n))
}
