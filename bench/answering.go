package bench

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
)

// Answering is responders, each on a connection of its own, that return what they are sent.
type answering struct {
	target     Target
	responders []*responder
	closing    atomic.Bool
	readers    sync.WaitGroup
	ends       subscriberEnds
}

// newAnswering has the i-th responder subscribe to the i-th subject.
func newAnswering(t Target, subjects []string, size int) *answering {
	a := &answering{target: t}
	for _, subject := range subjects {
		a.responders = append(a.responders, &responder{subject: subject, size: size})
	}
	return a
}

func (a *answering) connect(ctx context.Context) error {
	err := inParallel(ctx, len(a.responders), func(ctx context.Context, i int) (err error) {
		// Away from its requester, where there are several addresses.
		a.responders[i].conn, err = dialWire(ctx, a.target.address(i+1), a.responders[i].subject)
		return err
	})
	if err != nil {
		return fmt.Errorf("connect the responders to %s: %w", a.target.Name, err)
	}
	for _, r := range a.responders {
		a.readers.Go(func() { a.ended(r, r.conn.read(r, max(16<<10, 2*(r.size+4<<10)), 0, r.flush)) })
	}
	return nil
}

func (a *answering) ended(r *responder, err error) {
	if a.closing.Load() {
		return
	}
	if r.refused != "" {
		err = errors.New(r.refused)
	}
	a.ends.add(err.Error())
	_ = r.conn.socket.Close()
}

func (a *answering) close() {
	a.closing.Store(true)
	for _, r := range a.responders {
		if r.conn != nil {
			_ = r.conn.socket.Close()
		}
	}
	a.readers.Wait()
}

// A responder answers everything that one read brought with one write.
type responder struct {
	subject string
	size    int
	conn    *wire
	out     []byte
	refused string // the last -ERR
}

func (r *responder) flush() error {
	if len(r.out) == 0 {
		return nil
	}
	err := r.conn.out.write(r.out)
	r.out = r.out[:0]
	return err
}

func (r *responder) onReplied(reply, _, payload []byte) {
	if len(reply) == 0 {
		return
	}
	r.out = append(append(append(append(r.out, "PUB "...), reply...), ' '), strconv.Itoa(len(payload))...)
	r.out = append(append(append(r.out, crlf...), payload...), crlf...)
}

func (r *responder) onMessage(_, _, _ []byte) {} // onReplied takes them
func (r *responder) onInfo([]byte)            {}
func (r *responder) onPing()                  { r.out = append(r.out, pong...) }
func (r *responder) onPong()                  {}
func (r *responder) onError(text []byte)      { r.refused = string(text) }
