package coordination

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
)

const (
	// marksKept is the number of values that are compared. Two histories that part may write an
	// equal value at an equal revision, and hardly a row of them.
	marksKept = 4
	// savePause bounds how often what was seen is saved.
	savePause = 200 * time.Millisecond
	// featureWait is how long a broker that noticed a restore waits until all registered brokers
	// know generations. A restored etcd shows the brokers of the time of the backup until their
	// leases end.
	featureWait = 15 * time.Second
)

// history compares etcd with what was seen of it before, and raises the generation when it was
// restored. A linearizable read decides, of the revision and of the newest values at their own
// revisions: a restored etcd may have passed the revision by then, with other values.
//
// It can't notice a restore to a state that this process, and its volume, has not gone beyond.
//
// Rejected: comparing revisions alone. A restored etcd passes its former revision within minutes.
type history struct {
	c     *Client
	store SeenStore // nil: it is forgotten with the process, and the generation is not raised

	mu       sync.Mutex // guards what follows
	loaded   bool
	seen     Seen
	changed  chan struct{} // closed when the generation changes
	dirty    chan struct{} // a token: there is something to save
	since    time.Time     // since when a restore is noticed that brokers of an earlier version hide
	term     uint64        // of etcd's leader; another one extends all leases
	cluster  uint64        // etcd's id; a restore may make another one
	restores uint64        // what was seen before the last one is void

	resolving sync.Mutex
}

func newHistory(c *Client, store SeenStore) *history {
	return &history{c: c, store: store, changed: make(chan struct{}), dirty: make(chan struct{}, 1)}
}

// known returns what was seen last. It reads the store when it is called first.
func (h *history) known() Seen {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.loaded {
		h.loaded = true
		if h.store != nil {
			if seen, err := h.store.Load(); err != nil {
				h.c.log.Warn("what this broker saw of etcd is unreadable; if etcd was restored meanwhile, that may go unnoticed", "error", err)
			} else if seen != nil {
				h.seen = *seen
			}
		}
	}
	seen := h.seen
	seen.Marks = slices.Clone(seen.Marks)
	return seen
}

// count returns how many restores were found. A mirror that began to read at another count may hold
// keys that were restored away.
func (h *history) count() uint64 {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.restores
}

// saw notes what was read or written at that count of restores: the revision and the generation of
// etcd, and the newest values. A State may be late, so its generation may be an earlier one than
// that of the registration.
func (h *history) saw(count uint64, revision, generation int64, newest []Mark) {
	h.known()
	h.mu.Lock()
	defer h.mu.Unlock()
	if count != h.restores {
		return
	}
	marks := slices.Concat(h.seen.Marks, newest)
	slices.SortStableFunc(marks, func(a, b Mark) int { return cmp.Compare(a.Revision, b.Revision) })
	marks = slices.Compact(marks)
	h.seen.Marks = slices.Clone(marks[max(len(marks)-marksKept, 0):])
	h.seen.Revision = max(h.seen.Revision, revision)
	if generation > h.seen.Generation {
		h.enter(generation)
	}
	h.save()
}

// enter takes over a generation. mu is held.
func (h *history) enter(generation int64) {
	if generation != h.seen.Generation {
		h.seen.Generation = generation
		close(h.changed)
		h.changed = make(chan struct{})
	}
}

// advance takes over a later generation of etcd.
func (h *history) advance(generation int64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if generation > h.seen.Generation {
		h.enter(generation)
		h.save()
	}
}

// save queues what was seen for the store. mu is held.
func (h *history) save() {
	select {
	case h.dirty <- struct{}{}:
	default:
	}
}

// keep saves what was seen, whenever it has changed, until ctx ends.
func (h *history) keep(ctx context.Context) {
	if h.store == nil {
		return
	}
	for {
		select {
		case <-ctx.Done():
			select {
			case <-h.dirty:
				h.write()
			default:
			}
			return
		case <-h.dirty:
		}
		h.write()
		timer := time.NewTimer(savePause)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
		}
	}
}

func (h *history) write() {
	if err := h.store.Save(h.known()); err != nil {
		h.c.log.Warn("what this broker saw of etcd could not be saved; if etcd is restored while it is stopped, that may go unnoticed", "error", err)
	}
}

// after returns a channel that is closed once the generation is another than the given one.
func (h *history) after(generation int64) <-chan struct{} {
	h.known()
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.seen.Generation != generation {
		passed := make(chan struct{})
		close(passed)
		return passed
	}
	return h.changed
}

// check reads the generation of etcd. It returns a *RestoredError if etcd does not have what was
// seen; then the generation is valid, too.
func (h *history) check(ctx context.Context) (generation int64, err error) {
	seen := h.known()
	for marks := seen.Marks; ; marks = marks[max(len(marks)-1, 1):] { // the newest one only, then none
		ops := []clientv3.Op{clientv3.OpGet(h.c.generationKey())}
		for _, m := range marks {
			ops = append(ops, clientv3.OpGet(m.Key, clientv3.WithRev(m.Revision)))
		}
		done, err := h.c.transact(ctx, nil, ops)
		switch {
		case errors.Is(err, rpctypes.ErrCompacted) && len(marks) > 0:
			continue
		case errors.Is(err, rpctypes.ErrFutureRev) && len(marks) > 0:
			generation, err := h.generation(ctx)
			if err != nil {
				return 0, err
			}
			return generation, &RestoredError{fmt.Sprintf("it is not at revision %d yet, which it had reached", marks[len(marks)-1].Revision)}
		case err != nil:
			return 0, fmt.Errorf("compare etcd with what was seen of it: %w", err)
		}
		h.ruled(done.Header)
		if generation, err = decodeGeneration(readResult(done, 0)); err != nil {
			return 0, err
		}
		if len(marks) == 0 && len(seen.Marks) > 0 && generation > seen.Generation {
			return generation, &RestoredError{fmt.Sprintf("it is in generation %d, was in %d, and has compacted what this broker saw last", generation, seen.Generation)}
		}
		return generation, seen.compare(marks, generation, done)
	}
}

func (h *history) generation(ctx context.Context) (int64, error) {
	done, err := h.c.transact(ctx, nil, []clientv3.Op{clientv3.OpGet(h.c.generationKey())})
	if err != nil {
		return 0, fmt.Errorf("read the generation of etcd: %w", err)
	}
	h.ruled(done.Header)
	return decodeGeneration(readResult(done, 0))
}

// name returns a name for what revisions are counted in: another one after a restore of etcd, if
// that has raised the generation, or made another cluster.
func (h *history) name() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return fmt.Sprintf("%x-%x", h.cluster, h.seen.Generation)
}

// ruled notes the cluster, and the term of its leader, of an answer of etcd. A new leader extends
// all leases, also of brokers that are gone, so what behind waits for begins anew.
func (h *history) ruled(by *etcdserverpb.ResponseHeader) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.cluster = by.GetClusterId()
	if term := by.GetRaftTerm(); term != h.term {
		h.term, h.since = term, time.Time{}
	}
}

// resolve checks, and after a restore raises the generation, unless another broker has. It returns
// the generation of etcd, and whether etcd was restored.
func (h *history) resolve(ctx context.Context) (generation int64, restored bool, err error) {
	h.resolving.Lock()
	defer h.resolving.Unlock()
	generation, err = h.check(ctx)
	lost, restored := errors.AsType[*RestoredError](err)
	if !restored {
		if err == nil {
			h.advance(generation)
		}
		return generation, false, err
	}
	known := h.known().Generation
	raise := generation <= known && h.store != nil
	if raise {
		if known == 0 { // in a later generation, brokers of earlier versions are no members (G2)
			if err := h.behind(ctx); err != nil {
				return generation, true, fmt.Errorf("%w; %w", lost, err)
			}
		}
		revision, err := h.raise(ctx, generation, known+1)
		if err != nil {
			return generation, true, fmt.Errorf("%w; %w", lost, err)
		}
		h.c.log.Error("etcd was restored from a backup: the generation is raised, all brokers register again, and each shard gets a leader when all of its replicas have said how far their copies go",
			"generation", known+1, "revision", revision, "why", lost.Why)
		generation = known + 1
	} else {
		h.c.log.Warn("etcd was restored from a backup", "generation", generation, "before", known, "why", lost.Why)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.restores++
	h.since = time.Time{}
	h.seen.Revision, h.seen.Marks = 0, nil
	h.enter(generation)
	h.save()
	return generation, true, nil
}

// raise replaces the generation. The answer of an earlier attempt may have been lost: then the next
// resolve finds the generation above the one that is known.
func (h *history) raise(ctx context.Context, from, to int64) (revision int64, err error) {
	if to > maxGeneration {
		return 0, fmt.Errorf("raise the generation of etcd: %d is the last one (make a new Broker)", int64(maxGeneration))
	}
	lease, err := h.c.grant(ctx)
	if err != nil {
		return 0, fmt.Errorf("raise the generation of etcd to %d: %w", to, err)
	}
	done, err := h.c.transact(ctx, []clientv3.Cmp{h.c.in(from)},
		[]clientv3.Op{clientv3.OpPut(h.c.generationKey(), encodeGeneration(to)), h.c.settling(to, lease)})
	switch {
	case err != nil:
		return 0, fmt.Errorf("raise the generation of etcd to %d: %w", to, err)
	case !done.Succeeded:
		return 0, fmt.Errorf("raise the generation of etcd to %d: another broker has raised it (look again)", to)
	}
	return done.Header.GetRevision(), nil
}

// behind returns an error if registered brokers don't know generations. If they stay, it forgets
// what was seen, so that this broker goes on in the same generation, which is 0.
func (h *history) behind(ctx context.Context) error {
	var names []string
	if _, err := h.c.pages(ctx, h.c.brokersPrefix(), func(kv *mvccpb.KeyValue) {
		b, err := decodeBroker(h.c.brokerID(kv.GetKey()), kv.GetCreateRevision(), kv.GetValue())
		if err == nil && !b.Features.Has(FeatureGenerations) {
			names = append(names, b.Name)
		}
	}); err != nil {
		return err
	}
	if len(names) == 0 {
		return nil
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.since.IsZero() {
		h.since = time.Now()
	}
	if time.Since(h.since) > featureWait {
		// What is lost by that was lost before there were generations.
		h.c.log.Error("etcd was restored from a backup while brokers of an earlier version are there: what was acknowledged since the backup may be lost", "brokers", strings.Join(names, ", "))
		h.seen.Revision, h.seen.Marks, h.since = 0, nil, time.Time{}
		h.restores++
		return errors.New("going on in the same generation")
	}
	return fmt.Errorf("brokers of an earlier version are registered: %s (finish the update)", strings.Join(names, ", "))
}
