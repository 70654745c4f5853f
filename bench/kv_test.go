package bench

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

func TestKVPlans(t *testing.T) {
	good := KV{Keys: 100, Writers: []int{1, 64}, Readers: 64, Replicas: []int{1, 3}, PayloadBytes: 128, Duration: time.Second}
	made, err := good.Workloads()
	if err != nil || len(made) != 4 || made[3].kv.writers != 64 || made[3].kv.replicas != 3 || made[3].Parameters.Keys != 100 {
		t.Fatalf("%d plans, %v", len(made), err)
	}
	for want, change := range map[string]func(*KV){
		"number of keys is 0":        func(k *KV) { k.Keys = 0 },
		"number of keys is 1000001":  func(k *KV) { k.Keys = 1_000_001 },
		"each of them with keys":     func(k *KV) { k.Keys = 63 },
		"number of writers is 0":     func(k *KV) { k.Writers = []int{0} },
		"number of readers is 0":     func(k *KV) { k.Readers = 0 },
		"number of readers is 10001": func(k *KV) { k.Readers = 10_001 },
		"replicas is 0":              func(k *KV) { k.Replicas = []int{0} },
		"payload is 31":              func(k *KV) { k.PayloadBytes = 31 },
	} {
		bad := good
		change(&bad)
		if _, err := bad.Workloads(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v", want, err)
		}
	}
}

// TestEachKeyHasOneWriter: the writers of a phase share out the keys, and each goes through its
// own.
func TestEachKeyHasOneWriter(t *testing.T) {
	const keys, writers = 100, 7
	owner := map[int]int{}
	for client := range writers {
		for n := range 2 * keys {
			key := ownKey(keys, writers, client, n)
			if other, owned := owner[key]; owned && other != client || key < 0 || key >= keys {
				t.Fatalf("key %d is of writers %d and %d", key, other, client)
			}
			owner[key] = client
		}
	}
	if len(owner) != keys {
		t.Errorf("%d of %d keys have a writer", len(owner), keys)
	}
}

func TestAValueIsComparedWithTheLastOneOfItsKey(t *testing.T) {
	a := newKeyAccount(4711, 40, 10)
	value := func(key int) []byte {
		p := make([]byte, 40)
		a.value(key, p, now())
		return p
	}
	first := value(3)
	a.done(3)
	second := value(3)
	a.done(3)
	third, other := value(3), value(4)
	a.done(4)
	damaged := append([]byte(nil), second...)
	damaged[39]++
	if stale, err := a.compare(3, second); stale || err != nil {
		t.Errorf("the last value: %v, %v", stale, err)
	}
	for what, c := range map[string]struct {
		value []byte
		stale bool
		says  string
	}{
		"an earlier value":         {first, true, "key.3 has its value 1, and its last one is 2"},
		"one that was not put yet": {third, false, "only 2 were put"},
		"that of another key":      {other, false, "damaged, or that of another key"},
		"a damaged one":            {damaged, false, "damaged"},
		"one of another size":      {second[:39], false, "damaged"},
		"none":                     {nil, false, "damaged"},
	} {
		if stale, err := a.compare(3, c.value); stale != c.stale || err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v, %v", what, stale, err)
		}
	}
}

func TestNamesOfKeys(t *testing.T) {
	for name, want := range map[string]int{"key.0": 0, "key.9": 9, "key.10": -1, "key.-1": -1, "key.09": -1, "key.": -1, "else.1": -1, "": -1} {
		if n, ok := keyNumber(name, 10); ok != (want >= 0) || ok && n != want {
			t.Errorf("%q: %d, %v", name, n, ok)
		}
	}
}

func TestReportOfKV(t *testing.T) {
	made, err := KV{Keys: 10_000, Writers: []int{64}, Readers: 64, Replicas: []int{3}, PayloadBytes: 128, Warmup: time.Second, Duration: 3 * time.Second}.Workloads()
	if err != nil {
		t.Fatal(err)
	}
	r := sampleOf(t, made, func(run *Run, _ int, scale float64) {
		phase := func(rate float64) KVPhase {
			return KVPhase{
				Operations: int64(3 * rate), Rate: rate / scale, Latency: run.Latency,
				Client: CPU{Cores: 0.4, PerDelivery: 20_000}, Server: &CPU{Cores: 0.6, PerDelivery: 30_000 * scale},
			}
		}
		run.KV = &KVFigures{Put: phase(30_000), Get: phase(40_000), One: phase(2000), Watch: phase(200_000)}
		if scale >= 2 {
			run.KV.Stale = 1
		}
	})
	golden(t, "kv.txt", tableOf(t, r, false))
	if q := r.Results[0].Ratio.KV; q.Get.Rate < 1.99 || q.Get.Rate > 2.01 || q.Watch.ServerCPU > 0.51 || q.One.Latency.P99 != 0.5 || r.Results[0].Measured[1].KV.Stale != 3 {
		t.Errorf("%+v", q)
	}
}

// fakeBucket is a bucket in memory that can be told to answer wrongly.
type fakeBucket struct {
	jetstream.KeyValue // what a run does not call
	mu                 sync.Mutex
	values             map[string][]byte
	earlier            map[string][]byte
	get                func(b *fakeBucket, key string) []byte // without it, the last value
	watch              func([]fakeEntry) []fakeEntry
}

type fakeEntry struct {
	jetstream.KeyValueEntry
	key   string
	value []byte
}

func (e fakeEntry) Key() string   { return e.key }
func (e fakeEntry) Value() []byte { return e.value }

type fakeWatcher chan jetstream.KeyValueEntry

func (w fakeWatcher) Updates() <-chan jetstream.KeyValueEntry { return w }
func (w fakeWatcher) Stop() error                             { return nil }
func (w fakeWatcher) Error() <-chan error                     { return nil }

func (b *fakeBucket) Put(_ context.Context, key string, value []byte) (uint64, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.earlier[key] = b.values[key]
	b.values[key] = slices.Clone(value)
	return 1, nil
}

func (b *fakeBucket) Get(_ context.Context, key string) (jetstream.KeyValueEntry, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	value := b.values[key]
	if b.get != nil {
		value = b.get(b, key)
	}
	if value == nil {
		return nil, jetstream.ErrKeyNotFound
	}
	return fakeEntry{key: key, value: value}, nil
}

func (b *fakeBucket) WatchAll(context.Context, ...jetstream.WatchOpt) (jetstream.KeyWatcher, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	var entries []fakeEntry
	for key, value := range b.values {
		entries = append(entries, fakeEntry{key: key, value: value})
	}
	if b.watch != nil {
		entries = b.watch(entries)
	}
	w := make(fakeWatcher, len(entries)+1)
	for _, e := range entries {
		w <- e
	}
	w <- nil
	return w, nil
}

// TestEachWrongValueFailsTheRun: whatever is wrong with one key, a get or a watcher finds it.
func TestEachWrongValueFailsTheRun(t *testing.T) {
	t.Parallel()
	wrongFor3 := func(wrong func(b *fakeBucket) []byte) func(*fakeBucket, string) []byte {
		return func(b *fakeBucket, key string) []byte {
			if key == "key.3" {
				return wrong(b)
			}
			return b.values[key]
		}
	}
	earlier := wrongFor3(func(b *fakeBucket) []byte { return b.earlier["key.3"] })
	for _, c := range []struct {
		what     string
		replicas int
		get      func(*fakeBucket, string) []byte
		watch    func([]fakeEntry) []fakeEntry
		found    Deliveries // of watchers, besides 50 expected ones
		stale    bool
		says     string
	}{
		{what: "nothing", replicas: 1, found: Deliveries{Received: 50}},
		{what: "an earlier value", replicas: 1, get: earlier, found: Deliveries{Received: 50}, stale: true, says: "and its last one is"},
		{what: "an earlier value of a replica", replicas: 3, get: earlier, found: Deliveries{Received: 50}, stale: true},
		{what: "the value of another key", replicas: 3, get: wrongFor3(func(b *fakeBucket) []byte { return b.values["key.4"] }), found: Deliveries{Received: 50}, says: "or that of another key"},
		{what: "no value", replicas: 1, get: wrongFor3(func(*fakeBucket) []byte { return nil }), says: "get key.3 on fake: nats: key not found"},
		{what: "a key is missing", replicas: 1, watch: func(e []fakeEntry) []fakeEntry { return e[1:] }, found: Deliveries{Received: 45, Lost: 5}, says: "a watcher received 9 of 10 keys"},
		{what: "a key comes twice", replicas: 1, watch: func(e []fakeEntry) []fakeEntry { return append(e, e[0]) }, found: Deliveries{Received: 50, Duplicated: 5}, says: "twice"},
		{what: "a key that was never put", replicas: 1, watch: func(e []fakeEntry) []fakeEntry { return append(e, fakeEntry{key: "else"}) }, found: Deliveries{Received: 50, Unexpected: 5}, says: `the key "else"`},
		{what: "a damaged value", replicas: 3, watch: func(e []fakeEntry) []fakeEntry { e[0].value = nil; return e }, found: Deliveries{Received: 50, Unexpected: 5}, says: "damaged"},
	} {
		made, err := KV{Keys: 10, Writers: []int{3}, Readers: 2, Replicas: []int{c.replicas}, PayloadBytes: 40, Duration: time.Second}.Workloads()
		if err != nil {
			t.Fatal(err)
		}
		b := &fakeBucket{values: map[string][]byte{}, earlier: map[string][]byte{}, get: c.get, watch: c.watch}
		r := &kvRun{
			target: Target{Name: "fake"}, workload: made[0], plan: *made[0].kv, size: 40, limits: testLimits, status: quietly,
			id: 4711, keys: newKeyAccount(4711, 40, 10), buckets: []jetstream.KeyValue{b},
		}
		err = r.fill(t.Context())
		for _, step := range []struct {
			clients int
			do      kvStep
		}{{3, r.putter(3)}, {2, r.get}, {1, r.putter(1)}} {
			for n := range 20 * step.clients {
				if err == nil {
					err = step.do(t.Context(), n%step.clients, n/step.clients, make([]byte, 40))
				}
			}
		}
		if err == nil {
			_, err = r.watch(t.Context())
			got, want := r.found, c.found
			want.Expected = 50
			if c.get != nil && c.says != "" {
				got.Unexpected = 0 // every get of the key counts
			}
			if got != want {
				t.Errorf("%s: %+v", c.what, got)
			}
		}
		if err == nil {
			err = r.first
		}
		if (err == nil) != (c.says == "") || err != nil && !strings.Contains(fmt.Sprint(err), c.says) || (r.stale > 0) != c.stale {
			t.Errorf("%s: %v, %d stale", c.what, err, r.stale)
		}
	}
}
