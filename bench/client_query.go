package bench

import (
	"context"
	"fmt"
	"net"
	"strconv"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
)

// queriesOfAnAddress is how many queries each of the connections for other queries opens: fewer
// than a broker accepts of a user, or of an address without users (docs/queries.md).
const queriesOfAnAddress = 900

// queryDriver drives a run of forward whose subscribers choose publishers by a live query over
// attributes, while other queries are open that nothing matches. Publishers are those of nats.go.
type queryDriver struct {
	*natsDriver
	workload Workload
	limits   Limits
	target   Target
	subjects []string // that have attributes
	manager  *nats.Conn

	mu     sync.Mutex
	failed error // the first
}

func newQueryDriver(w Workload, c *collector, limits Limits) *queryDriver {
	return &queryDriver{natsDriver: newNATSDriver(c), workload: w, limits: limits}
}

func (d *queryDriver) subscribe(ctx context.Context, t Target, prefix string,
	listeners []listener) (err error) {
	d.target = t
	if d.manager, err = d.connection(ctx, t, 0, nil); err != nil {
		return err
	}
	changes, bound := []attributeChange(nil), true
	for group, l := range listeners {
		for _, source := range l.sources {
			subject := prefix + d.workload.topics[source]
			d.subjects = append(d.subjects, subject)
			set := map[string]any{"group": strconv.Itoa(group)}
			changes = append(changes, attributeChange{Subject: subject, Set: set, Bound: &bound})
		}
	}
	if err := setAttributes(ctx, d.manager, changes); err != nil {
		return err
	}
	if err := d.openOthers(ctx, prefix); err != nil {
		return err
	}
	var waiting sync.WaitGroup
	err = inParallel(ctx, len(listeners), func(ctx context.Context, i int) error {
		nc, err := d.connection(ctx, t, i, d.subscriberEnded)
		if err != nil {
			return err
		}
		waiting.Add(1)
		told, members := sync.OnceFunc(waiting.Done), 0
		inbox := liveInbox{
			failed: func(err error) {
				d.fail(err)
				told()
			},
			notice: func(n *liveNotice, _ int64) {
				if members += len(n.joined()) - len(n.Del); members >= len(listeners[i].sources) {
					told()
				}
			},
			message: func(_ string, m *nats.Msg, at int64) { d.collector.deliver(i, m.Data, at) },
		}
		query := liveQuery{Where: fmt.Sprintf("attributes.group == %q", strconv.Itoa(i)),
			Subjects: prefix + ">"}
		return openLive(ctx, nc, query, inbox)
	})
	if err != nil {
		return err
	}
	return d.await(ctx, &waiting)
}

// openOthers opens queries of the same attribute that no publisher matches.
func (d *queryDriver) openOthers(ctx context.Context, prefix string) error {
	others := d.workload.Parameters.Queries
	connections := (others + queriesOfAnAddress - 1) / queriesOfAnAddress
	inbox := liveInbox{failed: d.fail, notice: func(*liveNotice, int64) {}}
	return inParallel(ctx, connections, func(ctx context.Context, c int) error {
		nc, err := d.connectionFrom(ctx, d.target, c)
		if err != nil {
			return err
		}
		for q := c * queriesOfAnAddress; q < min(others, (c+1)*queriesOfAnAddress); q++ {
			query := liveQuery{Where: fmt.Sprintf("attributes.group == \"other-%d\"", q),
				Subjects: prefix + ">"}
			if err := openLive(ctx, nc, query, inbox); err != nil {
				return fmt.Errorf("%d of %d other queries are open: %w (a broker limits those of a user, and of an address without users: "+
					"give several users in --server, nats://ann:…@host,nats://bob:…@host)", q, others, err)
			}
		}
		return nil
	})
}

// connectionFrom opens a connection for other queries. On loopback each has an address of its own,
// since a broker limits the queries of an address.
func (d *queryDriver) connectionFrom(ctx context.Context, t Target, c int) (*nats.Conn, error) {
	a := t.address(c)
	if host, _, err := net.SplitHostPort(a.HostPort); err == nil && a.User == "" &&
		loopbackV4(host) {
		from := &net.TCPAddr{IP: net.IPv4(127, 0, byte(1+c/250), byte(2+c%250))}
		// Linux has all of 127.0.0.0/8; elsewhere the limit may be met.
		if l, err := net.ListenTCP("tcp4", from); err == nil {
			_ = l.Close()
			a.from = from
			t.Addresses = []Address{a}
		}
	}
	return d.connection(ctx, t, c, nil)
}

func loopbackV4(host string) bool {
	ip := net.ParseIP(host)
	return ip != nil && ip.IsLoopback() && ip.To4() != nil
}

// await waits until every query has been told its members.
func (d *queryDriver) await(ctx context.Context, waiting *sync.WaitGroup) error {
	done := make(chan struct{})
	go func() {
		waiting.Wait()
		close(done)
	}()
	select {
	case <-done:
	case <-ctx.Done():
		return fmt.Errorf("some queries have not been told their members: %w", context.Cause(ctx))
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.failed
}

func (d *queryDriver) fail(err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.failed == nil {
		d.failed = err
		d.collector.dropped.add(err.Error())
	}
}

// close deletes the attributes. If it can't, they go with the connection that has set them.
func (d *queryDriver) close() {
	d.natsDriver.mu.Lock()
	d.natsDriver.closing = true
	d.natsDriver.mu.Unlock()
	if len(d.subjects) > 0 {
		ctx, cancel := context.WithTimeout(context.Background(), d.limits.Connect)
		_ = removeAttributes(ctx, d.manager, d.subjects)
		cancel()
	}
	d.natsDriver.close()
}

// connectWithin is how long connecting may take: many queries take longer.
func (w Workload) connectWithin(limits Limits) time.Duration {
	return limits.Connect * time.Duration(1+w.Parameters.Queries/manyFilters)
}
