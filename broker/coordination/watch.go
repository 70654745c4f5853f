package coordination

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
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

	history    *history     // nil: a restored etcd is not noticed
	restored   func()       // etcd was restored: what was put may have been restored away
	generation func() int64 // that was put last

	count uint64 // of the history's restores, when the keys were read
	marks []Mark // what was put since complete was called, the newest at most
}

func (m *mirror) run(ctx context.Context) {
	if m.history != nil {
		m.count = m.history.count()
	}
	var pause backoff
	for skip := false; ctx.Err() == nil; skip = !skip {
		revision, err := m.read(ctx)
		if err == nil {
			pause.reset()
			if skip {
				m.skipEndpoint(ctx)
			}
			revision, err = m.watch(ctx, revision)
			for errors.Is(err, errInterrupted) { // nothing was missed
				pause.reset()
				if !pause.wait(ctx) {
					return
				}
				m.c.log.Debug("a watch was interrupted; resuming it", "prefix", m.prefix, "error", err)
				revision, err = m.watch(ctx, revision)
			}
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

// errInterrupted is in the error of a watch that had begun, and can be resumed.
var (
	errInterrupted = errors.New("the watch was interrupted")
	errClosed      = errors.New("the watch was closed")
)

// verify returns an error if etcd was restored since it was begun to read the keys. They are to be
// read again then, and the generation was raised.
func (m *mirror) verify(ctx context.Context) error {
	if m.history == nil {
		return nil
	}
	if _, _, err := m.history.resolve(ctx); err != nil {
		return err
	}
	if m.history.count() != m.count {
		return errors.New("etcd was restored from a backup")
	}
	return nil
}

// finish completes what was put up to a revision.
func (m *mirror) finish(revision int64) {
	if m.history != nil {
		m.history.saw(m.count, revision, m.generation(), m.marks)
		m.marks = m.marks[:0]
	}
	m.complete(revision)
}

// note puts a key, and marks it as a newest one.
func (m *mirror) note(kv *mvccpb.KeyValue) {
	m.put(kv)
	if m.history == nil {
		return
	}
	if len(m.marks) == marksKept && m.marks[0].Revision > kv.GetModRevision() {
		return
	}
	at, _ := slices.BinarySearchFunc(m.marks, kv.GetModRevision(), func(o Mark, revision int64) int { return cmp.Compare(o.Revision, revision) })
	m.marks = slices.Insert(m.marks, at, markOf(kv))
	m.marks = slices.Delete(m.marks, 0, max(len(m.marks)-marksKept, 0))
}

func (m *mirror) read(ctx context.Context) (revision int64, err error) {
	if m.history != nil {
		if count := m.history.count(); count != m.count {
			m.count = count
			m.restored()
		}
		m.marks = m.marks[:0]
	}
	present := map[string]bool{}
	revision, err = m.c.pages(ctx, m.prefix, func(kv *mvccpb.KeyValue) {
		present[string(kv.GetKey())] = true
		m.note(kv)
	})
	if err != nil {
		return 0, err
	}
	for _, key := range m.keys() {
		if !present[key] {
			m.remove([]byte(key))
		}
	}
	// Not before the read: etcd may be restored in between.
	if err := m.verify(ctx); err != nil {
		return 0, err
	}
	m.finish(revision)
	return revision, nil
}

// watch follows the changes after a revision. It returns why it ended, and the revision up to which
// everything is complete.
func (m *mirror) watch(ctx context.Context, after int64) (last int64, err error) {
	// Without this a member that lost its leader keeps the watch open and silent.
	ctx, cancel := context.WithCancel(clientv3.WithRequireLeader(ctx))
	defer cancel()
	opening := time.AfterFunc(m.c.silent, cancel) // Watch blocks until the endpoint has answered
	// It begins with a known revision: etcd answers no progress requests on a watch that begins
	// with a future one.
	changes := m.c.etcd.Watch(ctx, m.prefix, clientv3.WithPrefix(), clientv3.WithRev(after), clientv3.WithCreatedNotify())
	opening.Stop()
	probe := time.NewTicker(m.c.probe)
	defer probe.Stop()
	heard, begun := time.Now(), false
	for {
		select {
		case answer, ok := <-changes:
			if !ok {
				return after, ended(begun, errClosed)
			}
			if err := answer.Err(); err != nil {
				return after, ended(begun, fmt.Errorf("watch %s: %w", m.prefix, err))
			}
			if answer.Created {
				// From here on, a restored etcd ends the stream.
				if err := m.verify(ctx); err != nil {
					return after, err
				}
				begun = true
			}
			heard = time.Now()
			events := slices.DeleteFunc(answer.Events, func(e *clientv3.Event) bool { return e.Kv.GetModRevision() <= after })
			for _, event := range events {
				if event.Type == clientv3.EventTypeDelete {
					m.remove(event.Kv.Key)
				} else {
					m.note(event.Kv)
				}
			}
			if len(events) > 0 {
				after = events[len(events)-1].Kv.GetModRevision()
				m.finish(after)
			}
		case <-probe.C:
			if time.Since(heard) > m.c.silent {
				return after, fmt.Errorf("watch %s: nothing was heard for %v", m.prefix, m.c.silent)
			}
			asking, stop := context.WithTimeout(ctx, m.c.probe/4)
			_ = m.c.etcd.RequestProgress(asking) // no answer counts as silence
			stop()
		}
	}
}

// ended returns the error of a watch, as one that can be resumed if it had begun and its stream
// broke.
func ended(begun bool, err error) error {
	if begun && (err == errClosed || status.Code(errors.Unwrap(err)) == codes.Aborted) {
		return fmt.Errorf("%w: %w", errInterrupted, err)
	}
	return err
}
