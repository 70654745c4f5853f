//go:build e2e && linux

package hostile

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"golang.org/x/sys/unix"
)

const (
	requestRate = 200 // a second: a p99 of 10 s has 20 slower ones
	publishRate = 100 // a second, to a stream
	// grace is how long answers to the last operations may take.
	grace = 5 * time.Second
	// prepareTime bounds what comes before a measurement or an attack.
	prepareTime = time.Minute
)

// users are those of servers that have users, and their passwords.
var users = map[string]string{"bystander": "of-the-bystander", "attacker": "of-the-attacker"}

// measured is what the bystander reports of one kind of operation.
type measured struct {
	What          string
	Count, Failed int // of them, those that were refused or not answered
	P50, P99, Max time.Duration
}

// connect connects as a user, to the broker at the address.
func (t target) connect(user, address string, options ...nats.Option) (*nats.Conn, error) {
	scheme := "nats://"
	options = append(options, nats.Name(user), nats.Timeout(10*time.Second), nats.MaxReconnects(-1), nats.ReconnectWait(100*time.Millisecond), nats.FlusherTimeout(2*time.Second),
		nats.IgnoreDiscoveredServers(), nats.ErrorHandler(func(*nats.Conn, *nats.Subscription, error) {}))
	if t.Users {
		options = append(options, nats.UserInfo(user, users[user]))
	}
	if t.CA != "" {
		scheme = "tls://"
		options = append(options, nats.RootCAs(t.CA))
	}
	return nats.Connect(scheme+address, options...)
}

// stand is the bystander's process. It answers each line, a duration, with what it measured for so
// long.
func stand(t target, in io.Reader, out io.Writer) error {
	asker, err := t.connect("bystander", t.Clients[0])
	if err != nil {
		return err
	}
	defer asker.Close()
	responder, err := t.connect("bystander", t.Clients[len(t.Clients)-1])
	if err != nil {
		return err
	}
	defer responder.Close()
	if _, err = responder.Subscribe("bystander.ask", func(m *nats.Msg) { _ = m.Respond(m.Data) }); err != nil {
		return err
	}
	if err := responder.Flush(); err != nil {
		return err
	}
	if t.Stream {
		if err := keep(asker, len(t.Clients)); err != nil {
			return err
		}
	}
	if err := answered(asker); err != nil {
		return err
	}
	lines, reports := bufio.NewScanner(in), json.NewEncoder(out)
	for lines.Scan() {
		d, err := time.ParseDuration(lines.Text())
		if err != nil {
			return err
		}
		var running sync.WaitGroup
		all := make([]measured, 1, 2)
		if t.Stream {
			all = all[:2]
			running.Go(func() { all[1] = load{asker, "publishes", "bystander.kept", publishRate}.measure(d) })
		}
		all[0] = load{asker, "requests", "bystander.ask", requestRate}.measure(d)
		running.Wait()
		if err := reports.Encode(all); err != nil {
			return err
		}
	}
	return lines.Err()
}

// keep makes the stream to which the bystander publishes. A cluster may not be ready yet.
func keep(nc *nats.Conn, replicas int) error {
	js, err := jetstream.New(nc)
	if err != nil {
		return err
	}
	for began := time.Now(); ; time.Sleep(200 * time.Millisecond) {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		_, err = js.CreateOrUpdateStream(ctx, jetstream.StreamConfig{Name: "BYSTANDER", Subjects: []string{"bystander.kept"}, Replicas: replicas, MaxMsgs: 10_000})
		if err == nil {
			_, err = js.Publish(ctx, "bystander.kept", nil)
		}
		cancel()
		if err == nil || time.Since(began) > prepareTime/2 {
			return err
		}
	}
}

// answered waits until requests arrive: interest has to get around.
func answered(nc *nats.Conn) (err error) {
	for began := time.Now(); time.Since(began) < prepareTime/2; time.Sleep(100 * time.Millisecond) {
		if _, err = nc.Request("bystander.ask", nil, time.Second); err == nil {
			return nil
		}
	}
	return fmt.Errorf("the bystander gets no answers before the attack: %w", err)
}

// load is one kind of operation: a request that somebody answers.
type load struct {
	nc            *nats.Conn
	what, subject string
	rate          int
}

// measure sends requests at the load's rate and times each from when it was due.
func (l load) measure(d time.Duration) measured {
	const lost = -1
	n := int(d.Seconds() * float64(l.rate))
	m := measured{What: l.what, Count: n}
	var mu sync.Mutex
	took := make([]time.Duration, n) // 0: there is no answer yet
	left, done := n, make(chan struct{})
	inbox := nats.NewInbox()
	began := time.Now().Add(50 * time.Millisecond)
	due := func(i int) time.Duration { return time.Duration(i) * time.Second / time.Duration(l.rate) }
	sub, err := l.nc.Subscribe(inbox+".*", func(answer *nats.Msg) {
		now := time.Since(began)
		i, err := strconv.Atoi(answer.Subject[strings.LastIndexByte(answer.Subject, '.')+1:])
		mu.Lock()
		defer mu.Unlock()
		if err != nil || i < 0 || i >= n || took[i] != 0 {
			return
		}
		if took[i] = max(now-due(i), 1); answer.Header.Get("Status") != "" || bytes.Contains(answer.Data, []byte(`"error":`)) {
			took[i] = lost
		}
		if left--; left == 0 {
			close(done)
		}
	})
	if err == nil {
		defer func() { _ = sub.Unsubscribe() }()
		go l.send(inbox, began, n, due)
		select {
		case <-done:
		case <-time.After(time.Until(began) + d + grace):
		}
	}
	end := time.Since(began)
	mu.Lock()
	defer mu.Unlock()
	for i := range took {
		if took[i] <= 0 {
			m.Failed++
			took[i] = end - due(i)
		}
	}
	sorted := slices.Sorted(slices.Values(took))
	m.P50, m.P99, m.Max = Percentile(sorted, 0.5), Percentile(sorted, 0.99), Percentile(sorted, 1)
	return m
}

// send sends each request when it is due. Its thread sleeps in the kernel, since the timers of the
// Go runtime may be a millisecond late, which is more than most latencies.
func (l load) send(inbox string, began time.Time, n int, due func(int) time.Duration) {
	runtime.LockOSThread() // it ends with this goroutine
	_ = unix.Prctl(unix.PR_SET_TIMERSLACK, 1, 0, 0, 0)
	payload := make([]byte, 128)
	for i := range n {
		if wait := time.Until(began.Add(due(i))); wait > 0 {
			nap := unix.NsecToTimespec(int64(wait))
			_ = unix.Nanosleep(&nap, nil)
		}
		if l.nc.PublishRequest(l.subject, inbox+"."+strconv.Itoa(i), payload) != nil {
			continue // it has no answer
		}
	}
}
