package bench

import (
	"strings"
	"testing"
	"time"
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

// TestEachKeyHasOneWriter: the writers of a phase share out the keys, and each goes through its own.
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
