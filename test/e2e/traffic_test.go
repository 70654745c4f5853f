//go:build e2e

package e2e

import (
	"context"
	"encoding/binary"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
)

const (
	trafficRate = 200 // messages per second
)

// traffic is a constant stream of numbered messages from one broker's client to another's.
type traffic struct {
	from, to *nats.Conn
	subject  string
	stopped  chan struct{}
	done     chan struct{}

	mu       sync.Mutex
	sent     uint64
	last     time.Time
	heard    map[uint64]int
	backward int
	highest  uint64
	longest  time.Duration
}

// startTraffic begins to send, and returns when the first message has arrived.
func (e *environment) startTraffic(t *testing.T, from, to string) *traffic {
	t.Helper()
	f := &traffic{
		from: e.connect(t, from), to: e.connect(t, to),
		subject: fmt.Sprintf("traffic.%s.%s.%d", from, to, time.Now().UnixNano()),
		stopped: make(chan struct{}), done: make(chan struct{}), heard: map[uint64]int{},
	}
	if _, err := f.to.Subscribe(f.subject, f.hear); err != nil {
		t.Fatal(err)
	}
	if err := f.to.FlushTimeout(answerTime); err != nil {
		t.Fatal(err)
	}
	first, err := f.to.SubscribeSync(f.subject + ".first")
	if err != nil {
		t.Fatal(err)
	}
	upTo(answerTime).For(t, from+" knows what is wanted at "+to, func(context.Context) error {
		if err := f.from.Publish(f.subject+".first", nil); err != nil {
			return err
		}
		_, err := first.NextMsg(200 * time.Millisecond)
		return err
	})
	go f.send()
	t.Cleanup(func() { f.halt() })
	return f
}

func (f *traffic) send() {
	defer close(f.done)
	tick := time.NewTicker(time.Second / trafficRate)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-f.stopped:
			return
		}
		f.mu.Lock()
		f.sent++
		number := f.sent
		f.mu.Unlock()
		if f.from.Publish(f.subject, binary.BigEndian.AppendUint64(nil, number)) != nil {
			return // closed; the report shows missing messages
		}
	}
}

func (f *traffic) hear(m *nats.Msg) {
	if len(m.Data) != 8 {
		return
	}
	number := binary.BigEndian.Uint64(m.Data)
	f.mu.Lock()
	defer f.mu.Unlock()
	now := time.Now()
	if !f.last.IsZero() {
		f.longest = max(f.longest, now.Sub(f.last))
	}
	f.last = now
	f.heard[number]++
	if number < f.highest {
		f.backward++
	}
	f.highest = max(f.highest, number)
}

func (f *traffic) halt() {
	select {
	case <-f.stopped:
	default:
		close(f.stopped)
	}
	<-f.done
}

// finish stops the stream, waits for messages in flight, and counts.
func (f *traffic) finish(t *testing.T) outcome {
	t.Helper()
	f.halt()
	if err := f.from.FlushTimeout(answerTime); err != nil {
		t.Logf("flush of the sender: %v", err)
	}
	tick, deadline := time.NewTicker(20*time.Millisecond), time.After(answerTime)
	defer tick.Stop()
	o := f.count()
	for waiting := true; waiting && o.lost > 0; o = f.count() {
		select {
		case <-tick.C:
		case <-deadline:
			waiting = false
		}
	}
	t.Logf("traffic %s -> %s: %v", f.from.ConnectedServerName(), f.to.ConnectedServerName(), o)
	return o
}

// outcome counts the messages of a stream that were lost, duplicated or late, and has the longest
// silence.
type outcome struct {
	sent, lost, doubled, backward int
	longest                       time.Duration
}

func (o outcome) String() string {
	return fmt.Sprintf("%d sent, %d lost, %d doubled, %d out of order, longest silence %s", o.sent, o.lost, o.doubled, o.backward, o.longest)
}

func (f *traffic) count() outcome {
	f.mu.Lock()
	defer f.mu.Unlock()
	o := outcome{sent: int(f.sent), backward: f.backward, longest: f.longest.Round(time.Millisecond)}
	for n := uint64(1); n <= f.sent; n++ {
		switch times := f.heard[n]; {
		case times == 0:
			o.lost++
		case times > 1:
			o.doubled += times - 1
		}
	}
	return o
}

// untouched fails unless every message arrived once, in order, without a long silence.
func (o outcome) untouched(t *testing.T) {
	t.Helper()
	if o.lost+o.doubled+o.backward > 0 {
		t.Errorf("clients of the other brokers noticed: %v", o)
	}
	const silence = time.Second
	if o.longest > silence {
		t.Errorf("clients of the other brokers heard nothing for %s", o.longest)
	}
}
