package viewing

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/carillon-mq/carillon/broker/view"
)

// askingInVain returns the owner of a view of two shards. Another broker leads those that has says,
// and its answers are no present values. times returns when it was asked, from now on.
func askingInVain(t *testing.T, has func(shard int) bool) (o *owner[*leader], times func() []time.Duration) {
	t.Helper()
	began := time.Now()
	var mu sync.Mutex
	var all []time.Duration
	var s *Service[*leader]
	s = New(Config[*leader]{Self: "0", Payload: 4 << 10, Memory: 1 << 20,
		Hub: asked{answer: func(p *piece) {
			mu.Lock()
			all = append(all, time.Since(began))
			mu.Unlock()
			tell(s, p.Number, 0)
		}},
		Shard: func(_ string, shard int) (*leader, bool, string) {
			if has(shard) {
				return nil, false, "1"
			}
			return nil, false, ""
		}})
	of := viewOf(view.Window{})
	v, err := view.Compile(of.Spec)
	if err != nil {
		t.Fatal(err)
	}
	o = newOwner(s, Place{Topic: "in", Name: "in", Shards: 2}, of, v)
	if _, err := o.begin(); err != nil {
		t.Fatal(err)
	}
	return o, func() []time.Duration {
		mu.Lock()
		defer mu.Unlock()
		return slices.Clone(all)
	}
}

// TestPresentValuesAreAskedForWithPauses: which grow, and end with the request. Who asks again at
// once gets the same error, and no shard is asked for that.
func TestPresentValuesAreAskedForWithPauses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o, times := askingInVain(t, func(int) bool { return true })
		ctx, cancel := context.WithTimeout(t.Context(), getPause+getPause/2)
		defer cancel()
		began := time.Now()
		if _, _, err := o.gotten(ctx); err == nil || time.Since(began) != getPause+getPause/2 {
			t.Fatalf("a request of %v ended after %v with %v", getPause+getPause/2, time.Since(began), err)
		}
		want := []time.Duration{0, 0, getPause, getPause} // of both shards
		_, _, first := o.gotten(t.Context())
		at, pause := getPause+getPause/2, getPause
		for range getTries {
			want = append(want, at, at)
			at, pause = at+pause, 2*pause
		}
		if got := times(); first == nil || !slices.Equal(got, want) {
			t.Errorf("the shards are asked at %v, want %v (%v)", got, want, first)
		}
		if _, _, again := o.gotten(t.Context()); again != first || len(times()) != len(want) {
			t.Errorf("asked again at once: %v after %v, and %d questions after %d", again, first, len(times()), len(want))
		}
		time.Sleep(getEvery)
		if _, _, err := o.gotten(t.Context()); err == nil || len(times()) != len(want)+2*getTries {
			t.Errorf("asked again later: %v, and %d questions after %d", err, len(times()), len(want))
		}
	})
}

// TestNoShardIsAskedForPresentValuesWhileOneHasNoLeader: its answer would be of no use. All are
// asked when that one has a leader.
func TestNoShardIsAskedForPresentValuesWhileOneHasNoLeader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		const elected = 2 * time.Second
		o, times := askingInVain(t, func(shard int) bool { return shard == 0 || time.Since(began) >= elected })
		if _, _, err := o.gotten(t.Context()); !errors.Is(err, errUnreached) || !strings.HasPrefix(err.Error(), "shard 1: ") || len(times()) > 0 {
			t.Errorf("the answer is %v, and shards were asked at %v", err, times())
		}
		time.Sleep(elected - 2*getPause - time.Since(began)) // it is elected before the third time
		_, _, err := o.gotten(t.Context())
		if got := times(); err == nil || errors.Is(err, errUnreached) || len(got) != 2*3 || slices.Min(got) < elected {
			t.Errorf("the answer is %v, and shards were asked at %v", err, got)
		}
	})
}
