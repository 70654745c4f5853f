package coordination

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
)

const (
	// probeWatch is how often a watch is asked for a sign of life, and silentWatch how
	// long it may give none before it is replaced. The question alone, if its coordinator's kernel doesn't
	// confirm it, ends the connection (dialKeepAliveTimeout) before brokers that are silent are evicted.
	probeWatch  = 500 * time.Millisecond
	silentWatch = 4 * time.Second
	// readTimeout bounds one request of a reading; the next goes to another endpoint.
	readTimeout = 2 * time.Second
)

// WatchBrokers calls changed with all members, sorted by id, at first and after each
// change, until ctx ends; then it returns nil. The calls come one after the other on the
// caller's goroutine, and each slice is the receiver's to keep.
//
// While etcd can't be reached the last membership stands: changed is not called.
func (c *Client) WatchBrokers(ctx context.Context, changed func([]Broker)) error {
	members := map[string]Broker{}
	refused := map[string]int64{} // key -> revision of a value that was reported as unreadable
	known := false
	m := mirror{
		c: c, prefix: c.brokersPrefix(),
		put: func(kv *mvccpb.KeyValue) {
			id := c.brokerID(kv.GetKey())
			broker, err := decodeBroker(id, kv.GetCreateRevision(), kv.GetValue())
			if err != nil {
				delete(members, id)
				if refused[id] != kv.GetModRevision() {
					refused[id] = kv.GetModRevision()
					c.log.Warn("a broker's registration is unreadable; it is left out", "key", string(kv.GetKey()), "error", err)
				}
				return
			}
			delete(refused, id)
			members[id] = broker
		},
		remove: func(key []byte) { delete(members, c.brokerID(key)); delete(refused, c.brokerID(key)) },
	}
	var before map[string]Broker
	m.settled = func(int64) {
		if known && maps.Equal(before, members) {
			return
		}
		known, before = true, maps.Clone(members)
		changed(slices.SortedFunc(maps.Values(members), func(a, b Broker) int { return strings.Compare(a.ID, b.ID) }))
	}
	m.keys = func() []string {
		keys := make([]string, 0, len(members))
		for id := range members {
			keys = append(keys, c.brokerKey(id))
		}
		return keys
	}
	m.run(ctx)
	return nil
}

// mirror follows all keys under a prefix: it reads them at a revision, then watches from
// there, and begins again whenever the watch ends.
type mirror struct {
	c      *Client
	prefix string

	put     func(*mvccpb.KeyValue)
	remove  func(key []byte)
	keys    func() []string      // those that were put and not removed
	settled func(revision int64) // all that belongs together, up to a revision, was put and removed
}

func (m *mirror) run(ctx context.Context) {
	var pause backoff
	for skip := false; ctx.Err() == nil; skip = !skip {
		revision, err := m.read(ctx)
		if err == nil {
			pause.reset()
			if skip {
				m.skip(ctx)
			}
			err = m.watch(ctx, revision)
		}
		if ctx.Err() != nil {
			return
		}
		m.c.log.Warn("following etcd was interrupted; what is known stands", "prefix", m.prefix, "error", err)
		if !pause.wait(ctx) {
			return
		}
	}
}

// skip asks one endpoint for next to nothing. They take turns, and reading and watching are two: of two endpoints the silent one
// would have the watch again and again.
func (m *mirror) skip(ctx context.Context) {
	asking, stop := context.WithTimeout(ctx, m.c.probe)
	defer stop()
	_, _ = m.c.etcd.Get(asking, m.prefix, clientv3.WithPrefix(), clientv3.WithCountOnly()) // no answer is what it is for
}

func (m *mirror) read(ctx context.Context) (revision int64, err error) {
	present := map[string]bool{}
	revision, err = m.c.pages(ctx, m.prefix, func(kv *mvccpb.KeyValue) {
		present[string(kv.GetKey())] = true
		m.put(kv)
	})
	if err != nil {
		return 0, err
	}
	for _, key := range m.keys() {
		if !present[key] {
			m.remove([]byte(key))
		}
	}
	m.settled(revision)
	return revision, nil
}

// watch follows the changes after a revision and returns why it can't any longer.
func (m *mirror) watch(ctx context.Context, after int64) error {
	// A member that lost its leader would leave the watch open and silent otherwise.
	ctx, cancel := context.WithCancel(clientv3.WithRequireLeader(ctx))
	defer cancel()
	opening := time.AfterFunc(m.c.silent, cancel) // Watch waits until the endpoint has answered
	// It begins with that revision, which is known: etcd gives no sign of life on a watch that begins with one to come.
	changes := m.c.etcd.Watch(ctx, m.prefix, clientv3.WithPrefix(), clientv3.WithRev(after))
	opening.Stop()
	probe := time.NewTicker(m.c.probe)
	defer probe.Stop()
	heard := time.Now()
	for {
		select {
		case answer, ok := <-changes:
			if !ok {
				return errors.New("the watch was closed")
			}
			if err := answer.Err(); err != nil {
				return fmt.Errorf("watch %s: %w", m.prefix, err)
			}
			heard = time.Now()
			events := slices.DeleteFunc(answer.Events, func(e *clientv3.Event) bool { return e.Kv.GetModRevision() <= after })
			for _, event := range events {
				if event.Type == clientv3.EventTypeDelete {
					m.remove(event.Kv.Key)
				} else {
					m.put(event.Kv)
				}
			}
			if len(events) > 0 {
				m.settled(events[len(events)-1].Kv.GetModRevision())
			}
		case <-probe.C:
			if time.Since(heard) > m.c.silent {
				return fmt.Errorf("watch %s: nothing was heard for %v", m.prefix, m.c.silent)
			}
			asking, stop := context.WithTimeout(ctx, m.c.probe/4)
			_ = m.c.etcd.RequestProgress(asking) // not answered counts as silence
			stop()
		}
	}
}
