package bench

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// kvRun carries one run of the kv scenario through its phases: it makes a bucket, puts every key
// once, measures puts, gets, the puts of one writer and watchers, and deletes the bucket.
type kvRun struct {
	target   Target
	workload Workload
	plan     kvPlan
	size     int
	limits   Limits
	status   func(phase string)
	id       uint64
	keys     *keyAccount
	buckets  []jetstream.KeyValue // one for each connection

	mu    sync.Mutex
	found Deliveries
	stale int64
	first error // the first wrong value
}

// measureKV never returns an error: what went wrong is in the Run, beside what was measured.
func measureKV(ctx context.Context, t Target, w Workload, limits Limits, status func(string)) Run {
	r := &kvRun{target: t, workload: w, plan: *w.kv, size: w.Parameters.PayloadBytes, limits: limits, status: status, id: rand.Uint64()}
	r.keys = newKeyAccount(r.id, r.size, r.plan.keys)
	run := Run{Started: time.Now().UTC().Truncate(time.Millisecond), KV: &KVFigures{}}
	err := r.play(ctx, &run)
	run.Deliveries, run.KV.Stale = r.found, r.stale
	if r.first != nil {
		err = errors.Join(fmt.Errorf("%s: %w", t.Name, r.first), err)
	}
	run.Latency, run.Partial = run.KV.Put.Latency, ctx.Err() != nil
	run.ClientCPU, run.ServerCPU = run.KV.Put.Client, run.KV.Put.Server
	if err != nil && !errors.Is(err, context.Canceled) {
		run.Error = err.Error()
	}
	return run
}

func (r *kvRun) play(ctx context.Context, run *Run) (err error) {
	start := now()
	r.status("making a bucket")
	bucket := streamName(r.id)
	s, err := openStreamBy(ctx, r.target, r.id, r.plan.replicas, r.limits, "KV_"+bucket, func(ctx context.Context, js jetstream.JetStream) (jetstream.Stream, error) {
		_, err := js.CreateOrUpdateKeyValue(ctx, jetstream.KeyValueConfig{
			Bucket: bucket, History: 1, Storage: jetstream.FileStorage, Replicas: r.plan.replicas,
			Description: "made by carillon bench; delete it if no benchmark is running",
		})
		if err != nil {
			return nil, err
		}
		return js.Stream(ctx, "KV_"+bucket)
	})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.remove(context.WithoutCancel(ctx))) }()
	conns, err := r.connect(ctx, bucket)
	defer func() {
		for _, nc := range conns {
			nc.Close()
		}
	}()
	if err != nil {
		return err
	}
	run.ConnectNS = now() - start
	if err := r.fill(ctx); err != nil {
		return err
	}
	f := run.KV
	var rss int64
	if f.Put, rss, err = r.phase(ctx, fmt.Sprintf("put by %d writers", r.plan.writers), r.plan.writers, r.putter(r.plan.writers)); err != nil {
		return err
	}
	run.ServerRSS, run.Published = rss, int(f.Put.Operations)
	if err := s.awaitWhole(ctx); err != nil {
		return err
	}
	if f.Get, _, err = r.phase(ctx, fmt.Sprintf("get by %d readers", r.plan.readers), r.plan.readers, r.get); err != nil {
		return err
	}
	if f.One, _, err = r.phase(ctx, "put by 1 writer", 1, r.putter(1)); err != nil {
		return err
	}
	if err := s.awaitWhole(ctx); err != nil {
		return err
	}
	f.Watch, err = r.watch(ctx)
	return err
}

// connect opens one connection to each address, which clients share in turn.
func (r *kvRun) connect(ctx context.Context, bucket string) (conns []*nats.Conn, err error) {
	ctx, cancel := context.WithTimeout(ctx, r.limits.Connect)
	defer cancel()
	for _, a := range r.target.Addresses {
		nc, err := a.connect(ctx, "carillon-bench", nil)
		if err != nil {
			return conns, fmt.Errorf("connect to %s: %w", r.target.Name, err)
		}
		conns = append(conns, nc)
		js, err := jetstream.New(nc)
		if err != nil {
			return conns, err
		}
		var kv jetstream.KeyValue
		err = untilReady(ctx, func(ctx context.Context) (err error) {
			kv, err = js.KeyValue(ctx, bucket)
			return err
		})
		if err != nil {
			return conns, fmt.Errorf("open the bucket %s on %s: %w", bucket, r.target.Name, err)
		}
		r.buckets = append(r.buckets, kv)
	}
	return conns, nil
}

func (r *kvRun) bucket(client int) jetstream.KeyValue { return r.buckets[client%len(r.buckets)] }

// fill puts every key once. The first put is repeated while the bucket finds its feet.
func (r *kvRun) fill(ctx context.Context) error {
	r.status(fmt.Sprintf("putting %d keys", r.plan.keys))
	ready, cancel := context.WithTimeout(ctx, r.limits.Connect)
	defer cancel()
	payload := make([]byte, r.size)
	for {
		err := r.put(ready, r.bucket(0), 0, payload)
		if err == nil {
			break
		}
		if !errors.Is(err, nats.ErrNoResponders) && !errors.Is(err, jetstream.ErrNoStreamResponse) || sleep(ready, 10*pollEvery) != nil {
			return err
		}
	}
	writers := min(r.plan.writers, connectAtOnce)
	return inParallel(ctx, writers, func(ctx context.Context, w int) error {
		payload := make([]byte, r.size)
		for key := w; key < r.plan.keys; key += writers {
			if key == 0 {
				continue
			}
			if err := r.put(ctx, r.bucket(w), key, payload); err != nil {
				return err
			}
		}
		return nil
	})
}

func (r *kvRun) put(ctx context.Context, kv jetstream.KeyValue, key int, payload []byte) error {
	r.keys.value(key, payload, now())
	if _, err := kv.Put(ctx, keyName(key), payload); err != nil {
		return fmt.Errorf("put %s on %s: %w", keyName(key), r.target.Name, err)
	}
	r.keys.done(key)
	return nil
}

// A kvStep does the n-th operation of a client.
type kvStep func(ctx context.Context, client, n int, payload []byte) error

// putter returns a step for so many writers, which share out the keys.
func (r *kvRun) putter(writers int) kvStep {
	return func(ctx context.Context, client, n int, payload []byte) error {
		return r.put(ctx, r.bucket(client), ownKey(r.plan.keys, writers, client, n), payload)
	}
}

// ownKey is the n-th key of a writer, which has every writers-th key and goes through them in turn.
func ownKey(keys, writers, writer, n int) int {
	own := (keys - writer + writers - 1) / writers
	return writer + n%own*writers
}

// get reads a key and compares it. Readers go through the keys from different ones on.
func (r *kvRun) get(ctx context.Context, client, n int, _ []byte) error {
	key := (client*r.plan.keys/r.plan.readers + n) % r.plan.keys
	entry, err := r.bucket(client).Get(ctx, keyName(key))
	if err != nil {
		return fmt.Errorf("get %s on %s: %w", keyName(key), r.target.Name, err)
	}
	stale, wrong := r.keys.compare(key, entry.Value())
	if wrong == nil {
		return nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if stale {
		r.stale++
		if r.plan.replicas > 1 {
			return nil // a replica that lags may answer
		}
	}
	r.found.Unexpected++
	r.first = cmp.Or(r.first, wrong)
	return nil
}

// phase has clients repeat a step, and counts what ends within the time that is measured.
func (r *kvRun) phase(ctx context.Context, what string, clients int, step kvStep) (p KVPhase, rss int64, err error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	r.status(what)
	from := now() + r.workload.Parameters.WarmupNS
	to := from + r.workload.Parameters.DurationNS
	var u usage
	stop := u.watch(ctx, from, r.target.PIDs)
	defer stop()
	all := newRecorder()
	over := newTimeline(r.workload.Parameters.DurationNS).begin(from)
	var mu sync.Mutex
	var wg sync.WaitGroup
	for client := range clients {
		wg.Go(func() {
			payload, own := make([]byte, r.size), newRecorder()
			for n := 0; ; n++ {
				began := now()
				if began >= to || ctx.Err() != nil {
					break
				}
				if err := step(ctx, client, n, payload); err != nil {
					cancel(err)
					break
				}
				if at := now(); at >= from && at < to {
					own.record(at - began)
					over.record(began, at-began)
				}
			}
			mu.Lock()
			all.merge(own)
			mu.Unlock()
		})
	}
	wg.Wait()
	u.finish()
	p.Operations, p.Latency, p.OverTime = all.count, all.summary(), over.points()
	p.HDR = all.hdr()
	if measured := min(to, now()) - from; measured > 0 {
		p.Rate = float64(all.count) / (float64(measured) / 1e9)
	}
	p.Client, p.Server, rss = u.of(all.count)
	if err := context.Cause(ctx); err != nil {
		return p, rss, err
	}
	if all.count == 0 {
		return p, rss, fmt.Errorf("%s: no %s within %v", r.target.Name, what, time.Duration(r.workload.Parameters.DurationNS))
	}
	return p, rss, nil
}

// watch has watchers receive all keys, one after another, and compares the values.
func (r *kvRun) watch(ctx context.Context) (p KVPhase, err error) {
	r.status("watching all keys")
	times := newRecorder()
	var u usage
	began := now()
	stop := u.watch(ctx, began, r.target.PIDs)
	defer stop()
	for range watches {
		took, err := r.watchOnce(ctx)
		if err != nil {
			return p, err
		}
		times.record(took)
	}
	u.finish()
	p.Operations, p.Latency = int64(watches*r.plan.keys), times.summary()
	p.Rate = float64(r.plan.keys) / (p.Latency.Mean / 1e9)
	p.Client, p.Server, _ = u.of(p.Operations)
	return p, nil
}

// watchOnce returns the time until the initial values of all keys came.
func (r *kvRun) watchOnce(ctx context.Context) (took int64, err error) {
	began := now()
	watcher, err := r.bucket(0).WatchAll(ctx)
	if err != nil {
		return 0, fmt.Errorf("watch the keys on %s: %w", r.target.Name, err)
	}
	defer func() { err = errors.Join(err, watcher.Stop()) }()
	seen := account{bits: make([]uint64, wordsFor(r.plan.keys)), highest: -1}
	for {
		select {
		case entry, open := <-watcher.Updates():
			if !open {
				return 0, fmt.Errorf("%s ended the watch after %d of %d keys", r.target.Name, seen.distinct, r.plan.keys)
			}
			if entry == nil {
				took = now() - began
				r.settleWatch(&seen)
				return took, nil
			}
			r.watched(&seen, entry)
		case <-ctx.Done():
			return 0, context.Cause(ctx)
		case <-time.After(r.limits.Drain):
			return 0, fmt.Errorf("a watcher on %s received %d of %d keys, and then nothing for %v", r.target.Name, seen.distinct, r.plan.keys, r.limits.Drain)
		}
	}
}

func (r *kvRun) watched(seen *account, entry jetstream.KeyValueEntry) {
	key, ok := keyNumber(entry.Key(), r.plan.keys)
	if !ok {
		r.found.Unexpected++
		r.first = cmp.Or(r.first, fmt.Errorf("a watcher received the key %q, which was never put", entry.Key()))
		return
	}
	if seen.observe(uint32(key)) == verdictDuplicate {
		r.found.Duplicated++
		r.first = cmp.Or(r.first, fmt.Errorf("a watcher received %s twice", keyName(key)))
	}
	if _, wrong := r.keys.compare(key, entry.Value()); wrong != nil {
		r.found.Unexpected++
		r.first = cmp.Or(r.first, wrong)
	}
}

func (r *kvRun) settleWatch(seen *account) {
	r.found.Expected += int64(r.plan.keys)
	r.found.Received += int64(seen.distinct)
	if lost := r.plan.keys - seen.distinct; lost > 0 {
		r.found.Lost += int64(lost)
		r.first = cmp.Or(r.first, fmt.Errorf("a watcher received %d of %d keys", seen.distinct, r.plan.keys))
	}
}
