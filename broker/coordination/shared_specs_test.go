package coordination

import (
	"encoding/json"
	"runtime"
	"testing"

	"github.com/carillon-mq/carillon/internal/testutil"
)

// TestEqualSpecsAreOneInMemory: for as long as a Subscription has them.
func TestEqualSpecsAreOneInMemory(t *testing.T) {
	x := newSharedSpecs()
	decode := func(text string) *SubscriptionSpec {
		t.Helper()
		spec, why, err := x.decode(json.RawMessage(text))
		if err != nil || why != "" {
			t.Fatalf("decode %s: %v %s", text, err, why)
		}
		return spec
	}
	one, two, other := decode(`{"rate":5}`), decode(`{"rate":5}`), decode(`{"rate":6}`)
	if one != two || one == other || one.Rate != 5 || other.Rate != 6 {
		t.Fatalf("%p %v, %p %v, %p %v", one, *one, two, *two, other, *other)
	}
	if none := decode(""); none.Rate != 0 {
		t.Fatalf("no spec is decoded as %v", *none)
	}
	if _, why, err := x.decode(json.RawMessage(`{"subjects":["a..b"]}`)); err != nil || why == "" {
		t.Fatalf("a spec that can't be: %q, %v", why, err)
	}
	if _, _, err := x.decode(json.RawMessage(`{"rate":"five"}`)); err == nil {
		t.Fatal("a rate of five is decoded")
	}
	runtime.KeepAlive(one)
	runtime.KeepAlive(two)
	one, two = nil, nil
	testutil.EventuallyTrue(t, "only specs in use are known", func() bool {
		runtime.GC()
		x.mu.Lock()
		defer x.mu.Unlock()
		_, used := x.specs[`{"rate":6}`]
		return len(x.specs) == 1 && used
	})
	if again := decode(`{"rate":5}`); again.Rate != 5 {
		t.Fatalf("decoded again: %v", *again)
	}
	runtime.KeepAlive(other)
}
