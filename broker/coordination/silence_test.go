package coordination

import (
	"context"
	"testing"
)

// TestMostBrokersEvictASilentOne: two of three brokers report the third as silent, and it is
// evicted. A single, withdrawn or outdated report has no effect.
func TestMostBrokersEvictASilentOne(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	etcd := startEtcd(t)
	c := etcd.open()
	joined := map[string]*joined{}
	life := func(id string) Replica { return Replica{id, joined[id].incarnation()} }
	for _, id := range []string{"a", "b", "c"} {
		joined[id] = etcd.open().join(t, broker(id))
	}
	a, b, silent := life("a"), life("b"), life("c")
	accuse := func(by, of Replica, want bool) {
		t.Helper()
		if evicted, err := c.ReportSilent(ctx, by, of); err != nil || evicted != want {
			t.Fatalf("%v of %v: evicted %v, %v", by, of, evicted, err)
		}
	}
	accuse(a, silent, false)
	accuse(a, silent, false) // repeated reports count once
	accuse(silent, a, false) // a broker that is cut off reports the others
	accuse(silent, b, false)
	if err := c.WithdrawSilent(ctx, a, silent); err != nil {
		t.Fatal(err)
	}
	accuse(b, silent, false)
	accuse(Replica{"a", a.Incarnation - 1}, silent, false)
	accuse(a, Replica{"c", silent.Incarnation - 1}, false)
	accuse(a, Replica{"z", 1}, false)
	if got, err := c.get(ctx, c.brokerKey("c")); err != nil || got == nil {
		t.Fatalf("it was evicted by one: %v, %v", got, err)
	}
	accuse(a, silent, true)
	again := life("c")
	if again.Incarnation <= silent.Incarnation {
		t.Fatalf("evicted in life %d, and it is in %d", silent.Incarnation, again.Incarnation)
	}
	accuse(b, again, false) // Reports about the former incarnation do not count.

	// Reports of a broker that died do not count.
	joined["a"].leave()
	accuse(b, again, false)
}

// TestOfTwoBrokersNeitherEvictsTheOther: with two members, each may be the one that is cut off.
func TestOfTwoBrokersNeitherEvictsTheOther(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	etcd := startEtcd(t)
	c := etcd.open()
	a, b := etcd.open().join(t, broker("a")), etcd.open().join(t, broker("b"))
	x, y := Replica{"a", a.incarnation()}, Replica{"b", b.incarnation()}
	for _, pair := range [][2]Replica{{x, y}, {y, x}} {
		if evicted, err := c.ReportSilent(ctx, pair[0], pair[1]); err != nil || evicted {
			t.Errorf("%v evicted %v: %v, %v", pair[0], pair[1], evicted, err)
		}
	}
}
