package subscription

import (
	"sync"
	"sync/atomic"
)

// PullRoom bounds what the waiting requests of all clients take on this broker, at whichever
// Subscriptions. An account, which is a user or an address, may take as much as there is room for
// others: one alone half of it, two a third each. So there is always room for another one, and
// nobody's request ends for another's.
type PullRoom struct {
	most    int64 // bytes
	held    atomic.Int64
	refused atomic.Uint64

	mu sync.Mutex
	by map[string]*PullQuota // accounts, by name
	// few is how many there are when those without requests are forgotten: twice as many as were
	// left then, so that a search is paid for by the accounts that came since.
	few int
}

const (
	// pullBytes is what a request takes beside the names in it, in bytes.
	pullBytes = 256
	// mostAccounts is how many accounts are known at least before those without requests are
	// forgotten.
	mostAccounts = 4096
)

// NewPullRoom returns an empty room of that many bytes.
func NewPullRoom(bytes int64) *PullRoom {
	return &PullRoom{most: bytes, by: map[string]*PullQuota{}, few: mostAccounts}
}

// Of returns the quota of an account. It is to be used at once.
func (r *PullRoom) Of(account string) *PullQuota {
	r.mu.Lock()
	defer r.mu.Unlock()
	quota := r.by[account]
	if quota != nil {
		return quota
	}
	if len(r.by) >= r.few {
		for name, of := range r.by {
			if of.has.Load() == 0 {
				delete(r.by, name)
			}
		}
		r.few = max(mostAccounts, 2*len(r.by))
	}
	quota = &PullQuota{room: r}
	r.by[account] = quota
	return quota
}

// Held returns what waiting requests take, in bytes.
func (r *PullRoom) Held() int64 { return r.held.Load() }

// Refused returns how many requests were refused for want of room, or by the limits of users.
func (r *PullRoom) Refused() uint64 { return r.refused.Load() }

// PullQuota bounds the requests of one account that wait or are served at a time on this broker, at
// whichever Subscriptions: by number if its user has such a limit, and by its share of the room.
// nil bounds nothing.
type PullQuota struct {
	room            *PullRoom
	most, has, held atomic.Int64 // most 0: no bound
}

// Bound sets how many there may be from now on; 0: no bound. What there is stays.
func (q *PullQuota) Bound(most int) { q.most.Store(int64(most)) }

// Full reports whether there may be no more.
func (q *PullQuota) Full() bool {
	return q != nil && (q.beyond(q.has.Load()+1) || q.held.Load()+pullBytes > q.room.most-q.room.held.Load()-pullBytes)
}

func (q *PullQuota) beyond(n int64) bool {
	most := q.most.Load()
	return most > 0 && n > most
}

// Enter counts a request with names of some bytes, or reports false if there may be no more. Leave
// must follow once.
func (q *PullQuota) Enter(names int) bool {
	if q == nil {
		return true
	}
	size := int64(pullBytes + names)
	all, own := q.room.held.Add(size), q.held.Add(size)
	if !q.beyond(q.has.Add(1)) && own <= q.room.most-all {
		return true
	}
	q.Leave(names)
	q.room.refused.Add(1)
	return false
}

// Leave counts a request no more.
func (q *PullQuota) Leave(names int) {
	if q != nil {
		q.has.Add(-1)
		q.held.Add(-int64(pullBytes + names))
		q.room.held.Add(-int64(pullBytes + names))
	}
}
