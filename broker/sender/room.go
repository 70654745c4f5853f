package sender

import (
	"sync"
	"sync/atomic"
)

// tally counts what is held. Its two parts are read one after the other.
type tally struct{ bytes, messages atomic.Int64 }

func (t *tally) add(a amount) {
	if a.bytes != 0 { // chunks have room for several reads of small messages
		t.bytes.Add(a.bytes)
	}
	if a.messages != 0 {
		t.messages.Add(a.messages)
	}
}

func (t *tally) load() amount { return amount{t.bytes.Load(), t.messages.Load()} }

// room bounds what the outboxes of some senders hold together, and shares it out: first among the
// brokers that lead their shards, which are parties, then among the senders of each. While a sender
// holds more than its share, whoever publishes to it waits, and nobody else. If a party holds far
// more than its share, its messages are refused.
//
// A listed sender is a member of the party of its leader's broker, as of the last view that it saw.
// What a party holds is what its members hold, and what the room holds is what its parties hold.
//
// No wake-up is lost. A sender that is waited for may go on only when it, its party or all hold
// less, or when it moves to another party (share):
//
//  1. Whoever waits enlists the sender, then raises wake to its bound, and only then checks whether
//     it is full (judge). That order is kept each time a sender is judged. Enlisting and judging
//     need mu.
//  2. Whoever has less held counts it first: of the sender, its party, and all. Only then add looks
//     whether the party has waiters, or all hold at most wake. If so it takes mu and judges (ease).
//  3. Counting and raising are atomic and in one order. So of a decrease and a check, either the
//     check sees the decrease, or the decrease sees the enlisted sender or the raised wake.
//  4. wake is at least the bound of each enlisted sender, with what it and its party held when they
//     were judged last. If they hold less since, rule 2 has wake raised: a decrease in a party with
//     waiters takes mu, whatever all hold. wake may be too high; ease lowers it.
//  5. low makes ease judge senders one by one only where one of them may go on. It is at most what
//     each enlisted sender of the party holds, since a sender that holds less is judged itself.
//  6. A sender that may go on is struck off before its publishers wake. Each of them begins with 1.
//     So does each publisher of a sender that moves.
type room struct {
	share  share
	held   tally
	wake   tally        // see rule 4; above these no decrease elsewhere matters to a waiter
	closed *atomic.Bool // nobody waits any more

	mu      sync.Mutex
	parties map[string]*party // by broker

	step func(point) // called between two steps, so that a test decides who goes on; nil: no test does
}

// point is where a step of a room ends.
type point int

const (
	unlocked point = iota // mu is not held
	locking               // mu is taken next
	locked                // mu is held
)

func (r *room) at(p point) {
	if r.step != nil {
		r.step(p)
	}
}

func (r *room) lock() {
	r.at(locking)
	r.mu.Lock()
}

func newRoom(of share, closed *atomic.Bool) *room {
	r := &room{share: of, closed: closed, parties: map[string]*party{}}
	r.sleep()
	return r
}

// full reports whether publishers to a sender have to wait.
func (r *room) full(f *Sender) bool {
	mine, p := f.own.load(), f.party.Load()
	return p != nil && (!mine.within(f.most) || r.share.exceeded(mine, p.held.load(), r.held.load()))
}

// overfull reports whether messages for a member of a party are refused.
func (r *room) overfull(p *party) bool { return r.share.overfull(p.held.load(), r.held.load()) }

// closes reports whether a sender whose leader can't be reached may take no more.
func (r *room) closes(f *Sender, p *party) bool {
	return r.share.closes(f.own.load(), p.held.load(), r.held.load())
}

// add counts what a member's outbox has got, or has no more, and wakes publishers that may go on.
// The member's mu is held.
func (r *room) add(f *Sender, change amount) {
	p := f.party.Load()
	f.own.add(change)
	p.held.add(change)
	r.at(unlocked)
	r.held.add(change)
	if change.bytes >= 0 && change.messages >= 0 {
		return
	}
	if r.at(unlocked); p.crowd.Load() == 0 {
		if r.at(unlocked); !r.held.load().within(r.wake.load()) {
			return
		}
	}
	r.lock()
	defer r.mu.Unlock()
	if f.place > 0 {
		r.judge(f)
	}
	r.ease()
}

// join makes a sender a member of a broker's party, with what it holds, and of no other one. The
// sender's mu is held.
func (r *room) join(f *Sender, broker string) {
	r.lock()
	defer r.mu.Unlock()
	r.quit(f)
	p := r.parties[broker]
	if p == nil {
		p = &party{broker: broker, low: nobody}
		r.parties[broker] = p
	}
	p.members++
	f.party.Store(p)
	if mine := f.own.load(); mine != (amount{}) { // mostly it was idle
		p.held.add(mine)
		r.ease()
	}
}

// leave makes a sender that holds nothing a member of no party. The sender's mu is held.
func (r *room) leave(f *Sender) {
	r.lock()
	defer r.mu.Unlock()
	r.quit(f)
}

// quit takes a sender, with what it holds, out of its party. Its publishers judge it again. mu is
// held.
func (r *room) quit(f *Sender) {
	p := f.party.Load()
	if p == nil {
		return
	}
	r.release(f, p)
	mine := f.own.load()
	p.held.add(amount{-mine.bytes, -mine.messages})
	r.at(locked)
	if p.members--; p.members == 0 {
		delete(r.parties, p.broker)
	}
	f.party.Store(nil)
}

// release strikes a sender off and wakes its publishers. mu is held.
func (r *room) release(f *Sender, p *party) {
	p.strike(f)
	if f.eased != nil {
		close(f.eased)
		f.eased = nil
	}
}

// sleep has no decrease looked at for senders of other parties. mu is held.
func (r *room) sleep() {
	r.wake.bytes.Store(-1)
	r.wake.messages.Store(-1)
}

// raise has decreases looked at when all hold at most that much. mu is held.
func (r *room) raise(until amount) {
	r.wake.bytes.Store(max(r.wake.bytes.Load(), until.bytes))
	r.wake.messages.Store(max(r.wake.messages.Load(), until.messages))
}

// ease judges the waiters of each party where one may go on. mu is held.
func (r *room) ease() {
	r.sleep()
	for _, p := range r.parties {
		if len(p.waiters) == 0 {
			continue
		}
		until := r.share.until(p.low, p.held.load())
		r.raise(until)
		if r.at(locked); !r.held.load().within(until) {
			continue
		}
		p.low = nobody
		for i := len(p.waiters) - 1; i >= 0; i-- {
			r.judge(p.waiters[i])
		}
	}
}

// judge releases an enlisted sender that is not full. Otherwise it notes when it may go on. One
// that holds more than is ever allowed goes on by its own answers only, and is judged at each of
// these. mu is held.
func (r *room) judge(f *Sender) {
	p := f.party.Load()
	if mine := f.own.load(); mine.within(f.most) {
		p.low = amount{min(p.low.bytes, mine.bytes), min(p.low.messages, mine.messages)}
		r.raise(r.share.until(mine, p.held.load()))
	}
	if r.at(locked); !r.full(f) {
		r.release(f, p)
	}
}

// wait blocks while a sender is full.
func (r *room) wait(f *Sender) {
	if !r.full(f) {
		return
	}
	r.lock()
	defer r.mu.Unlock()
	f.waiting++
	for r.mustWait(f) {
		if f.eased == nil {
			f.eased = make(chan struct{})
		}
		eased := f.eased
		r.mu.Unlock()
		<-eased
		r.lock()
	}
	if f.waiting--; f.waiting == 0 && f.place > 0 {
		f.party.Load().strike(f)
	}
}

// mustWait enlists a sender and judges it. mu is held.
func (r *room) mustWait(f *Sender) bool {
	p := f.party.Load()
	if p == nil || r.closed.Load() {
		return false
	}
	p.enlist(f)
	r.at(locked)
	r.judge(f)
	return f.place > 0
}

// letGo wakes all publishers, once closed is set.
func (r *room) letGo() {
	r.lock()
	defer r.mu.Unlock()
	for _, p := range r.parties {
		for len(p.waiters) > 0 {
			r.release(p.waiters[0], p)
		}
	}
}
