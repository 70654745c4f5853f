package coordination

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/carillon-mq/carillon/broker/work"
)

const (
	// probeWatch is the interval of progress requests on a watch. After silentWatch without any
	// answer the watch is replaced. If the coordinator's kernel does not confirm a progress
	// request, the connection is closed (dialKeepAliveTimeout) before silent brokers are evicted.
	probeWatch  = 500 * time.Millisecond
	silentWatch = 4 * time.Second
)

// mirror follows all keys under a prefix: it reads them at a revision, watches from there, and
// starts over whenever the watch ends.
type mirror struct {
	c      *Client
	prefix string
	first  string // the keys below it are left out; empty: none

	put    func(*mvccpb.KeyValue)
	remove func(key []byte, revision int64) // of the deletion, or of the read that lacks the key
	keys   func() []string                  // the keys that were put and not removed; called once in each read
	// complete says that everything up to a revision was put and removed. After an error everything
	// is read again.
	complete func(revision int64) error

	history    *history     // nil: a restored etcd is not noticed
	restored   func()       // etcd was restored: what was put may have been restored away
	generation func() int64 // that was put last

	skips int    // endpoints to skip between two requests; see skipEndpoints
	count uint64 // of the history's restores, when the keys were read
	marks []Mark // what was put since complete was called, the newest at most
}

func (m *mirror) run(ctx context.Context) {
	if m.history != nil {
		m.count = m.history.count()
	}
	var pause backoff
	for ; ctx.Err() == nil; m.skips = (m.skips + 1) % max(1, len(m.c.etcd.Endpoints())) {
		revision, err := m.read(ctx)
		if err == nil {
			pause.reset()
			m.skipEndpoints(ctx)
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

// skipEndpoints sends requests to skip endpoints. Requests use the endpoints in turn, and following
// takes several requests: with two or three endpoints, one of these would always use a silent
// endpoint. Each attempt skips another number of endpoints between its read, its verification and
// its watch. So if a read takes one request, one of the attempts uses one endpoint for all of them.
//
// A read of several pages (more than pageKeys keys) skips nothing between them. If it has at least
// as many pages as there are endpoints, one of them always uses the silent endpoint, and reading
// fails until that answers again or its connection is closed.
func (m *mirror) skipEndpoints(ctx context.Context) {
	for range m.skips {
		asking, stop := context.WithTimeout(ctx, m.c.probe)
		// The answer does not matter.
		_, _ = m.c.etcd.Get(asking, m.prefix, clientv3.WithKeysOnly())
		stop()
	}
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
	m.skipEndpoints(ctx)
	if _, _, err := m.history.resolve(ctx); err != nil {
		return err
	}
	if m.history.count() != m.count {
		return errors.New("etcd was restored from a backup")
	}
	return nil
}

// finish completes what was put up to a revision.
func (m *mirror) finish(revision int64) error {
	if m.history != nil {
		m.history.saw(m.count, revision, m.generation(), m.marks)
		m.marks = m.marks[:0]
	}
	return m.complete(revision)
}

// from returns the first key that is followed.
func (m *mirror) from() string { return cmp.Or(m.first, m.prefix) }

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
	revision, err = m.c.pagesFrom(ctx, m.from(), m.prefix, func(kv *mvccpb.KeyValue) {
		present[string(kv.GetKey())] = true
		m.note(kv)
	})
	if err != nil {
		return 0, err
	}
	for _, key := range m.keys() {
		if !present[key] {
			m.remove([]byte(key), revision)
		}
	}
	// Not before the read: etcd may be restored in between.
	if err := m.verify(ctx); err != nil {
		return 0, err
	}
	if err := m.finish(revision); err != nil {
		return 0, err
	}
	m.c.hear()
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
	changes := m.c.etcd.Watch(ctx, m.from(), clientv3.WithRange(clientv3.GetPrefixRangeEnd(m.prefix)), clientv3.WithRev(after), clientv3.WithCreatedNotify())
	opening.Stop()
	probe := work.NewTicker(m.c.probe)
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
			m.c.hear()
			events := slices.DeleteFunc(answer.Events, func(e *clientv3.Event) bool { return e.Kv.GetModRevision() <= after })
			for _, event := range events {
				if event.Type == clientv3.EventTypeDelete {
					m.remove(event.Kv.Key, event.Kv.GetModRevision())
				} else {
					m.note(event.Kv)
				}
			}
			if len(events) > 0 {
				after = events[len(events)-1].Kv.GetModRevision()
				if err := m.finish(after); err != nil {
					return after, err
				}
			}
		case <-probe.C:
			probe.Next()
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
