package simulation

import (
	"fmt"
	"iter"
	"math/rand/v2"
	"os"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// seeds says which worlds to run: CARILLON_SEED=n is one, with its trace; CARILLON_SEEDS=a-b are those; and
// CARILLON_CHAOS=10m are all from a random one on until the time is over. Without any of these it is the first fifty.
func seeds(t *testing.T) iter.Seq[uint64] {
	number := func(s string) uint64 {
		n, err := strconv.ParseUint(s, 10, 64)
		if err != nil {
			t.Fatalf("%q is not the number of a seed: %v", s, err)
		}
		return n
	}
	from, to := uint64(1), uint64(50)
	if only := os.Getenv("CARILLON_SEED"); only != "" {
		from, to = number(only), number(only)
	} else if some := os.Getenv("CARILLON_SEEDS"); some != "" {
		low, high, ok := strings.Cut(some, "-")
		if !ok {
			t.Fatalf("CARILLON_SEEDS=%q (write for example 1-1000)", some)
		}
		from, to = number(low), number(high)
	}
	var end time.Time
	if long := os.Getenv("CARILLON_CHAOS"); long != "" {
		d, err := time.ParseDuration(long)
		if err != nil {
			t.Fatalf("CARILLON_CHAOS=%q (write for example 10m): %v", long, err)
		}
		from, to, end = rand.Uint64N(1<<48), 1<<63, time.Now().Add(d)
		fmt.Printf("chaos: seeds from %d on, for %v\n", from, d)
	}
	return func(yield func(uint64) bool) {
		for seed := from; seed <= to && (end.IsZero() || time.Now().Before(end)); seed++ {
			if !yield(seed) {
				return
			}
		}
	}
}

// Whatever strikes brokers, their network, their disks and etcd: nothing that was promised is broken, and
// everything gets whole by itself.
func TestPromisesHoldUnderEveryFault(t *testing.T) {
	var o Options
	if os.Getenv("CARILLON_SEED") != "" {
		o.Trace = os.Stdout
	}
	var (
		began = time.Now()
		work  = make(chan uint64)
		mu    sync.Mutex
		all   Result
		count int
		wait  sync.WaitGroup
	)
	for range runtime.GOMAXPROCS(0) {
		wait.Go(func() {
			for seed := range work {
				r := Run(seed, o)
				mu.Lock()
				count++
				all.Events, all.Acks, all.Epochs, all.Virtual = all.Events+r.Events, all.Acks+r.Acks, all.Epochs+r.Epochs, all.Virtual+r.Virtual
				all.Mended = max(all.Mended, r.Mended)
				mu.Unlock()
				if r.Violation != nil {
					t.Errorf("seed %d: %v (CARILLON_SEED=%d go test ./test/simulation -v shows how)", seed, r.Violation, seed)
					fmt.Printf("seed %d: %v\n", seed, r.Violation)
				}
			}
		})
	}
	for seed := range seeds(t) {
		work <- seed
	}
	close(work)
	wait.Wait()
	t.Logf("%d worlds in %v: %v of their time, %d events, %d acks, %d epochs; at most %v to mend", count, time.Since(began).Round(time.Millisecond),
		all.Virtual.Round(time.Second), all.Events, all.Acks, all.Epochs, all.Mended)
	if count >= 50 && (all.Acks < 100*count || all.Epochs < int64(2*count)) {
		t.Errorf("%d acks and %d epochs in %d worlds: too little happens in them", all.Acks, all.Epochs, count)
	}
}

// A world is what its seed makes it, and nothing else.
func TestSeedRepeats(t *testing.T) {
	for seed := range uint64(10) {
		var first, second strings.Builder
		Run(seed, Options{Trace: &first})
		Run(seed, Options{Trace: &second})
		if first.String() != second.String() {
			a, b := strings.Split(first.String(), "\n"), strings.Split(second.String(), "\n")
			for i := range min(len(a), len(b)) {
				if a[i] != b[i] {
					t.Fatalf("seed %d went two ways:\n%s\n%s", seed, a[i], b[i])
				}
			}
			t.Fatalf("seed %d went two ways: %d and %d lines", seed, len(a), len(b))
		}
	}
}
