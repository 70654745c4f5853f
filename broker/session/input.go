package session

import (
	"errors"
	"net"
	"sync"
	"time"

	"github.com/carillon-mq/carillon/broker/admission"
	"github.com/carillon-mq/carillon/broker/limits"
	"github.com/carillon-mq/carillon/broker/protocol"
)

const (
	// freeInput is the largest operation in bytes that needs no claim. So a publisher of small
	// messages takes no lock here, and a connection without a claim has one slab of this size at
	// most.
	freeInput = fullChunk
	// leastInput is the least number of largest operations that the node has room for, so that one
	// client's does not keep all others waiting.
	leastInput = 4
)

// errUnread is the end of a connection whose reader stopped while the client may have sent more.
var errUnread = errors.New("the connection ends, and its input is not read any more")

type claim = admission.Claim[*Conn]

// input is the budget of all clients for operations beyond freeInput. A reader claims the slab that
// the announced operation needs before it reads more of it. While it waits, it reads nothing, so
// TCP makes the client wait. The claim ends when the operation is complete: whoever keeps its slab
// then, a loop or a Taker, has a bound of its own.
//
// The lock is innermost: nothing is called while it is held.
type input struct {
	mu     sync.Mutex
	budget *admission.Budget[*Conn]
	turns  map[*Conn]chan bool // of those that wait; true: the claim is held
}

// open makes room as the profile says.
func (in *input) open(p *limits.Profile) {
	largest := slabSize(p.Payload + limits.ControlLine)
	in.budget = admission.New[*Conn](max(p.Input, int64(leastInput*largest)))
	in.turns = make(map[*Conn]chan bool)
}

// claimRoom claims room for the operation that is being read, if it needs that, and ends the claim
// of a complete one. It is called before makeRoom, with the same need. An error ends the
// connection.
func (c *Conn) claimRoom(need int) error {
	if c.claimed && need == c.need { // a claimed operation is in the slab alone
		c.claim.Arrived(int64(c.end - c.start))
		return nil
	}
	if c.claimed {
		c.hub.input.giveBack(c)
	}
	if need <= freeInput {
		return nil
	}
	c.waitForRoom() // not while others wait for the claim
	return c.hub.input.await(c, need)
}

// await waits for the room of an operation.
func (in *input) await(c *Conn, need int) error {
	in.mu.Lock()
	if c.claim == nil {
		from, _, _ := net.SplitHostPort(c.nc.RemoteAddr().String())
		c.claim = in.budget.Open(c, Network(from))
	}
	now := time.Now()
	if in.budget.Ask(c.claim, int64(slabSize(need)), int64(c.end-c.start), now) {
		in.mu.Unlock()
		c.claimed = true
		return nil
	}
	turn := make(chan bool, 1)
	in.turns[c] = turn
	in.mu.Unlock()
	c.queued.Store(true)
	if c.ending() {
		in.abandon(c)
	}
	c.claimed = <-turn
	c.active.Store(time.Now().UnixNano())
	c.queued.Store(false)
	if !c.claimed {
		return errUnread
	}
	return nil
}

// ending reports whether the connection is to be read no more.
func (c *Conn) ending() bool {
	return c.closed() || c.closeReason.Load() != nil || c.draining.Load() != nil
}

// abandon ends the wait of a connection that is ending. Who ends it calls abandon after ending
// reports that.
func (in *input) abandon(c *Conn) {
	if !c.queued.Load() {
		return // the reader looks whether the connection is ending once it is queued
	}
	in.mu.Lock()
	defer in.mu.Unlock()
	if turn := in.turns[c]; turn != nil {
		delete(in.turns, c)
		turn <- false
		in.wake(in.budget.Return(c.claim, time.Now()))
	}
}

// giveBack ends the claim of a complete operation. The reader calls it.
func (in *input) giveBack(c *Conn) {
	c.claimed = false
	in.mu.Lock()
	defer in.mu.Unlock()
	in.wake(in.budget.Return(c.claim, time.Now()))
}

// wake tells readers that their claims are held. mu is held.
func (in *input) wake(granted []*claim) {
	for _, g := range granted {
		in.turns[g.Owner] <- true
		delete(in.turns, g.Owner)
	}
}

func (in *input) figures() (used, size int64, waiting int) {
	in.mu.Lock()
	defer in.mu.Unlock()
	return in.budget.Used(), in.budget.Size(), in.budget.Waiting()
}

// letGo releases all that the reader holds. It is the end of reading.
func (c *Conn) letGo() {
	if c.in != nil {
		c.in.Release()
		c.in = nil
	}
	c.secure.release()
	if c.claim == nil {
		return
	}
	in := &c.hub.input
	in.mu.Lock()
	defer in.mu.Unlock()
	in.wake(in.budget.Close(c.claim, time.Now()))
	c.claim, c.claimed = nil, false
}

// endOfInput is the error of readAll when fill returns err.
func (c *Conn) endOfInput(err error) error {
	if why := c.closeReason.Load(); why != nil && *why == SlowProducer {
		return errUnread
	}
	return err
}

// evictSlow closes the clients whose operations give way to those that wait. The sweeper calls it.
func (h *Hub) evictSlow(now time.Time) {
	h.input.mu.Lock()
	gone := h.input.budget.Evict(now)
	h.input.mu.Unlock()
	for _, e := range gone {
		c := e.Owner
		h.notable.Warn("Closing a slow producer: others waited for room", "client", c.id, "name", c.name(), "address", c.nc.RemoteAddr().String(),
			"arrived", e.Arrived, "room", e.Size, "within", e.Held)
		// The reader stops at once: its slab and its claim are what others wait for.
		c.endWithError(protocol.ErrSlowProducer.Text(), SlowProducer, 0)
	}
}
