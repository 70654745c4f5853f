package world

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

const (
	// worldsEnough bounds the worlds in which a mutation must be found.
	worldsEnough = 1000
	// outOfMemory is the Go runtime's message when a world exceeds its bound (boundWorld): for a
	// broken history, porcupine may search more orders than fit into memory. Another world finds
	// the same fault with less.
	outOfMemory = "fatal error: out of memory"
	// judgeTime bounds the search for one mutation.
	judgeTime = 10 * time.Minute
)

// TestMutationsNameTheirPlaces: the product contains the text that each mutation replaces. This
// takes no build.
func TestMutationsNameTheirPlaces(t *testing.T) {
	for _, m := range mutations() {
		for _, e := range m.Edits {
			source, err := os.ReadFile(filepath.Join(root(t), e.file))
			if err != nil {
				t.Fatal(err)
			}
			if n := bytes.Count(source, []byte(e.old)); n != 1 {
				t.Errorf("%s: %s has %q in %d places, want 1: change the mutation, too", m.Name, e.file, e.old, n)
			}
		}
	}
}

// TestTheJudgeFindsAMissingRule: without one rule of the product, a few worlds with the faults that
// the rule is for break a promise. Each mutation takes a build of its own, so make test-world-judge
// runs it.
func TestTheJudgeFindsAMissingRule(t *testing.T) {
	only := os.Getenv("CARILLON_JUDGE")
	if only == "" {
		t.Skip("it takes minutes: make test-world-judge")
	}
	for _, m := range mutations() {
		if only != "all" && !strings.Contains(m.Name, only) {
			continue
		}
		t.Run(m.Name, func(t *testing.T) {
			p, err := Build(t.Context(), root(t), m)
			if err != nil {
				t.Fatal(err)
			}
			seed, broken, took := p.find(t, m)
			if broken == "" {
				t.Fatalf("not found in %d worlds", seed)
			}
			if r, err := built(t).Run(t.Context(), m.request(seed)); err != nil || r.Broken != "" {
				t.Errorf("world %d breaks a promise with the rule, too: %v %s", seed, err, r.Broken)
			}
			t.Logf("world %d, after %v: %s", seed, took.Round(time.Millisecond), broken[:min(len(broken), 300)])
		})
	}
}

// request returns the request for the world of a seed with the mutation's options.
func (m *Mutation) request(seed uint64) request {
	return request{Seed: seed, Faults: m.Faults, Found: m.Found, Kinds: m.Kinds, Readers: m.Readers}
}

// find runs worlds until one breaks a promise as the mutation expects. If none does, it returns the
// number of worlds that ran.
func (p *Program) find(t *testing.T, m Mutation) (seed uint64, broken string, took time.Duration) {
	began := time.Now()
	ctx, stop := context.WithTimeout(t.Context(), judgeTime)
	defer stop()
	var next atomic.Uint64
	var mu sync.Mutex
	var wg sync.WaitGroup
	for range parallel() {
		wg.Go(func() {
			for ctx.Err() == nil {
				n := next.Add(1)
				if n > worldsEnough {
					return
				}
				r, err := p.Run(ctx, m.request(n))
				if ctx.Err() != nil {
					return
				}
				if err != nil && strings.Contains(err.Error(), outOfMemory) {
					t.Logf("world %d has no verdict, for want of memory", n)
					continue
				}
				if err != nil {
					t.Error(err)
					return
				}
				mu.Lock()
				if r.Broken != "" && strings.Contains(r.Broken, m.Says) && broken == "" {
					seed, broken, took = n, r.Broken, time.Since(began)
					stop()
				}
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	if broken == "" {
		seed = next.Load()
	}
	return seed, broken, took
}
