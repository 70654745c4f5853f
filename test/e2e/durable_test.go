//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

const (
	// publishTime is how long one publish waits for its ack before it is repeated.
	publishTime = 2 * time.Second
	// failoverTime bounds the time without acks of a Topic of several replicas after the loss of
	// its leader.
	failoverTime = 10 * time.Second
)

// durable publishes messages on a subject until halt, each after the ack of the one before, and
// keeps the acked ones.
type durable struct {
	subject string

	stop   chan struct{}
	done   chan struct{}
	halted sync.Once
	mu     sync.Mutex
	acked  map[uint64]string // value by sequence
	stream string            // of the acks
	failed atomic.Int64
	last   atomic.Value // of errors

	acks  time.Time     // time of the last ack
	pause time.Duration // the longest time between two acks
}

func (e *environment) startDurable(t *testing.T, pod, subject string) *durable {
	t.Helper()
	js := e.stream(t, pod)
	d := &durable{subject: subject, stop: make(chan struct{}), done: make(chan struct{}), acked: map[uint64]string{}}
	go func() {
		defer close(d.done)
		for n := 0; ; n++ {
			select {
			case <-d.stop:
				return
			case <-time.After(5 * time.Millisecond):
			}
			value := fmt.Sprintf("%s-%d", pod, n)
			ctx, cancel := context.WithTimeout(context.Background(), publishTime)
			ack, err := js.Publish(ctx, subject, []byte(value), jetstream.WithRetryAttempts(0))
			cancel()
			if err != nil {
				d.failed.Add(1)
				d.last.Store(err.Error())
				continue
			}
			d.mu.Lock()
			d.acked[ack.Sequence], d.stream = value, ack.Stream
			now := time.Now()
			if !d.acks.IsZero() {
				d.pause = max(d.pause, now.Sub(d.acks))
			}
			d.acks = now
			d.mu.Unlock()
		}
	}()
	t.Cleanup(d.halt)
	return d
}

func (d *durable) halt() {
	d.halted.Do(func() { close(d.stop) })
	<-d.done
}

// wentOn fails unless the longest time between two acks was short.
func (d *durable) wentOn(t *testing.T) {
	t.Helper()
	d.mu.Lock()
	defer d.mu.Unlock()
	longest := max(d.pause, time.Since(d.acks))
	t.Logf("the longest time without an ack was %s", longest.Round(10*time.Millisecond))
	if longest > failoverTime {
		t.Errorf("nothing was acknowledged for %s, more than %s; the last error is %v", longest, failoverTime, d.last.Load())
	}
}

func (d *durable) count() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return len(d.acked)
}

// kept fails unless the stream has each acknowledged message at the sequence of its ack.
func (d *durable) kept(t *testing.T, js jetstream.JetStream, name string) {
	t.Helper()
	d.halt()
	s, err := js.Stream(within(t), name)
	if err != nil {
		t.Fatal(err)
	}
	lost := 0
	for sequence, value := range d.acked {
		m, err := s.GetMsg(within(t), sequence)
		if err != nil || string(m.Data) != value {
			if lost++; lost <= 5 {
				t.Errorf("the message that was acknowledged as %d of %s is %v (%v), want %q", sequence, name, m, err, value)
			}
		}
	}
	t.Logf("%d messages were acknowledged, %d publishes failed, %d are lost", len(d.acked), d.failed.Load(), lost)
}

// under waits for so many more acks.
func (d *durable) under(t *testing.T, more int) {
	t.Helper()
	allUnder(t, more, d)
}

// allUnder waits for so many more acks of each.
func allUnder(t *testing.T, more int, all ...*durable) {
	t.Helper()
	before := map[*durable]int{}
	for _, d := range all {
		before[d] = d.count()
	}
	upTo(readyTime).For(t, "messages are acknowledged", func(context.Context) error {
		for _, d := range all {
			if n := d.count() - before[d]; n < more {
				return fmt.Errorf("%d more on %s; the last error is %v", n, d.subject, d.last.Load())
			}
		}
		return nil
	})
}
