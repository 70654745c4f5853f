//go:build linux

package devcluster

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/carillon-mq/carillon/internal/testutil"
	"github.com/carillon-mq/carillon/test/chaos"
)

// TestKeysAreSwappedAndWatchedWhileTheirLeaderDies: clients of all brokers compare and swap the
// values of a few keys and watch them, while the leader of the bucket is killed again and again.
// What they were told is linearizable. Each watcher sees the values of a key in their order, and in
// the end the last one.
func TestKeysAreSwappedAndWatchedWhileTheirLeaderDies(t *testing.T) {
	t.Parallel()
	const keys, clients = 3, 6
	c := startCluster(t)
	ctx, cancel := context.WithTimeout(t.Context(), 2*patience)
	defer cancel()
	_, err := c.connect().CreateKeyValue(ctx, jetstream.KeyValueConfig{Bucket: "swapped", History: 1, Replicas: 3})
	testutil.Must(t, err)
	h := &swapped{began: time.Now(), revisions: map[string]uint64{}}

	swapping, stop := context.WithCancel(ctx)
	defer stop()
	var swappers sync.WaitGroup
	defer swappers.Wait()
	var watches []*watched
	for client := range clients {
		kv, err := c.connectTo(client%len(c.urls)).KeyValue(ctx, "swapped")
		testutil.Must(t, err)
		watcher, err := kv.WatchAll(ctx)
		testutil.Must(t, err)
		w := &watched{last: map[string]uint64{}}
		watches = append(watches, w)
		go w.follow(watcher, h)
		swappers.Go(func() {
			for i := 0; swapping.Err() == nil; i++ {
				h.swap(ctx, kv, client, fmt.Sprint("key-", i%keys), fmt.Sprint(client, ".", i))
			}
		})
	}
	js := c.connect()
	c.killLeaders(js, "KV_swapped", "keys are swapped", 100, func() int { return int(h.done.Load()) })
	stop()
	swappers.Wait()

	kv, err := js.KeyValue(ctx, "swapped")
	testutil.Must(t, err)
	final := map[string]uint64{}
	for i := range keys {
		entry, err := kv.Get(ctx, fmt.Sprint("key-", i))
		testutil.Must(t, err)
		h.saw(entry)
		final[entry.Key()] = entry.Revision()
	}
	for i, w := range watches {
		testutil.Eventually(t, fmt.Sprintf("watcher %d sees the last values", i), func() error { return w.ends(final) })
	}
	if err := h.judge(); err != nil {
		t.Error(err)
	}
	t.Logf("%d keys were swapped, %d attempts in all", h.done.Load(), len(h.swaps))
}

// swapped is what all clients of the bucket were told.
type swapped struct {
	began time.Time
	done  atomic.Int64

	mu        sync.Mutex
	swaps     []chaos.Swap
	revisions map[string]uint64 // of each value that was seen
	faults    []error
}

// swap reads a key and replaces its value, if that is still the one that was read.
func (h *swapped) swap(ctx context.Context, kv jetstream.KeyValue, client int, key, value string) {
	within, cancel := context.WithTimeout(ctx, 2*time.Second) // an answer is lost with its broker
	defer cancel()
	s := chaos.Swap{Client: client, Subject: key, Description: value}
	switch entry, err := kv.Get(within, key); {
	case err == nil:
		h.saw(entry)
		s.Expected = entry.Revision()
	case !errors.Is(err, jetstream.ErrKeyNotFound):
		return
	}
	s.Call = time.Since(h.began)
	revision, err := kv.Update(within, key, []byte(value), s.Expected)
	s.Back = time.Since(h.began)
	var refused *jetstream.APIError
	switch {
	case err == nil:
		s.Outcome, s.Stored = chaos.Done, revision
		h.done.Add(1)
	case errors.As(err, &refused) && refused.ErrorCode == jetstream.JSErrCodeStreamWrongLastSequence:
		s.Outcome = chaos.Refused
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.swaps = append(h.swaps, s)
}

// saw notes the revision of a value. Each value is put once, so it has one revision only.
func (h *swapped) saw(entry jetstream.KeyValueEntry) {
	h.mu.Lock()
	defer h.mu.Unlock()
	value := string(entry.Value())
	if other, ok := h.revisions[value]; ok && other != entry.Revision() {
		h.faults = append(h.faults, fmt.Errorf("value %s of %s has the revisions %d and %d", value, entry.Key(), other, entry.Revision()))
	}
	h.revisions[value] = entry.Revision()
}

// judge reports what can't be true of all that clients were told. A swap without an answer took
// place if its value was seen. If nobody saw it, it was the last one of no key, and nobody could
// have replaced it.
func (h *swapped) judge() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	for i := range h.swaps {
		s := &h.swaps[i]
		revision, seen := h.revisions[s.Description]
		switch {
		case seen && s.Outcome == chaos.Refused:
			h.faults = append(h.faults, fmt.Errorf("value %s of %s was refused, and seen at %d", s.Description, s.Subject, revision))
		case seen && s.Outcome == chaos.Done && s.Stored != revision:
			h.faults = append(h.faults, fmt.Errorf("value %s of %s was stored at %d, and seen at %d", s.Description, s.Subject, s.Stored, revision))
		case seen:
			s.Stored = revision
		}
	}
	return errors.Join(append(h.faults, chaos.Linearizable(h.swaps, patience))...)
}

// watched is what one watcher saw.
type watched struct {
	mu     sync.Mutex
	last   map[string]uint64 // the newest revision of each key
	faults []error
}

func (w *watched) follow(watcher jetstream.KeyWatcher, h *swapped) {
	for entry := range watcher.Updates() {
		if entry == nil {
			continue // it has seen all that was there when it began
		}
		h.saw(entry)
		w.mu.Lock()
		if last := w.last[entry.Key()]; last >= entry.Revision() {
			w.faults = append(w.faults, fmt.Errorf("%s was seen at %d after %d", entry.Key(), entry.Revision(), last))
		}
		w.last[entry.Key()] = entry.Revision()
		w.mu.Unlock()
	}
}

// ends returns an error until the watcher has seen the final revision of each key.
func (w *watched) ends(final map[string]uint64) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.faults) > 0 {
		return errors.Join(w.faults...)
	}
	for key, revision := range final {
		if w.last[key] != revision {
			return fmt.Errorf("%s was seen at %s, and is at %d", key, strconv.FormatUint(w.last[key], 10), revision)
		}
	}
	return nil
}
