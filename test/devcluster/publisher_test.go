//go:build linux

package devcluster

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/carillon-mq/carillon/internal/testutil"
	"github.com/carillon-mq/carillon/test/durability/checker"
)

const (
	// pace is the interval of each publisher's messages, and so the resolution of a measured
	// outage.
	pace = 5 * time.Millisecond
	// forgotten is the time after which a message without an ack counts as refused.
	forgotten = testutil.Patience * 3 / 4
)

// publisher publishes at a constant rate to one broker only, whether or not messages are
// acknowledged.
type publisher struct {
	history *checker.History
	number  int
	nc      *nats.Conn
	inbox   string
	stop    context.CancelFunc
	done    sync.WaitGroup

	mu     sync.Mutex
	flying map[string]sent // in flight, by reply subject
	acked  []delay
	errors map[string]int
	parted time.Time // when its connection ended last; guarded by mu
}

type sent struct {
	value checker.Value
	at    time.Time
}

// delay is the times at which a message was sent and its ack received.
type delay struct{ sent, acked time.Time }

func startPublisher(t *testing.T, h *checker.History, url string) *publisher {
	t.Helper()
	// A message that can't be sent at once is never sent.
	p := &publisher{history: h, number: h.NewPublisher(), inbox: nats.NewInbox(), flying: map[string]sent{}, errors: map[string]int{}}
	nc, err := checker.Connect(url, "devcluster, publisher", nats.IgnoreDiscoveredServers(), nats.ReconnectBufSize(-1), nats.DisconnectErrHandler(p.part))
	if err != nil {
		t.Fatal(err)
	}
	p.nc = nc
	if _, err := nc.Subscribe(p.inbox+".*", p.take); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	p.stop = cancel
	p.done.Go(func() { p.publish(ctx) })
	t.Cleanup(p.close)
	return p
}

// close stops the publisher, and waits a short time for answers to messages in flight.
func (p *publisher) close() {
	p.end()
	for deadline := time.Now().Add(time.Second); time.Now().Before(deadline); time.Sleep(pace) {
		p.mu.Lock()
		left := len(p.flying)
		p.mu.Unlock()
		if left == 0 || !p.nc.IsConnected() {
			break
		}
	}
	p.nc.Close()
}

// end stops publishing.
func (p *publisher) end() {
	p.stop()
	p.done.Wait()
}

func (p *publisher) publish(ctx context.Context) {
	tick := time.NewTicker(pace)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-tick.C:
			p.forget(now.Add(-forgotten))
		}
		v := p.history.Intend(p.number)
		reply := fmt.Sprintf("%s.%d", p.inbox, v.Counter)
		p.mu.Lock()
		p.flying[reply] = sent{v, time.Now()}
		p.mu.Unlock()
		subject := fmt.Sprintf("%s.p%d", p.history.Stream, p.number)
		if err := p.nc.PublishRequest(subject, reply, checker.Encode(p.history.Stream, v)); err != nil {
			p.mu.Lock()
			delete(p.flying, reply)
			p.mu.Unlock()
		}
	}
}

func (p *publisher) forget(before time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for reply, s := range p.flying {
		if s.at.Before(before) {
			delete(p.flying, reply)
			p.errors["no answer"]++
		}
	}
}

// take handles the answer to a message.
func (p *publisher) take(m *nats.Msg) {
	now := time.Now()
	var ack struct {
		Stream   string `json:"stream"`
		Sequence uint64 `json:"seq"`
		Error    *struct {
			Description string `json:"description"`
		} `json:"error"`
	}
	why := ""
	switch err := json.Unmarshal(m.Data, &ack); {
	case m.Header.Get("Status") != "":
		why = "status " + m.Header.Get("Status")
	case err != nil:
		why = err.Error()
	case ack.Error != nil:
		why = ack.Error.Description
	case ack.Stream != p.history.Stream:
		why = "acknowledged by stream " + ack.Stream
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	s, ok := p.flying[m.Subject]
	if !ok {
		return
	}
	delete(p.flying, m.Subject)
	if why != "" {
		p.errors[why]++
		return
	}
	p.acked = append(p.acked, delay{s.at, now})
	p.history.Acked(s.value, ack.Sequence)
}

// since returns the time of the first ack of a message that was sent after a moment.
func (p *publisher) since(moment time.Time) (first time.Time, ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, d := range p.acked {
		if d.sent.After(moment) && (!ok || d.acked.Before(first)) {
			first, ok = d.acked, true
		}
	}
	return first, ok
}

// recovers waits for such an ack, and returns the time from that moment to the ack.
func (p *publisher) recovers(t *testing.T, moment time.Time) time.Duration {
	t.Helper()
	var first time.Time
	testutil.Eventually(t, "a message is acknowledged again", func() error {
		var ok bool
		if first, ok = p.since(moment); !ok {
			return fmt.Errorf("what publishers are told: %s", p.told())
		}
		return nil
	})
	return first.Sub(moment)
}

// part handles the end of the connection: the messages in flight are lost with it.
func (p *publisher) part(*nats.Conn, error) {
	now := time.Now()
	p.forget(now)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.parted = now
}

// reconnects waits until the publisher's own broker acknowledges again, after it was told to end at
// a moment. It may acknowledge for a while before its process ends.
func (p *publisher) reconnects(t *testing.T, ended time.Time) {
	t.Helper()
	var parted time.Time
	testutil.Eventually(t, "the connection ends", func() error {
		p.mu.Lock()
		defer p.mu.Unlock()
		if parted = p.parted; !parted.After(ended) {
			return errors.New("it stands")
		}
		return nil
	})
	p.forget(parted.Add(p.recovers(t, parted)))
}

// refusals returns the number of messages that were refused or not answered.
func (p *publisher) refusals() (n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, of := range p.errors {
		n += of
	}
	return n
}

// settled waits until all messages are answered that were sent before this call.
func (p *publisher) settled(t *testing.T) {
	t.Helper()
	now := time.Now()
	testutil.Eventually(t, "all messages are answered", func() error {
		p.mu.Lock()
		defer p.mu.Unlock()
		for _, s := range p.flying {
			if s.at.Before(now) {
				return fmt.Errorf("%d messages under way, one since %v", len(p.flying), time.Since(s.at))
			}
		}
		return nil
	})
}

// longest returns the longest time without an ack between two moments.
func (p *publisher) longest(from, to time.Time) (longest time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	last := from
	for _, d := range p.acked {
		if d.acked.After(from) && d.acked.Before(to) {
			longest, last = max(longest, d.acked.Sub(last)), d.acked
		}
	}
	return max(longest, to.Sub(last))
}

// goesOn waits for that many more acks.
func (p *publisher) goesOn(t *testing.T, more int) {
	t.Helper()
	count := func() int {
		p.mu.Lock()
		defer p.mu.Unlock()
		return len(p.acked)
	}
	want := count() + more
	testutil.Eventually(t, "messages are acknowledged", func() error {
		if count() < want {
			return fmt.Errorf("what publishers are told: %s", p.told())
		}
		return nil
	})
}

func (p *publisher) told() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	text := []string{fmt.Sprintf("%d acknowledged, %d on their way", len(p.acked), len(p.flying))}
	for why, n := range p.errors {
		text = append(text, fmt.Sprintf("%d × %s", n, why))
	}
	return strings.Join(text, "; ")
}
