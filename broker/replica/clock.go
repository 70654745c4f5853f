package replica

import (
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/carillon-mq/carillon/broker/clock"
)

// clockFrame is the vote of one end's clock. It echoes what the other end sent last, so that the
// receiver knows the round trip, which bounds the vote's age.
type clockFrame struct {
	sent    int64 // the sender's Mono
	returns bool  // echo and held are set
	echo    int64 // sent of the last received frame
	held    int64 // how long ago that frame was received
	vote    clock.Vote
}

// clockEnd is the state of exchanging votes at one end of a connection. Each end sends its vote
// when the connection begins, with each heartbeat, and at once when the other end knows no round
// trip yet.
type clockEnd struct {
	on  bool // both ends exchange votes
	due atomic.Bool

	// The last received frame. Guarded by mu.
	mu   sync.Mutex
	last int64 // its sent
	came int64 // when it was received, on Mono
	some bool  // there was one
}

// sendClock sends this broker's vote if time is set or a vote is due. Only the writer calls it.
func (c *connection) sendClock(time bool) error {
	e := &c.clock
	if !e.on || !e.due.Swap(false) && !time {
		return nil
	}
	vote, mono := c.x.config.Clock.Vote()
	f := clockFrame{sent: mono, vote: vote}
	e.mu.Lock()
	if f.returns = e.some; f.returns {
		f.echo, f.held = e.last, mono-e.came
	}
	e.mu.Unlock()
	_, err := c.out.Write(appendClock(c.out.AvailableBuffer(), &f))
	return err
}

// receiveClock handles the other end's vote. Only the reader calls it.
func (c *connection) receiveClock(body []byte) error {
	f, err := parseClock(body)
	if err != nil {
		return &garbageError{err}
	}
	if c.x.config.Clock == nil {
		return nil
	}
	mono := c.x.config.Clock.Mono()
	e := &c.clock
	e.mu.Lock()
	e.last, e.came, e.some = f.sent, mono, true
	e.mu.Unlock()
	if !f.returns {
		e.due.Store(true)
		c.signal()
		return nil
	}
	c.x.config.Clock.Heard(c.broker, f.vote, mono, time.Duration(mono-f.echo-f.held))
	return nil
}

func appendClock(dst []byte, f *clockFrame) []byte {
	dst, at := beginFrame(dst, frameClock)
	dst = be.AppendUint64(dst, uint64(f.sent))
	returns := byte(0)
	if f.returns {
		returns = 1
	}
	dst = append(dst, returns)
	dst = be.AppendUint64(dst, uint64(f.echo))
	dst = be.AppendUint64(dst, uint64(f.held))
	dst = be.AppendUint64(dst, uint64(f.vote.Time))
	dst = append(dst, byte(f.vote.State))
	return endFrame(be.AppendUint64(dst, uint64(f.vote.Age)), at)
}

func parseClock(body []byte) (c clockFrame, err error) {
	f := fields{rest: body}
	c.sent, c.returns, c.echo, c.held = int64(f.u64()), f.u8() == 1, int64(f.u64()), int64(f.u64())
	c.vote = clock.Vote{Time: int64(f.u64()), State: clock.State(f.u8()), Age: time.Duration(f.u64())}
	f.rest = nil // fields of later versions
	if err := f.done("clock"); err != nil {
		return clockFrame{}, err
	}
	if c.held < 0 || c.vote.Time <= 0 || c.vote.Age < 0 || c.vote.State > clock.Early {
		return clockFrame{}, fmt.Errorf("a clock that says %d, for %v, in state %d",
			c.vote.Time, c.vote.Age, c.vote.State)
	}
	return c, nil
}
