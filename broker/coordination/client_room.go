package coordination

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"

	"go.etcd.io/etcd/api/v3/mvccpb"

	"github.com/carillon-mq/carillon/broker/identity"
)

// What clients declare has a bound in etcd, so that etcd always has room for leases, leaders,
// reports, users, and what manifests declare:
//
//  1. The definitions of clients are the Topics, Subscriptions and Views that clients may change.
//     Each counts with its key, its value, and definitionBytes for every key that brokers write for
//     it.
//  2. The sum is that of the State, so all brokers judge by the same. Each adds what it has
//     written itself and does not see in its State yet.
//  3. A write by a client that would exceed ClientBytes is refused, unless it makes its definition
//     smaller. Deletions, what manifests declare, and creations of what exists already, are never
//     refused for it.
//  4. A broker has at most unseenBytes of such writes that its State lacks. Others wait. So brokers
//     that admit at the same moment exceed the bound by unseenBytes for each of them but one.
//
//  5. What users have made counts towards their limits in the same way, see usage.
//
// Rejected: a key with the sum, which every creation, update and deletion compares. It is exact,
// and makes them wait for each other across all brokers.

const (
	// ClientBytes bounds the definitions of clients, in bytes: an eighth of etcd's quota, and half of
	// what makes the coordinator compact its history at once. 10,000 Topics and 100,000 Subscriptions
	// of usual size take 55 MiB. Every broker has them in memory, too.
	ClientBytes = 64 << 20
	// unseenBytes is a few times what etcd writes within the time in which brokers see it. Seven
	// brokers together exceed ClientBytes by 24 MiB at most.
	unseenBytes = 4 << 20
	// definitionBytes is what etcd has beside the value of a definition, and what a shard's key takes.
	definitionBytes = 512
)

// FullError reports that the definitions of clients have no room.
type FullError struct {
	What  string // "topic orders"
	Bytes int64  // that it needs beyond those it has
	Used  int64
	Most  int64
}

func (e *FullError) Error() string {
	return fmt.Sprintf("%s: the definitions of all clients' streams, consumers and views take %d of %d bytes in etcd, and this one needs %d more (delete streams, consumers or views, or give them less metadata; those of manifests don't count)",
		e.What, e.Used, e.Most, e.Bytes)
}

// ClientRoom is how much of their room in etcd the definitions of clients take.
type ClientRoom struct {
	Bytes   int64 // in the State
	Refused uint64
	// RefusedOf are the refusals because of a limit of the user, by its name.
	RefusedOf map[string]uint64
}

// clientRoom is safe for concurrent use.
type clientRoom struct {
	most, unseenMost int64 // tests have less
	limits           func(user string) identity.Limits
	readers          func(user string) int // consumers of a user that are not in etcd

	mu       sync.Mutex
	known    bool // a State was seen; before that nothing is refused
	used     int64
	revision int64            // of that State
	open     []*roomTake      // not in that State, as far as is known
	unseen   int64            // the bytes of those
	freed    int64            // revision of the newest write here that freed room; 0: the State has it
	users    map[string]usage // in that State
	seen     chan struct{}
	refused  uint64
	refusals map[string]uint64 // by the limit of a user
}

// need is what a write adds to the definitions of clients.
type need struct {
	what  string // "topic orders"
	bytes int64
	user  string // who made the definition; empty: nobody's limits hold
	usage usage
}

// roomTake is room for one write.
type roomTake struct {
	bytes    int64
	user     string
	usage    usage
	revision int64 // 0: not written yet
}

func newClientRoom() *clientRoom {
	return &clientRoom{
		most: ClientBytes, unseenMost: unseenBytes, seen: make(chan struct{}), users: map[string]usage{}, refusals: map[string]uint64{},
		limits: func(string) identity.Limits { return identity.Limits{} }, readers: func(string) int { return 0 },
	}
}

// ClientRoom returns the present figures.
func (c *Client) ClientRoom() ClientRoom {
	r := c.room
	r.mu.Lock()
	defer r.mu.Unlock()
	return ClientRoom{Bytes: r.used, Refused: r.refused, RefusedOf: maps.Clone(r.refusals)}
}

// take takes room for a write by an owner. It waits while the State lacks too much of what was
// written here. done must be called once with the revision of the write; 0: nothing was written, as
// far as is known.
func (r *clientRoom) take(ctx context.Context, by Owner, n need) (done func(revision int64), err error) {
	n.bytes = max(n.bytes, 0)
	if by.Kind != ClientOwner || n.bytes == 0 && !n.usage.grows() {
		return r.frees, nil
	}
	for {
		taken, seen, err := r.try(n)
		switch {
		case err != nil:
			return nil, err
		case taken != nil:
			return func(revision int64) { r.end(taken, revision) }, nil
		}
		select {
		case <-seen:
		case <-ctx.Done():
			return nil, fmt.Errorf("%s: waiting until what was written is seen: %w", n.what, ctx.Err())
		}
	}
}

// try takes room, or returns what to wait for.
func (r *clientRoom) try(n need) (taken *roomTake, seen <-chan struct{}, err error) {
	limits, readers := r.limitsOf(&n)
	r.mu.Lock()
	defer r.mu.Unlock()
	behind := r.freed > r.revision // what is refused now may have room
	switch used := r.used + r.unseen; {
	case !r.known:
	case n.bytes > 0 && used+n.bytes > r.most:
		if behind {
			return nil, r.seen, nil
		}
		r.refused++
		return nil, nil, &FullError{n.what, n.bytes, used, r.most}
	case r.unseen > 0 && r.unseen+n.bytes > r.unseenMost:
		return nil, r.seen, nil
	}
	if r.known && n.usage.limited(&limits) {
		switch wait, refused := r.judge(&n, limits, readers); {
		case wait || refused != nil && behind:
			return nil, r.seen, nil
		case refused != nil:
			r.refusals[refused.Limit]++
			return nil, nil, refused
		}
	}
	taken = &roomTake{bytes: n.bytes, user: n.user, usage: n.usage}
	r.open = append(r.open, taken)
	r.unseen += n.bytes
	return taken, nil, nil
}

// end notes the revision of a write. Its room is given back when the State has it.
func (r *clientRoom) end(taken *roomTake, revision int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	taken.revision = revision
	if revision <= r.revision || !r.known {
		r.close(func(t *roomTake) bool { return t == taken })
	}
}

// frees notes the revision of a write that may have freed room; 0: nothing was written, as far as
// is known. What has no room before the State has that write waits for it.
func (r *clientRoom) frees(revision int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.freed = max(r.freed, revision)
}

// figures are what clients have declared in a State.
type figures struct {
	revision int64
	bytes    int64
	users    map[string]usage // what users have made
	changed  map[string]bool  // the users for whom that is new
	first    bool             // all is new
	restored bool             // from a backup: revisions mean other writes
}

// note takes the figures of a State. It keeps none of the maps.
func (r *clientRoom) note(f figures) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.known, r.revision, r.used = true, f.revision, f.bytes
	if f.first {
		clear(r.users)
	}
	for user := range f.changed {
		if has, ok := f.users[user]; ok {
			r.users[user] = has
		} else {
			delete(r.users, user)
		}
	}
	if r.freed > 0 && (f.restored || r.freed <= f.revision) {
		r.freed = 0
		r.wake()
	}
	r.close(func(t *roomTake) bool { return t.revision > 0 && (f.restored || t.revision <= f.revision) })
}

// close gives room back. mu is held.
func (r *clientRoom) close(which func(*roomTake) bool) {
	before := len(r.open)
	r.open = slices.DeleteFunc(r.open, func(t *roomTake) bool {
		gone := which(t)
		if gone {
			r.unseen -= t.bytes
		}
		return gone
	})
	if len(r.open) < before {
		r.wake()
	}
}

// wake has all that wait for room try again. mu is held.
func (r *clientRoom) wake() {
	close(r.seen)
	r.seen = make(chan struct{})
}

// made returns the key of a definition for whose creation there is no room, or nil if there is none
// or nobody knows: to create again what exists needs no room.
func (c *Client) made(ctx context.Context, key string) *mvccpb.KeyValue {
	found, err := c.get(ctx, key)
	if err != nil {
		return nil
	}
	return found
}

// room returns what a Topic counts with, if its value has some bytes.
func (t *Topic) room(key string, value int) int64 {
	return int64(len(key)+value) + definitionBytes*int64(1+t.Spec.Shards)
}

// room returns what a Subscription counts with, if its value has some bytes.
func (s *Subscription) room(key string, value int) int64 {
	return int64(len(key)+value) + definitionBytes
}

// ofClients returns what a definition has in the sum of clients.
func (o Owner) ofClients(bytes int64) int64 {
	if !o.mayChange(Owner{Kind: ClientOwner}) {
		return 0
	}
	return bytes
}
