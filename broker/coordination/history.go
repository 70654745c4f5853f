package coordination

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// Seen is what a broker saw of etcd last. If etcd does not show it any more, etcd was restored from a
// backup.
type Seen struct {
	Generation int64  `json:"generation,omitempty"`
	Revision   int64  `json:"revision"`
	Marks      []Mark `json:"marks,omitempty"` // the newest values, the oldest first
}

// Mark is a value that etcd held, and that its history has for good: a key as of its revision.
type Mark struct {
	Key      string `json:"key"`
	Revision int64  `json:"revision"`
	Created  int64  `json:"created"` // create revision
	Lease    int64  `json:"lease,omitempty"`
	Sum      uint64 `json:"sum"` // of the value
}

// SeenStore keeps a Seen over restarts of a broker. Its methods are not called concurrently.
type SeenStore interface {
	Load() (*Seen, error) // nil: there is none
	Save(Seen) error
}

const (
	// marksKept is the number of values that are compared. Two histories that part may write an equal
	// value at an equal revision, and hardly a row of them.
	marksKept = 4
	// savePause bounds how often what was seen is saved.
	savePause = 200 * time.Millisecond
	// featureWait is how long a broker that noticed a restore waits until all registered brokers know
	// generations. A restored etcd shows the brokers of the time of the backup until their leases end.
	featureWait = 15 * time.Second
)

// revisionLeap is an advance of the revision that only etcdutl makes: --bump-revision 1000000000, as
// etcd's manual advises, with --mark-compacted, after which no earlier value can be compared. Brokers
// write some revisions per second.
const revisionLeap = 100_000_000

// RestoredError reports that etcd does not have what this process saw in it before.
type RestoredError struct{ Why string }

func (e *RestoredError) Error() string {
	return "etcd was restored from a backup, or rolled back: " + e.Why
}

// history compares etcd with what was seen of it before, and raises the generation when it was
// restored. A linearizable read decides, of the revision and of the newest values at their own
// revisions: a restored etcd may have passed the revision by then, with other values.
//
// It can't notice a restore to a state that this process, and its volume, has not gone beyond.
type history struct {
	c     *Client
	store SeenStore // nil: it is forgotten with the process, and the generation is not raised

	mu       sync.Mutex // guards what follows
	loaded   bool
	seen     Seen
	changed  chan struct{} // closed when the generation changes
	dirty    chan struct{} // a token: there is something to save
	since    time.Time     // since when a restore is noticed that brokers of an earlier version hide
	restores uint64        // what was seen before the last one is void

	resolving sync.Mutex
}

func newHistory(c *Client, store SeenStore) *history {
	return &history{c: c, store: store, changed: make(chan struct{}), dirty: make(chan struct{}, 1)}
}

func markOf(kv *mvccpb.KeyValue) Mark {
	sum := fnv.New64a()
	_, _ = sum.Write(kv.GetValue()) // never fails
	return Mark{Key: string(kv.GetKey()), Revision: kv.GetModRevision(), Created: kv.GetCreateRevision(), Lease: kv.GetLease(), Sum: sum.Sum64()}
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

// saw notes a State that was read at that count of restores: its revision, its generation and its
// newest values.
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
	h.enter(generation)
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
		if generation, err = decodeGeneration(readResult(done, 0)); err != nil {
			return 0, err
		}
		return generation, seen.compare(marks, generation, done)
	}
}

// compare returns a *RestoredError if a read does not show what was seen.
func (seen *Seen) compare(marks []Mark, generation int64, done *clientv3.TxnResponse) error {
	if at := done.Header.GetRevision(); at < seen.Revision {
		return &RestoredError{fmt.Sprintf("it is at revision %d, and was at %d", at, seen.Revision)}
	}
	if at := done.Header.GetRevision(); seen.Revision > 0 && at-seen.Revision > revisionLeap {
		return &RestoredError{fmt.Sprintf("it is at revision %d, and was at %d", at, seen.Revision)}
	}
	if generation < seen.Generation {
		return &RestoredError{fmt.Sprintf("it is in generation %d, and was in %d", generation, seen.Generation)}
	}
	for i, m := range marks {
		if kv := readResult(done, i+1); kv == nil || markOf(kv) != m {
			return &RestoredError{fmt.Sprintf("its history lacks the value that %s had at revision %d", m.Key, m.Revision)}
		}
	}
	return nil
}

func (h *history) generation(ctx context.Context) (int64, error) {
	kv, err := h.c.get(ctx, h.c.generationKey())
	if err != nil {
		return 0, err
	}
	return decodeGeneration(kv)
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
		if err := h.behind(ctx, generation); err != nil {
			return generation, true, fmt.Errorf("%w; %w", lost, err)
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
	done, err := h.c.transact(ctx, []clientv3.Cmp{h.c.in(from)}, []clientv3.Op{clientv3.OpPut(h.c.generationKey(), encodeGeneration(to))})
	switch {
	case err != nil:
		return 0, fmt.Errorf("raise the generation of etcd to %d: %w", to, err)
	case !done.Succeeded:
		return 0, fmt.Errorf("raise the generation of etcd to %d: another broker has raised it (look again)", to)
	}
	return done.Header.GetRevision(), nil
}

// behind returns an error if registered brokers don't know generations. If they stay, it forgets what
// was seen, so that this broker goes on in the same generation.
func (h *history) behind(ctx context.Context, generation int64) error {
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
		h.enter(generation)
		return errors.New("going on in the same generation")
	}
	return fmt.Errorf("brokers of an earlier version are registered: %s (finish the update)", strings.Join(names, ", "))
}

// Restores returns how often this process found that etcd was restored from a backup.
func (c *Client) Restores() uint64 { return c.history.count() }

// seenFile is the file of a Seen on a broker's volume.
const seenFile = "etcd-seen.json"

// SeenFile keeps a Seen in a file of the directory.
func SeenFile(dir string) SeenStore { return seenDir(dir) }

type seenDir string

type seenValue struct {
	V int `json:"v"`
	Seen
}

const seenValueVersion = 1

func (d seenDir) Load() (*Seen, error) {
	path := filepath.Join(string(d), seenFile)
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var value seenValue
	if err := decodeValue(path, data, seenValueVersion, &value, &value.V); err != nil {
		return nil, err
	}
	return &value.Seen, nil
}

func (d seenDir) Save(seen Seen) error {
	data, err := json.Marshal(seenValue{seenValueVersion, seen})
	if err != nil {
		return err
	}
	return writeDurably(string(d), seenFile, append(data, '\n'))
}
