package world

import (
	"context"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"
)

// worldsEnough is how many worlds it may take until a mutation is found.
const worldsEnough = 400

// TestTheJudgeFindsAMissingRule: without a rule of the product, a few worlds with the faults that it is against break a promise. Each
// mutation takes a build of its own, so it is run by make test-world-judge.
func TestTheJudgeFindsAMissingRule(t *testing.T) {
	only := os.Getenv("CARILLON_JUDGE")
	if only == "" {
		t.Skip("it takes minutes: make test-world-judge")
	}
	for _, m := range mutations {
		if only != "all" && !strings.Contains(m.Name, only) {
			continue
		}
		t.Run(m.Name, func(t *testing.T) {
			p, err := Build(t.Context(), root(t), m)
			if err != nil {
				t.Fatal(err)
			}
			began := time.Now()
			ctx, stop := context.WithTimeout(t.Context(), 10*time.Minute)
			defer stop()
			for seed := range uint64(worldsEnough) {
				r, err := p.Run(ctx, request{Seed: seed + 1, Faults: m.Faults, Found: m.Found, Kinds: m.Kinds, Readers: m.Readers})
				if err != nil {
					t.Fatal(err)
				}
				if r.Broken != "" {
					t.Logf("world %d, after %v: %s", seed+1, time.Since(began).Round(time.Millisecond), r.Broken[:min(len(r.Broken), 300)])
					return
				}
			}
			t.Errorf("not found in %s worlds", strconv.Itoa(worldsEnough))
		})
	}
}
