package bench

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
)

// How the connections of the failover scenario notice that a broker is gone, and find another.
const (
	pingEvery      = time.Second // a broker that answers neither of two is left
	pingsOut       = 2
	dialTimeout    = time.Second
	reconnectEvery = 50 * time.Millisecond // once all addresses were tried
)

// A failoverPublisher publishes on a connection of its own, as an application does that reconnects
// to whichever broker answers; between the tries it goes back to the broker where it belongs.
type failoverPublisher struct {
	run      *failoverRun
	number   int
	home     int // of the target's addresses
	nc       atomic.Pointer[nats.Conn]
	goHome   atomic.Bool
	timedOut int64 // guarded by the run's mutex, as refused
	refused  int64
}

// url is an address with its credentials, for connections that have several.
func (a Address) url() string {
	u := url.URL{Scheme: strings.TrimSuffix(a.scheme(), "://"), Host: a.HostPort}
	if a.User != "" {
		u.User = url.UserPassword(a.User, a.Password)
	} else if a.Token != "" {
		u.User = url.User(a.Token)
	}
	return u.String()
}

// dialResilient connects to the first of the addresses that answers, and goes on to the others
// when it is lost. It never ends by itself.
func dialResilient(addresses []Address, name string) (*nats.Conn, error) {
	var urls []string
	for _, a := range addresses {
		urls = append(urls, a.url())
	}
	options := []nats.Option{
		nats.Name(name), nats.Timeout(dialTimeout), nats.DontRandomize(), nats.IgnoreDiscoveredServers(),
		nats.MaxReconnects(-1), nats.ReconnectWait(reconnectEvery), nats.ReconnectJitter(0, 0), nats.RetryOnFailedConnect(true),
		nats.PingInterval(pingEvery), nats.MaxPingsOutstanding(pingsOut), nats.FlusherTimeout(writeTimeout),
		// What is published without a connection fails at once, instead of at another time.
		nats.ReconnectBufSize(-1),
		nats.ErrorHandler(func(*nats.Conn, *nats.Subscription, error) {}),
	}
	if secure := addresses[0].Secure; secure != nil {
		options = append(options, nats.Secure(secure))
	}
	if addresses[0].HandshakeFirst {
		options = append(options, nats.TLSHandshakeFirst())
	}
	nc, err := nats.Connect(strings.Join(urls, ","), options...)
	if err != nil {
		return nil, errors.New("its addresses can't be used: " + strings.ReplaceAll(err.Error(), strings.Join(urls, ","), "…"))
	}
	return nc, nil
}

// connect begins at home.
func (p *failoverPublisher) connect() error {
	all := p.run.target.Addresses
	nc, err := dialResilient(append(append([]Address{}, all[p.home:]...), all[:p.home]...), "carillon-bench")
	if err != nil {
		return fmt.Errorf("connect publisher %d to %s: %w", p.number+1, p.run.target.Name, err)
	}
	if old := p.nc.Swap(nc); old != nil {
		old.Close()
	}
	return nil
}

// broker is whom it is connected to, or nothing.
func (p *failoverPublisher) broker() string {
	if nc := p.nc.Load(); nc.IsConnected() {
		return nc.ConnectedServerName()
	}
	return ""
}

// awaitConnected waits until nc has a connection, or ctx ends. It is told of it in the moment in
// which there is one: what a publisher takes to notice would be counted as the broker's.
func awaitConnected(ctx context.Context, nc *nats.Conn) {
	connected := nc.StatusChanged(nats.CONNECTED)
	defer nc.RemoveStatusListener(connected)
	if nc.IsConnected() { // since before anybody listened
		return
	}
	select {
	case <-connected:
	case <-ctx.Done():
	}
}

// drive publishes until driven ends, and waits for the answer to its last message unless ctx ends,
// too.
func (p *failoverPublisher) drive(ctx, driven context.Context) error {
	r := p.run
	subject := fmt.Sprintf("%s.%d", streamSubject(r.id), p.number)
	for driven.Err() == nil {
		if p.goHome.CompareAndSwap(true, false) {
			if err := p.connect(); err != nil {
				return err
			}
		}
		at := now()
		number, ok := r.send(p.number, at)
		if !ok {
			return nil
		}
		m := nats.NewMsg(subject)
		m.Data = make([]byte, r.plan.PayloadBytes)
		stamp{run: r.id, publisher: uint32(p.number), sequence: uint32(number), due: at}.put(m.Data)
		m.Header.Set(nats.MsgIdHdr, fmt.Sprintf("%016x-%d-%d", r.id, p.number, number))
		once, cancel := context.WithTimeout(ctx, r.plan.AckTimeout)
		answer, err := p.nc.Load().RequestMsgWithContext(once, m)
		cancel()
		if ctx.Err() != nil && err != nil {
			return nil // interrupted while it waited: neither acknowledged nor failed
		}
		var data []byte
		if err == nil {
			data = answer.Data
		}
		r.answered(p, number, at, data, err)
		next := at + int64(r.plan.Interval)
		if err != nil && !errors.Is(err, nats.ErrNoResponders) {
			// Without a connection it fails at once: that is one message for each timeout, too.
			next = at + int64(r.plan.AckTimeout)
			waiting, done := context.WithTimeout(driven, time.Duration(next-now()))
			awaitConnected(waiting, p.nc.Load())
			done()
			continue
		}
		if left := time.Duration(next - now()); left > 0 {
			_ = sleep(driven, left)
		}
	}
	return nil
}
