package session

import (
	"errors"
	"maps"
	"slices"

	"github.com/carillon-mq/carillon/broker/identity"
	"github.com/carillon-mq/carillon/broker/protocol"
	"github.com/carillon-mq/carillon/broker/work"
)

// Feed delivers what is published on chosen subjects, its members, to one subscription of a client.
// The messages come under the subject that the Feed was opened for, each with its own subject in
// the header protocol.SubjectHeader. Its methods are safe for concurrent use.
//
// A member is a subscription of its own in the interest index, so linked brokers send its messages
// here, and messages of other subjects cost nothing.
type Feed struct {
	hub  *Hub
	to   *Sub
	head []byte // of a message, before the sid
	as   []byte // the subject that messages come under
	// changed is called with the index lock held.
	changed func()
	only    Condition // nil: all messages are delivered

	slow bool // owned by the client's loop: only took too much of it

	// Guarded by the index lock.
	members map[string]*Sub
	reduced bool // a member was removed, or not added, since its right was lost
	ended   bool
}

// FeedChunk is how many members one call of Change adds and removes at most. The index is locked
// meanwhile.
const FeedChunk = dropChunk

// Errors of OpenFeed and Change.
var (
	ErrNoReceiver   = errors.New("the client has no subscription to that subject on this connection, or one in a queue group or with a maximum; subscribe to it first")
	ErrNoHeaders    = errors.New("the client does not support headers, which messages need here")
	ErrFeedEnded    = errors.New("the client's subscription has ended, or has a maximum now")
	ErrFeedTooLarge = errors.New("the client's subscriptions, or those of all clients, would take too much memory; ask for fewer subjects")
)

// OpenFeed opens a Feed without members for the client's subscription that the subject reaches.
// client is the number of its connection (ClientTaker). changed is called when that subscription
// has ended or has got a maximum, which ends the Feed, and when the rights of the client's user
// have changed. It must neither block nor call the Hub. The caller closes the Feed.
func (h *Hub) OpenFeed(client uint64, subject string, changed func()) (*Feed, error) {
	h.mu.Lock()
	c := h.conns[client]
	h.mu.Unlock()
	switch {
	case c == nil:
		return nil, ErrFeedEnded
	case !c.headers.Load():
		return nil, ErrNoHeaders
	}
	f := &Feed{hub: h, as: []byte(subject), head: protocol.AppendHMsgPrefix(nil, []byte(subject)), changed: changed, members: map[string]*Sub{}}
	cache := h.caches.Get().(*cache)
	defer h.caches.Put(cache)
	h.lock.Lock()
	defer h.lock.Unlock()
	for _, leaf := range cache.Match(h.index, f.as).Leaves {
		for _, s := range slices.Concat(leaf.Plain(c.loop.sink), leaf.Counted()) {
			if s.conn == c && s.feed == nil && !s.removed && s.max.Load() == 0 {
				f.to = s
			}
		}
	}
	if f.to == nil {
		return nil, ErrNoReceiver
	}
	if c.feeds == nil {
		c.feeds = make(map[*Sub][]*Feed, 1)
	}
	c.feeds[f.to] = append(c.feeds[f.to], f)
	return f, nil
}

// Change removes members, delivers a notice, and adds members, in this order: no message of a
// removed member comes after the notice, and none of an added one before it. The notice comes under
// the Feed's subject; it has header bytes of headers, and is kept. Without a notice none is
// delivered. Together at most FeedChunk members are removed and added. Change never waits: a caller
// that sends much waits for what is behind.
//
// With an error some members may have been added.
func (f *Feed) Change(remove []string, notice []byte, header int, add []string) (behind work.Behind, err error) {
	h, loop := f.hub, f.to.conn.loop
	h.lock.Lock()
	defer h.lock.Unlock()
	if f.ended {
		return behind, ErrFeedEnded
	}
	for _, of := range remove {
		if s := f.members[of]; s != nil {
			f.remove(s)
		}
	}
	if len(notice) > 0 {
		e := entry{kind: deliverOne, sub: f.to, msg: visible{Subject: f.as, Data: notice, Header: header}}
		if loop.push([]entry{e}, 1, e.size()) {
			behind.Add(loop)
		}
	}
	for _, of := range add {
		if err = f.add(of); err != nil {
			break
		}
	}
	loop.signal()
	return behind, err
}

// add adds a member, unless it is one. The index lock is held.
func (f *Feed) add(of string) error {
	h, c := f.hub, f.to.conn
	if f.members[of] != nil {
		return nil
	}
	is := c.identity.Load()
	if !is.MaySubscribe([]byte(of), nil) {
		f.reduced = true
		return nil // its right was lost meanwhile, and changed was called
	}
	s := &Sub{conn: c, pattern: of, sid: f.to.sid, feed: f, counted: !c.echo}
	nodes, _ := h.index.Missing(of, "")
	s.cost = costOf(s) + int64(nodes)*nodeCost
	if !h.hasRoom(s, is) {
		return ErrFeedTooLarge
	}
	f.members[of] = s
	h.put(s)
	return nil
}

// remove removes a member. The index lock is held.
func (f *Feed) remove(s *Sub) {
	delete(f.members, s.pattern)
	f.hub.take(s)
}

// May reports whether the client's user may subscribe to the subject.
func (f *Feed) May(subject string) bool {
	return f.to.conn.identity.Load().MaySubscribe([]byte(subject), nil)
}

// Identity returns who the client is; nil: there are no users.
func (f *Feed) Identity() *identity.Identity { return f.to.conn.identity.Load() }

// Reduced reports whether members are missing since their rights were lost, since it was called
// last. If the client has the rights again, the caller adds them again.
func (f *Feed) Reduced() bool {
	f.hub.lock.Lock()
	defer f.hub.lock.Unlock()
	was := f.reduced
	f.reduced = false
	return was
}

// Ended reports whether the Feed has ended, with the client's subscription or before.
func (f *Feed) Ended() bool {
	f.hub.lock.RLock()
	defer f.hub.lock.RUnlock()
	return f.ended
}

// Close removes the Feed and its members. changed is not called after it returns.
func (f *Feed) Close() {
	h := f.hub
	for more := true; more; {
		h.lock.Lock()
		f.end()
		n := 0
		for _, s := range f.members {
			f.remove(s)
			if n++; n == dropChunk {
				break
			}
		}
		more = len(f.members) > 0
		h.lock.Unlock()
	}
	f.to.conn.loop.signal()
}

// end ends the Feed for its receiver. The index lock is held.
func (f *Feed) end() {
	if f.ended {
		return
	}
	f.ended = true
	c := f.to.conn
	if left := slices.DeleteFunc(c.feeds[f.to], func(other *Feed) bool { return other == f }); len(left) > 0 {
		c.feeds[f.to] = left
	} else {
		delete(c.feeds, f.to)
	}
}

// endFeeds ends the Feeds of a subscription that ends, or gets a maximum. The index lock is held.
func (c *Conn) endFeeds(s *Sub) {
	for _, f := range slices.Clone(c.feeds[s]) {
		f.end()
		f.changed()
	}
}

// reduceFeeds removes the members of a client's Feeds that its user has no right to any more.
func (h *Hub) reduceFeeds(c *Conn) {
	h.lock.RLock()
	feeds := slices.Concat(slices.Collect(maps.Values(c.feeds))...)
	h.lock.RUnlock()
	for _, f := range feeds {
		h.lock.RLock()
		members := slices.Collect(maps.Values(f.members))
		h.lock.RUnlock()
		lost := slices.DeleteFunc(members, func(s *Sub) bool { return f.May(s.pattern) })
		for chunk := range slices.Chunk(lost, dropChunk) {
			h.lock.Lock()
			for _, s := range chunk {
				if !s.removed {
					f.reduced = true
					f.remove(s)
				}
			}
			h.lock.Unlock()
		}
		h.lock.Lock()
		if !f.ended {
			f.changed()
		}
		h.lock.Unlock()
	}
}
