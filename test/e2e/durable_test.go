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
	// publishTime is how long one publish waits for its ack before the next one tries.
	publishTime = 2 * time.Second
	// failoverTime is how long a Topic of several replicas may take to acknowledge again when its
	// leader is gone.
	failoverTime = 10 * time.Second
)

// durable publishes one message after the other on a subject until halt, waiting for each ack, and
// remembers those it got.
type durable struct {
	subject string

	stop   chan struct{}
	done   chan struct{}
	halted sync.Once
	mu     sync.Mutex
	acked  map[uint64]string // value by sequence
	stream string            // that the acks name
	failed atomic.Int64
	last   atomic.Value // of errors

	acks  time.Time     // when the last ack came
	pause time.Duration // the longest between two
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

// wentOn fails unless acks came all the time, but for a short while.
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

// kept fails unless the stream holds each acknowledged message where its ack said.
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

// under waits until so many more messages are acknowledged.
func (d *durable) under(t *testing.T, more int) {
	t.Helper()
	allUnder(t, more, d)
}

// allUnder waits until so many more messages of each are acknowledged.
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
