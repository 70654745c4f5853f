package activity

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/carillon-mq/carillon/broker/coordination"
)

// Hub is the connections of this broker. *session.Hub implements it.
type Hub interface {
	// Connected reports whether the connection with that number is there.
	Connected(client uint64) bool
	// Subscribers returns how many connections are subscribed to exactly this subject, in the queue
	// group or, if it is empty, in none.
	Subscribers(subject, queue string) int
}

// Clients are the clients of this broker that read by Subscriptions. Its methods are safe for
// concurrent use.
type Clients struct {
	hub   Hub
	state func() *coordination.State // nil before the first one
	now   func() time.Duration       // of one clock

	mu     sync.RWMutex
	of     map[key]map[uint64]*client
	n      int           // clients in of
	pruned time.Duration // when all were looked at last
}

// key names a Subscription.
type key struct{ topicID, name string }

// client is a connection that reads by one Subscription. Times are nanoseconds of Clients.now.
type client struct {
	seen  atomic.Int64 // when a pull was looked at last; 0: never
	until atomic.Int64 // it counts until then
}

// New returns Clients without any. state returns the present State, or nil.
func New(hub Hub, state func() *coordination.State) *Clients {
	began := time.Now()
	return &Clients{hub: hub, state: state, now: func() time.Duration { return time.Since(began) + 1 }, of: map[key]map[uint64]*client{}}
}

// Pulled notes a pull by a client. expires returns how long it waits at most, 0 for ever. It is
// called for some pulls only.
func (c *Clients) Pulled(topicID string, name []byte, id uint64, expires func() time.Duration) {
	now := c.now()
	one := c.find(topicID, name, id)
	// A pull that ends before the long one which was looked at last decides, too.
	if one != nil && time.Duration(one.seen.Load())+refresh > now && time.Duration(one.until.Load()) <= now+Kept {
		return
	}
	wait := expires()
	if wait == 0 {
		wait = Longest
	}
	wait = min(max(wait, Kept), Longest)
	if one == nil {
		one = c.add(topicID, string(name), id, now)
	}
	if one != nil {
		one.seen.Store(int64(now))
		one.until.Store(int64(now + wait))
	}
}

// Acked notes an ack by a client.
func (c *Clients) Acked(topicID string, name []byte, id uint64) {
	now := c.now()
	one := c.find(topicID, name, id)
	if one == nil {
		one = c.add(topicID, string(name), id, now)
	}
	if one != nil && time.Duration(one.until.Load()) < now+Kept-refresh {
		one.until.Store(int64(now + Kept))
	}
}

// find returns a client, or nil.
func (c *Clients) find(topicID string, name []byte, id uint64) *client {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.of[key{topicID, string(name)}][id]
}

// add returns a client. It returns nil if too many are remembered, or if Counts would leave its
// Subscription out: names that clients make up, or use once, leave room for the others.
func (c *Clients) add(topicID, name string, id uint64, now time.Duration) *client {
	if state := c.state(); state == nil || !counted(state.Subscription(topicID, name)) {
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	of := key{topicID, name}
	if one := c.of[of][id]; one != nil {
		return one
	}
	if c.n >= mostClients && now-c.pruned >= refresh {
		c.prune(now)
	}
	if c.n >= mostClients {
		return nil
	}
	if c.of[of] == nil {
		c.of[of] = map[uint64]*client{}
	}
	one := &client{}
	c.of[of][id] = one
	c.n++
	return one
}

// prune forgets clients that don't count any more. mu is held.
func (c *Clients) prune(now time.Duration) {
	c.pruned = now
	for of, all := range c.of {
		for id, one := range all {
			if time.Duration(one.until.Load()) <= now || !c.hub.Connected(id) {
				delete(all, id)
				c.n--
			}
		}
		if len(all) == 0 {
			delete(c.of, of)
		}
	}
}

// Count is the number of clients of this broker that read by a Subscription.
type Count struct {
	Topic        string `json:"topic"` // id
	Subscription string `json:"subscription"`
	Clients      int    `json:"clients"`
}

// counted reports whether the clients that pull by a Subscription, or nil, are counted.
func counted(s *coordination.Subscription) bool {
	return s != nil && !s.Spec.Consumer.Ephemeral && s.Spec.Consumer.DeliverSubject == ""
}

// Counts returns the counts of the declared Subscriptions that have clients here. It forgets
// clients that don't count any more.
func (c *Clients) Counts(state *coordination.State) []Count {
	all := []Count{}
	c.mu.Lock()
	c.prune(c.now())
	for of, clients := range c.of {
		if counted(state.Subscription(of.topicID, of.name)) {
			all = append(all, Count{of.topicID, of.name, len(clients)})
		}
	}
	c.mu.Unlock()
	for t := range state.Topics() {
		for _, s := range state.Subscriptions(t.ID) {
			if s.Spec.Consumer.DeliverSubject == "" || s.Spec.Consumer.Ephemeral {
				continue
			}
			if n := c.Of(s); n > 0 {
				all = append(all, Count{s.Topic, s.Name, n})
			}
		}
	}
	return all
}

// Of returns the count of one Subscription.
func (c *Clients) Of(s *coordination.Subscription) int {
	if to := &s.Spec.Consumer; to.DeliverSubject != "" {
		return c.hub.Subscribers(to.DeliverSubject, to.DeliverGroup)
	}
	now, n := c.now(), 0
	c.mu.RLock()
	defer c.mu.RUnlock()
	for id, one := range c.of[key{s.Topic, s.Name}] {
		if time.Duration(one.until.Load()) > now && c.hub.Connected(id) {
			n++
		}
	}
	return n
}
