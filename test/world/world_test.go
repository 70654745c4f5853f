package world

import (
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/cryptotest"
	"testing/synctest"
	"time"
)

// TestOneWorld runs one world in a process of the program (replay.go).
func TestOneWorld(t *testing.T) {
	asked := os.Getenv(worldVariable)
	if asked == "" {
		t.Skip("it is run by the other tests, in a program of its own")
	}
	if err := boundWorld(); err != nil {
		t.Fatal(err)
	}
	var r request
	if err := json.Unmarshal([]byte(asked), &r); err != nil {
		t.Fatal(err)
	}
	o := Options{Faults: r.Faults, Found: r.Found, Kinds: r.Kinds, Readers: r.Readers}
	if r.Trace != "" {
		f, err := os.Create(r.Trace)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		o.Trace = f
	}
	defer runtime.KeepAlive(allocated(r.Before))
	cryptotest.SetGlobalRandom(t, r.Seed)
	synctest.Test(t, func(t *testing.T) {
		for range r.Seed % 10_000 { // so that the runtime's choices also differ by seed
			rand.Uint64()
		}
		result := Run(r.Seed, o)
		line, err := json.Marshal(result)
		if err != nil {
			t.Fatal(err)
		}
		fmt.Printf("%s%s\n", resultMark, line)
		if result.Broken != "" {
			os.Exit(0) // its goroutines may still run
		}
	})
}

// allocated allocates n objects of each size up to 2 KiB, with and without pointers, so that later
// ones have other addresses.
func allocated(n int) (all []any) {
	for range n {
		for size := 1; size <= 256; size++ {
			all = append(all, make([]uint64, size), make([]*byte, size))
		}
	}
	return all
}

func root(t testing.TB) string {
	t.Helper()
	path, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	return path
}

var program = sync.OnceValues(func() (*Program, error) {
	path, err := filepath.Abs("../..")
	if err != nil {
		return nil, err
	}
	return Build(context.Background(), path)
})

func built(t *testing.T) *Program {
	t.Helper()
	p, err := program()
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// seeds returns the seeds that a test runs: CARILLON_SEED is one, CARILLON_SEEDS=a-b a range, and
// CARILLON_CHAOS=10m all from a random one on until the time is over. By default these are the
// first fifty.
func seeds(t *testing.T) iter.Seq[uint64] {
	t.Helper()
	number := func(text string) uint64 {
		n, err := strconv.ParseUint(text, 10, 64)
		if err != nil {
			t.Fatalf("%q is not the number of a seed: %v", text, err)
		}
		return n
	}
	from, to := uint64(1), uint64(defaultSeeds)
	var end time.Time
	if text := os.Getenv("CARILLON_SEED"); text != "" {
		from, to = number(text), number(text)
	} else if a, b, ok := strings.Cut(os.Getenv("CARILLON_SEEDS"), "-"); ok {
		from, to = number(a), number(b)
	} else if text := os.Getenv("CARILLON_CHAOS"); text != "" {
		d, err := time.ParseDuration(text)
		if err != nil {
			t.Fatalf("CARILLON_CHAOS=%q (write for example 10m): %v", text, err)
		}
		from, to, end = rand.Uint64N(1<<48), 1<<63, time.Now().Add(d)
		t.Logf("seeds from %d on, for %v", from, d)
	}
	return func(yield func(uint64) bool) {
		for seed := from; seed <= to && (end.IsZero() || time.Now().Before(end)); seed++ {
			if !yield(seed) {
				return
			}
		}
	}
}

// list splits a variable's value at commas.
func list(variable string) (all []string) {
	if text := os.Getenv(variable); text != "" {
		all = strings.Split(text, ",")
	}
	return all
}

// defaultSeeds take less than a minute on two cores.
const defaultSeeds = 50

// TestWorlds runs worlds of the unmodified product with every fault, except the classes of
// knownFaults.
func TestWorlds(t *testing.T) {
	p := built(t)
	var found []Class
	for _, c := range list("CARILLON_FOUND") {
		found = append(found, Class(c))
	}
	faults, kinds, readers := list("CARILLON_FAULTS"), list("CARILLON_KINDS"), list("CARILLON_READERS")
	next := make(chan uint64)
	var wg sync.WaitGroup
	var mu sync.Mutex
	var sum Result
	began := time.Now()
	for range parallel() {
		wg.Go(func() {
			for seed := range next {
				r := request{Seed: seed, Found: found, Faults: faults, Kinds: kinds, Readers: readers, Trace: os.Getenv("CARILLON_TRACE")}
				result, err := p.Run(t.Context(), r)
				mu.Lock()
				switch {
				case err != nil:
					t.Error(err)
				case result.Broken != "":
					t.Errorf("seed %d: %s\nfaults: %v\n%s", seed, result.Broken, result.Struck, result.Logs)
				}
				t.Logf("seed %d: %s %v %d steps, %d acks, %d records, %d epochs, %+v, %v, converged in %v", seed, result.Hash, result.Kinds, result.Steps, result.Acks, result.Records, result.Epochs, result.Did, result.Virtual, result.Converged)
				sum.Steps += result.Steps
				sum.Acks += result.Acks
				sum.Virtual += result.Virtual
				mu.Unlock()
			}
		})
	}
	worlds := 0
	for seed := range seeds(t) {
		next <- seed
		worlds++
	}
	close(next)
	wg.Wait()
	t.Logf("%d worlds: %v of their time, %d steps, %d acks, in %v", worlds, sum.Virtual, sum.Steps, sum.Acks, time.Since(began))
}

// TestAnEmptyTopicThatWaitsIsDeleted: an empty Topic has lost all of its logs, and etcd is
// restored. The Topic waits, as docs/architecture.md says, until it is deleted by hand. Then all
// shards are whole.
func TestAnEmptyTopicThatWaitsIsDeleted(t *testing.T) {
	p := built(t)
	r, err := p.Run(t.Context(), request{Seed: 1, Faults: []string{"an empty Topic loses its logs beside a restore of etcd"}})
	if err != nil {
		t.Fatal(err)
	}
	if r.Broken != "" || r.Did.Emptied != 1 {
		t.Errorf("%d Topics were deleted, and it is broken: %q", r.Did.Emptied, r.Broken)
	}
}

// TestKindsThatOtherWorldsLack: acks remove messages of work queues and of Topics that keep what a
// Subscription needs, clients delete some, messages roll up older ones, come in atomic and in fast
// batches, add to counters, are copied from other Topics, or mirrored, expire, are scheduled, and
// are read by Views.
// CARILLON_KINDS runs other seeds so; other worlds have no such Topics.
func TestKindsThatOtherWorldsLack(t *testing.T) {
	p := built(t)
	for kind, happened := range map[string]func(Did) int{
		"queue":        func(did Did) int { return did.Taken },
		"deletions":    func(did Did) int { return did.Taken },
		"interest":     func(did Did) int { return did.Taken },
		"rollups":      func(did Did) int { return did.Taken },
		"batches":      func(did Did) int { return did.Batches },
		"fast batches": func(did Did) int { return did.Fasts },
		"counters":     func(did Did) int { return did.Totals },
		"schedules":    func(did Did) int { return did.Fired },
		"ttls":         func(did Did) int { return min(did.Expired, did.Marked) },
		"mirrors":      func(did Did) int { return did.Mirrored },
		"sources":      func(did Did) int { return did.Copies },
		"views":        func(did Did) int { return min(did.Results, did.Alerts) },
	} {
		count, readers := 0, []string{"subscription"}
		if slices.Contains([]string{"sources", "mirrors", "fast batches", "ttls", "schedules", "views"}, kind) { // they have more to do than others
			readers = nil
		}
		seeds := uint64(2)
		if slices.Contains([]string{"queue", "deletions", "schedules"}, kind) {
			seeds = 4
		}
		for seed := range seeds {
			r, err := p.Run(t.Context(), request{Seed: seed + 1, Kinds: []string{kind}, Readers: readers})
			if err != nil {
				t.Fatal(err)
			}
			if r.Broken != "" {
				t.Errorf("%s, seed %d: %s\nfaults: %v\n%s", kind, seed+1, r.Broken, r.Struck, r.Logs)
			}
			count += happened(r.Did)
		}
		if count == 0 {
			t.Errorf("%s: nothing of that happened", kind)
		}
	}
}

// TestVolumesAreRolledBackByAnHour: in each of these worlds a volume is an hour old when its broker
// starts. CARILLON_READERS=hour runs other seeds so; of other worlds one in a hundred has such an
// hour.
func TestVolumesAreRolledBackByAnHour(t *testing.T) {
	p := built(t)
	results := make([]Result, 3)
	var wg sync.WaitGroup
	limit := make(chan struct{}, parallel())
	for i := range results {
		wg.Go(func() {
			limit <- struct{}{}
			defer func() { <-limit }()
			var err error
			if results[i], err = p.Run(t.Context(), request{Seed: hourSeed + uint64(i), Readers: []string{"hour"}}); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	ids := 0
	for i, r := range results {
		if r.Broken != "" || r.Did.RolledBack != 1 {
			t.Errorf("seed %d: %d volumes were rolled back, and it is broken: %q\nfaults: %v\n%s", hourSeed+uint64(i), r.Did.RolledBack, r.Broken, r.Struck, r.Logs)
		}
		ids += r.Did.OldIDs
	}
	if ids == 0 {
		t.Error("no message id of more than an hour ago was a duplicate")
	}
}

// hourSeed is the first of a range of seeds without clock jumps: worlds with clock jumps have no
// such hour.
const hourSeed = 31

// TestASeedReplays: all events of a world and their order follow from its seed. They don't depend
// on addresses, which differ between processes: the order of a map with pointers as keys does.
func TestASeedReplays(t *testing.T) {
	p := built(t)
	for _, r := range []request{{Seed: 1}, {Seed: 2, Before: 2}, {Seed: 3, Before: 4}, {Seed: 4, Kinds: []string{"views"}}} {
		first, err := p.Run(t.Context(), r)
		if err != nil {
			t.Fatal(err)
		}
		r.Before++
		second, err := p.Run(t.Context(), r)
		if err != nil {
			t.Fatal(err)
		}
		if first.Hash != second.Hash {
			t.Errorf("seed %d %v: %s after %d steps, and %s after %d", r.Seed, r.Kinds, first.Hash, first.Steps, second.Hash, second.Steps)
		}
	}
}
