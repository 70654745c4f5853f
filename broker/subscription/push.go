package subscription

import (
	"math"
	"math/rand/v2"

	"github.com/carillon-mq/carillon/broker/flow"
	"github.com/carillon-mq/carillon/broker/log"
)

// push is the standing request of a Subscription with a deliver subject. It has no end and no bound
// of messages. It is served while these hold:
//
//  1. Somebody is subscribed to the destination, in the queue group if there is one.
//  2. Its flow control window has room.
//  3. Its rate permits the next delivery.
//
// An end of 1 or 2 needs no timer: new interest and the receiver's answer wake the Subscription.
// The Subscription's mu guards it. All of it is in memory: another leader begins with a new window.
type push struct {
	request // to is the destination
	group   string
	// interest is nil until the destination is watched.
	interest Interest
	away     int64 // since when nobody is subscribed; 0: somebody is, or nobody has looked
	served   bool  // the start position is durable (S5), and nothing holds the first delivery
	initial  *Info // the state before the first delivery, until InitialInfo takes it
	flow     flow.Window
	pace     flow.Pace
}

// newPush returns the push that the settings request, or nil if clients or a relay pull.
func newPush(s *settings) *push {
	if s.relayed || s.deliverTo == "" && !s.endpoint {
		return nil
	}
	p := &push{group: s.deliverGroup}
	p.to, p.left, p.standing = []byte(s.deliverTo), math.MaxInt32, true
	if s.flowControl {
		p.flow.Open()
	}
	p.adjust(s)
	return p
}

// adjust applies the settings that may change while the destination stays.
func (p *push) adjust(s *settings) {
	p.heartbeat, p.pace.Bits = s.idleHeartbeat, s.rateLimit
}

// open reports whether a record may be delivered now.
func (p *push) open(now int64) bool {
	return p.served && p.interest != nil && p.interest.Present() && !p.flow.Full() && now >= p.pace.Next
}

// stop ends the watch of the destination.
func (p *push) stop() {
	if p.interest != nil {
		p.interest.Stop()
		p.interest = nil
	}
}

// shards returns the number of shards of the store's Topic.
func (k *cursorStore) shards() int {
	if t := k.shard.topic; t != nil {
		return len(t.Topic().Shards())
	}
	return 1
}

// serves reports whether a Subscription is served. The Subscription's mu is held.
func (k *cursorStore) serves(s *Subscription) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	e := k.subs[s.id.name]
	return e != nil && e.sub == s && e.served
}

// Hold keeps a push with that name from its first delivery until release is called, whether it
// exists already or is about to be created: the answer to whoever creates it comes first.
func (s *Service) Hold(key, name string) (release func()) {
	k := s.store(key)
	if k == nil {
		return func() {}
	}
	k.mu.Lock()
	if k.holds == nil {
		k.holds = map[string]int{}
	}
	k.holds[name]++
	k.mu.Unlock()
	return func() {
		k.mu.Lock()
		if k.holds[name]--; k.holds[name] == 0 {
			delete(k.holds, name)
		}
		e := k.subs[name]
		k.mu.Unlock()
		if e != nil && e.sub != nil {
			s.tasks.wake(e.sub)
		}
	}
}

// held reports whether the first delivery of a push is held. k.mu is not held.
func (k *cursorStore) held(name string) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.holds[name] > 0
}

// watched begins to watch the destination of a push, if there is one, and reports whether somebody
// is subscribed to it. mu is held.
func (s *Subscription) watched() bool {
	p := s.push
	if p == nil || s.closed != 0 {
		return false
	}
	switch {
	case p.interest != nil:
	case s.settings.endpoint:
		p.interest = s.openEndpoint()
	default:
		p.interest = s.sink.Watch(s.settings.user, p.to, p.group, func() { s.service.tasks.wake(s) })
	}
	return p.interest.Present()
}

// lookForReceiver notes whether somebody is subscribed to the destination of a push, and sends the
// heartbeat that is due. mu is held.
func (s *Subscription) lookForReceiver(w *worker, now int64) {
	if !s.freed && s.search.done && s.store.serves(s) {
		s.freed = true
		if !s.settings.endpoint {
			s.freeHeld() // the leader before had an Endpoint, and its end did not reach the state log
		}
	}
	p := s.push
	if p == nil {
		return
	}
	if !p.served && s.search.done && s.store.serves(s) && !s.store.held(s.id.name) {
		p.served = true
		if s.settings.endpoint {
			s.handAgain()
		}
		if s.cursor.sequence == 0 {
			i := s.info(w, now)
			p.initial = &i
		}
	}
	if !s.watched() {
		if p.away == 0 {
			p.away = now
		}
		return
	}
	if p.away != 0 || p.beat == 0 {
		p.away, p.beat = 0, now+p.heartbeat
		if p.flow.Token() != 0 { // the receiver that was asked may be gone
			s.sink.FlowControl(p.to, p.flow.Token())
			s.unflushed = true
		}
	}
	s.lastSeen.used = now
	if p.heartbeat > 0 && now >= p.beat {
		stalled := uint64(0)
		if p.flow.Full() {
			stalled = p.flow.Token()
		}
		s.sink.Heartbeat(p.to, s.cursor.sequence, s.cursor.offset, stalled)
		s.unflushed = true
		p.beat = now + p.heartbeat
	}
	s.requestFlow() // the last answer may have left more than half of the window
}

// wanting reports whether a delivery is requested that is possible now: by a push, or by a request
// that waits. mu is held.
func (s *Subscription) wanting(now int64) bool {
	if s.push != nil {
		return s.push.open(now)
	}
	return s.waiting.n > 0
}

// asked returns the number of messages that are requested. mu is held.
func (s *Subscription) asked() int {
	if s.push != nil {
		return s.push.left
	}
	return s.waiting.asked()
}

// sizeOf returns the bytes that a delivery counts. mu is held.
func (s *Subscription) sizeOf(d *Delivery, r *log.Record) int {
	if s.sizer != nil {
		return s.sizer.Size(d, r)
	}
	return len(r.Subject) + len(r.Data)
}

// pushed counts a delivery of a push, and asks its receiver for an answer when enough is under way.
// mu is held.
func (s *Subscription) pushed(d *Delivery, r *log.Record, now int64) {
	p := s.push
	p.beat = now + p.heartbeat
	if p.flow.Limit() == 0 && p.pace.Bits == 0 {
		return
	}
	size := s.sizeOf(d, r)
	p.pace.Sent(size, now)
	p.flow.Add(size)
	s.requestFlow()
}

// requestFlow sends a flow control request if one is due. mu is held.
func (s *Subscription) requestFlow() {
	f := &s.push.flow
	if !f.Due() {
		return
	}
	f.Ask(rand.Uint64() | 1)
	s.sink.FlowControl(s.push.to, f.Token())
	s.unflushed = true
}

// FlowControlled takes a receiver's answer to a flow control request: it has everything that was
// sent before. An answer to another request has no effect.
func (s *Subscription) FlowControlled(token uint64) {
	s.mu.Lock()
	wake := s.closed == 0 && s.push != nil && s.push.flow.Confirm(token)
	if wake {
		s.lastSeen.used = s.service.now()
	}
	s.mu.Unlock()
	if wake {
		s.service.tasks.wake(s)
	}
}

// redirect applies the settings of a push. A new destination begins with a new window, and gets all
// pending records again. mu is held.
func (s *Subscription) redirect(before *settings) {
	now := &s.settings
	there := before.deliverTo == now.deliverTo && before.endpoint == now.endpoint
	if there && now.endpoint {
		if e := s.endpoint(); e != nil {
			e.Respecify(s.spec)
		}
		return
	}
	if there && before.user == now.user && before.deliverGroup == now.deliverGroup && before.flowControl == now.flowControl {
		if s.push != nil {
			s.push.adjust(now)
		}
		return
	}
	if s.push != nil {
		s.push.stop()
	}
	if before.endpoint {
		s.freeHeld()
	}
	if s.push = newPush(now); s.push == nil && !now.relayed || there {
		return
	}
	for s.push != nil && s.waiting.n > 0 { // the next step ends them
		r := s.waiting.pop()
		r.why = Pushed
		s.refused = append(s.refused, r)
	}
	for i := s.cursor.pending.head; i < len(s.cursor.pending.list); i++ {
		if d := &s.cursor.pending.list[i]; !d.removed && !d.queued {
			s.change(op{kind: opRetryNow, offset: d.offset})
		}
	}
}

// dueAt returns when a push has to be looked at again without a wake, or MaxInt64. mu is held.
func (p *push) dueAt(now int64) int64 {
	if p.away != 0 {
		return math.MaxInt64
	}
	at := int64(math.MaxInt64)
	if p.heartbeat > 0 {
		at = p.beat
	}
	if p.pace.Next > now {
		at = min(at, p.pace.Next)
	}
	return at
}
