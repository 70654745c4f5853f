package identity

import (
	"bytes"
	"sync"
	"time"
)

// Behalf decides what a broker may send on behalf of its users while they are not asking: messages
// that streams publish again, and those of push consumers. A nil Behalf is that of a broker without
// users: everything is allowed. So is what is done for nobody in particular, the empty name. Its
// methods are safe for concurrent use.
type Behalf struct {
	users func() *Table

	mu       sync.Mutex
	last     int
	watchers map[int]func()
}

// Unknown is the name of nobody: no user has it, so nothing may be done on its behalf.
const Unknown = "\x00"

// NewBehalf returns a Behalf that looks in the present users. Changed must be called when there are
// others.
func NewBehalf(users func() *Table) *Behalf {
	return &Behalf{users: users, watchers: make(map[int]func())}
}

// Changed tells the watchers that users have changed.
func (b *Behalf) Changed() {
	b.mu.Lock()
	all := make([]func(), 0, len(b.watchers))
	for _, tell := range b.watchers {
		all = append(all, tell)
	}
	b.mu.Unlock()
	for _, tell := range all {
		tell()
	}
}

// Watch has tell called after each change of the users, until stop is called. tell must not block.
func (b *Behalf) Watch(tell func()) (stop func()) {
	if b == nil {
		return func() {}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.last++
	number := b.last
	b.watchers[number] = tell
	return func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		delete(b.watchers, number)
	}
}

// of returns a user's present identity; all is true if it needs none.
func (b *Behalf) of(user string) (is *Identity, all bool) {
	if b == nil || user == "" {
		return nil, true
	}
	entry := b.users().User(user)
	if entry == nil || !entry.Expires.IsZero() && !time.Now().Before(entry.Expires) {
		return nil, false
	}
	return entry.Identity, false
}

// Identity returns who the user is at present; nil: one who may do everything, since there are no
// users, or nobody in particular. known is false if there is no such user, or its access has ended.
func (b *Behalf) Identity(user string) (is *Identity, known bool) {
	is, all := b.of(user)
	return is, all || is != nil
}

// Limits returns the present limits of a user. Those that it has not, and those of nobody in
// particular, are 0.
func (b *Behalf) Limits(user string) Limits {
	if is, _ := b.of(user); is != nil {
		return is.Limits
	}
	return Limits{}
}

// MayMake reports whether the user may make streams and consumers as far as limits decide: if any
// user has limits of these, what is made for Unknown would evade them.
func (b *Behalf) MayMake(user string) bool {
	return b == nil || user != Unknown || !b.users().limited
}

// MayPublish reports whether a message on the subject may be published on the user's behalf.
func (b *Behalf) MayPublish(user string, on []byte) bool {
	is, all := b.of(user)
	return all || is != nil && is.MayPublish(on)
}

// MayPublishAll reports whether messages on all subjects of a pattern may be.
func (b *Behalf) MayPublishAll(user, pattern string) bool {
	is, all := b.of(user)
	return all || is != nil && is.MayPublishAll(pattern)
}

// MaySubscribeAll reports whether the user may have all messages of a pattern.
func (b *Behalf) MaySubscribeAll(user, pattern string) bool {
	is, all := b.of(user)
	return all || is != nil && is.MaySubscribe([]byte(pattern), nil) && !is.Filters(pattern, "")
}

// MayDeliver reports whether messages may be sent to the deliver subject of a user's push consumer:
// the user may publish there, or it is an inbox that the user may subscribe to.
func (b *Behalf) MayDeliver(user string, to []byte) bool {
	is, all := b.of(user)
	return all || is != nil && (is.MayPublish(to) || isInbox(to) && is.MaySubscribe(to, nil))
}

// MayConsume reports whether the user may create a consumer of a stream, by any of the requests
// that do that.
func (b *Behalf) MayConsume(user, stream string) bool {
	is, all := b.of(user)
	if all || is == nil {
		return all
	}
	for _, request := range []string{
		"$JS.API.CONSUMER.CREATE." + stream, "$JS.API.CONSUMER.CREATE." + stream + ".>",
		"$JS.API.CONSUMER.DURABLE.CREATE." + stream + ".*",
	} {
		if is.MayPublishAll(request) {
			return true
		}
	}
	return false
}

// isInbox reports whether a subject is one that clients make for answers to themselves.
func isInbox(to []byte) bool { return bytes.HasPrefix(to, []byte("_INBOX")) }
