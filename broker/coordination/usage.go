package coordination

import (
	"fmt"
	"math/bits"

	"github.com/carillon-mq/carillon/broker/identity"
)

// usage is what definitions use of the limits of the user who made them:
//
//  1. Topics, Subscriptions and Views, as a consumer each, count for the user in their Owner,
//     whoever changes them later. Those of manifests, and those that were made before there were
//     users, count for nobody.
//  2. The sums are those of the State. Each broker adds what it has written itself and does not see
//     yet, so one broker alone never exceeds a limit.
//  3. A broker has at most unseenOfUser such writes of a limited user. So brokers that admit at the
//     same moment exceed a limit of a number by that, for each of them but one. That of bytes they
//     exceed by what each of the others still finds free.
//  4. Only what makes a usage grow is refused, so a limit that was lowered deletes nothing.
//  5. Consumers that are not in etcd count where they are: a broker adds those that it has to what
//     is in etcd. So a user has as many of them on each broker as its limit leaves.
//  6. What Topics may store is reserved, so that no publish fails because of other Topics. One
//     without a bound can't be reserved.
type usage struct {
	streams, consumers int
	stored             int64 // bytes that streams may store, on all replicas
	unbounded          int   // streams without a bound of that
}

const (
	// unseenOfUser is how many writes of one limited user a broker makes before it sees them: as few
	// as still share the transactions of etcd, since they are what brokers may overshoot.
	unseenOfUser = 8
	// maxReserved is the most that one stream reserves: 128 TiB. A larger bound is none. So the sum
	// of 65,000 streams has room in an int64.
	maxReserved = 1 << 47
)

func (u usage) plus(v usage) usage {
	return usage{u.streams + v.streams, u.consumers + v.consumers, u.stored + v.stored, u.unbounded + v.unbounded}
}

func (u usage) minus(v usage) usage {
	return usage{u.streams - v.streams, u.consumers - v.consumers, u.stored - v.stored, u.unbounded - v.unbounded}
}

// grows reports whether a difference may exceed a limit.
func (u usage) grows() bool {
	return u.streams > 0 || u.consumers > 0 || u.stored > 0 || u.unbounded > 0
}

// limited reports whether one of the limits is about a difference.
func (u usage) limited(limits *identity.Limits) bool {
	return u.streams > 0 && limits.Streams > 0 || u.consumers > 0 && limits.Consumers > 0 || (u.stored > 0 || u.unbounded > 0) && limits.StoredBytes > 0
}

// uses returns what a Topic uses of its user's limits. One that is being deleted is gone.
func (t *Topic) uses() usage {
	if t.Owner.User == "" || t.Deleting {
		return usage{}
	}
	copies := uint64(max(t.Spec.Shards, 1)) * uint64(max(t.Spec.Replicas, 1))
	high, stored := bits.Mul64(uint64(max(t.Spec.Retention.Bytes, 0)), copies)
	if stored == 0 || high > 0 || stored > maxReserved {
		return usage{streams: 1, unbounded: 1}
	}
	return usage{streams: 1, stored: int64(stored)}
}

// uses returns what a Subscription uses of its user's limits.
func (s *Subscription) uses() usage {
	if s.Owner.User == "" {
		return usage{}
	}
	return usage{consumers: 1}
}

// LimitError reports that a user has made as much as its limits permit.
type LimitError struct {
	What      string // "topic orders"
	User      string
	Limit     string // its name in identity.Limits
	Most      int64
	Used      int64
	More      int64 // that it needs
	Unbounded bool  // it needs a bound of what it stores
}

func (e *LimitError) Error() string {
	switch {
	case e.Unbounded:
		return fmt.Sprintf("%s: the streams that user %q makes may store %d bytes together, so each needs a bound (give it max_bytes, of at most %d over all replicas)", e.What, e.User, e.Most, int64(maxReserved))
	case e.Limit == LimitStoredBytes:
		return fmt.Sprintf("%s: the streams that user %q made may store %d of %d bytes, and this one may store %d more on its replicas (delete streams, give them a lower max_bytes, or raise limits.%s of the user)", e.What, e.User, e.Used, e.Most, e.More, e.Limit)
	}
	return fmt.Sprintf("%s: user %q has made %d %s that exist, and may have %d (delete some, or raise limits.%s of the user)", e.What, e.User, e.Used, e.Limit, e.Most, e.Limit)
}

// Names of limits in identity.Limits.
const (
	LimitStreams     = "streams"
	LimitConsumers   = "consumers"
	LimitStoredBytes = "storedBytes"
)

// beyond returns the limit that a user who uses has would exceed with more, or nil.
func (u usage) beyond(has usage, limits *identity.Limits) *LimitError {
	exceeds := func(limit string, most int, used, more int64) *LimitError {
		if most <= 0 || more <= 0 || used+more <= int64(most) {
			return nil
		}
		return &LimitError{Limit: limit, Most: int64(most), Used: used, More: more}
	}
	if limits.StoredBytes > 0 && u.unbounded > 0 {
		return &LimitError{Limit: LimitStoredBytes, Most: int64(limits.StoredBytes), Unbounded: true}
	}
	for _, e := range []*LimitError{
		exceeds(LimitStreams, limits.Streams, int64(has.streams), int64(u.streams)),
		exceeds(LimitConsumers, limits.Consumers, int64(has.consumers), int64(u.consumers)),
		exceeds(LimitStoredBytes, limits.StoredBytes, has.stored, u.stored),
	} {
		if e != nil {
			return e
		}
	}
	return nil
}

// limitsOf returns the limits of the user for whom a need counts, and how many of its consumers are
// not in etcd. mu is not held.
func (r *clientRoom) limitsOf(n *need) (limits identity.Limits, readers int) {
	if n.user == "" || !n.usage.grows() {
		return limits, 0
	}
	limits = r.limits(n.user)
	if n.usage.consumers > 0 {
		readers = r.readers(n.user)
	}
	return limits, readers
}

// MayRead returns an error if the user may not have one more consumer that is not in etcd, beside
// those that this broker has.
func (c *Client) MayRead(user string, readers int) error {
	r, more := c.room, usage{consumers: 1}
	limits := r.limits(user)
	if user == "" || !more.limited(&limits) {
		return nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	has := r.users[user].plus(usage{consumers: readers})
	for _, t := range r.open {
		if t.user == user {
			has.consumers += t.usage.consumers
		}
	}
	if e := more.beyond(has, &limits); e != nil {
		e.What, e.User = "consumer", user
		r.refusals[e.Limit]++
		return e
	}
	return nil
}

// judge returns an error if the limits of a need's user don't permit it. wait is true if that
// depends on what was written here and is not seen yet. mu is held.
func (r *clientRoom) judge(n *need, limits identity.Limits, readers int) (wait bool, refused *LimitError) {
	has := r.users[n.user].plus(usage{consumers: readers})
	if e := n.usage.beyond(has, &limits); e != nil {
		e.What, e.User = n.what, n.user
		return false, e
	}
	open := 0
	for _, t := range r.open {
		if t.user == n.user && t.usage.grows() {
			has = has.plus(t.usage)
			open++
		}
	}
	return open >= unseenOfUser || open > 0 && n.usage.beyond(has, &limits) != nil, nil
}
