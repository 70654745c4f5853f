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
	// probeWatch is the interval of progress requests on a watch. After silentWatch without any
	// answer the watch is replaced. If the coordinator's kernel does not confirm a progress
	// request, the connection is closed (dialKeepAliveTimeout) before silent brokers are evicted.
	probeWatch  = 500 * time.Millisecond
	silentWatch = 4 * time.Second
)

// WatchBrokers calls changed with all members, sorted by id, at first and after each change, until
// ctx ends; then it returns nil. Calls are sequential, on the caller's goroutine, and the receiver
// owns each slice.
//
// While etcd is unreachable changed is not called, and the last membership stands.
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
	m.complete = func(int64) {
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

// mirror follows all keys under a prefix: it reads them at a revision, watches from there, and
// starts over whenever the watch ends.
type mirror struct {
	c      *Client
	prefix string

	put      func(*mvccpb.KeyValue)
	remove   func(key []byte)
	keys     func() []string      // the keys that were put and not removed
	complete func(revision int64) // everything up to a revision was put and removed
}

func (m *mirror) run(ctx context.Context) {
	var pause backoff
	for skip := false; ctx.Err() == nil; skip = !skip {
		revision, err := m.read(ctx)
		if err == nil {
			pause.reset()
			if skip {
				m.skipEndpoint(ctx)
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

// skipEndpoint sends a request to skip an endpoint. Endpoints are used in turn, and a read plus a
// watch are two requests: with two endpoints, the watch would always use the silent one.
func (m *mirror) skipEndpoint(ctx context.Context) {
	asking, stop := context.WithTimeout(ctx, m.c.probe)
	defer stop()
	// The answer does not matter.
	_, _ = m.c.etcd.Get(asking, m.prefix, clientv3.WithPrefix(), clientv3.WithCountOnly())
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
	m.complete(revision)
	return revision, nil
}

// watch follows the changes after a revision and returns why it ended.
func (m *mirror) watch(ctx context.Context, after int64) error {
	// Without this a member that lost its leader keeps the watch open and silent.
	ctx, cancel := context.WithCancel(clientv3.WithRequireLeader(ctx))
	defer cancel()
	opening := time.AfterFunc(m.c.silent, cancel) // Watch blocks until the endpoint has answered
	// It begins with a known revision: etcd answers no progress requests on a watch that begins
	// with a future one.
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
				m.complete(events[len(events)-1].Kv.GetModRevision())
			}
		case <-probe.C:
			if time.Since(heard) > m.c.silent {
				return fmt.Errorf("watch %s: nothing was heard for %v", m.prefix, m.c.silent)
			}
			asking, stop := context.WithTimeout(ctx, m.c.probe/4)
			_ = m.c.etcd.RequestProgress(asking) // no answer counts as silence
			stop()
		}
	}
}
