package coordination

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/carillon-mq/carillon/internal/testutil"
)

func TestBrokersComeAndGo(t *testing.T) {
	t.Parallel()
	etcd := startEtcd(t)
	c := etcd.open()
	c.ttl = time.Hour
	seen := etcd.open().follow(t)
	seen.wait("") // an empty cluster is reported as one

	b := c.join(t, broker("b"))
	a := c.join(t, broker("a"))
	first, second := b.incarnation(), a.incarnation()
	members := seen.wait("pod-a pod-b ")
	want := broker("a")
	want.Incarnation = second
	if members[0] != want || members[1].Incarnation != first {
		t.Fatalf("members are %+v; want incarnations %d and %d and all fields of %+v", members, second, first, want)
	}

	// A broker that leaves is gone at once, long before its lease would expire.
	b.leave()
	seen.wait("pod-a ")
}

func TestTheLeaseOfASilentBrokerExpires(t *testing.T) {
	t.Parallel()
	etcd := startEtcd(t)
	seen := etcd.open().follow(t)
	cable := etcd.cable()
	a := etcd.open(cable.endpoint()).withShortTTL().join(t, broker("a"))
	first := a.incarnation()
	seen.wait("pod-a ")

	cable.set(cut)
	seen.wait("")

	// It registers again by itself, in a later incarnation.
	cable.set(whole)
	again := a.incarnation()
	members := seen.wait("pod-a ")
	if again <= first || members[0].Incarnation != again {
		t.Fatalf("after its return: incarnation %d, seen %d; want one above %d", again, members[0].Incarnation, first)
	}
}

func TestARevokedBrokerRegistersAgain(t *testing.T) {
	t.Parallel()
	etcd := startEtcd(t)
	c := etcd.open().withShortTTL() // it looks for its key every few beats
	a := c.join(t, broker("a"))
	first := a.incarnation()

	got, err := c.etcd.Get(context.Background(), c.brokerKey("a"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.etcd.Revoke(context.Background(), clientv3.LeaseID(got.Kvs[0].Lease)); err != nil {
		t.Fatal(err)
	}
	second := a.incarnation()
	if second <= first {
		t.Fatalf("incarnation %d after %d", second, first)
	}
	// The same after a deletion of the key only, which leaves the lease alive.
	if _, err := c.etcd.Delete(context.Background(), c.brokerKey("a")); err != nil {
		t.Fatal(err)
	}
	if third := a.incarnation(); third <= second {
		t.Fatalf("incarnation %d after %d", third, second)
	}
}

// TestANewLifeReplacesTheOldOne: a process is killed and restarted before its lease expires. The
// old key must not delay the new registration, outlive it, or pass on its create revision.
func TestANewLifeReplacesTheOldOne(t *testing.T) {
	t.Parallel()
	etcd := startEtcd(t)
	c := etcd.open()
	seen := etcd.open().follow(t)
	old, err := c.etcd.Grant(context.Background(), 60)
	if err != nil {
		t.Fatal(err)
	}
	value, _ := broker("a").encode()
	put, err := c.etcd.Put(context.Background(), c.brokerKey("a"), string(value), clientv3.WithLease(old.ID))
	if err != nil {
		t.Fatal(err)
	}
	seen.wait("pod-a ")

	began := time.Now()
	a := c.join(t, broker("a"))
	incarnation := a.incarnation()
	if took := time.Since(began); took > 30*time.Second {
		t.Errorf("the new life waited %v for the old one's lease", took)
	}
	if incarnation <= put.Header.Revision {
		t.Fatalf("incarnation %d is not above the old life's %d", incarnation, put.Header.Revision)
	}
	seen.news.await(t, "the new incarnation is seen", func() bool {
		members, _ := seen.get()
		return len(members) == 1 && members[0].Incarnation == incarnation
	})
	// The old lease would have expired after a minute, and must not take the new key with it.
	ttl, err := c.etcd.TimeToLive(context.Background(), old.ID)
	if err != nil {
		t.Fatal(err)
	}
	if ttl.TTL > 0 {
		t.Errorf("the old life's lease is still there, with %d s to go", ttl.TTL)
	}
}

// TestTwoProcessesOfOneIdentity: two processes run on copies of one volume. The newer one stays,
// and the older one stops with an error.
func TestTwoProcessesOfOneIdentity(t *testing.T) {
	t.Parallel()
	etcd := startEtcd(t)
	older := etcd.open().join(t, broker("a"))
	first := older.incarnation()
	newer := etcd.open().join(t, broker("a"))
	second := newer.incarnation()
	if second <= first {
		t.Fatalf("incarnation %d after %d", second, first)
	}
	select {
	case err := <-older.done:
		superseded := (*SupersededError)(nil)
		if !errors.As(err, &superseded) || superseded.ID != "a" || superseded.Newer != second {
			t.Fatalf("the older process ended with %v, want superseded by %d", err, second)
		}
	case <-time.After(testutil.Patience):
		t.Fatal("the older process was not told")
	}
	select {
	case err := <-newer.done:
		t.Fatalf("the newer process ended with %v", err)
	case i := <-newer.incarnations:
		t.Fatalf("the newer process had to register again, as %d", i)
	default:
	}
}

func TestMembershipStandsWhileEtcdIsDown(t *testing.T) {
	t.Parallel()
	etcd := startEtcd(t)
	c := etcd.open().withShortTTL()
	log := &heard{t: t}
	seen := etcd.openLogged(log.logger()).restless().follow(t)
	a, b := c.join(t, broker("a")), c.join(t, broker("b"))
	a.incarnation()
	first := b.incarnation()
	seen.wait("pod-a pod-b ")
	_, calls := seen.get()

	etcd.Stop()
	// It cannot reach etcd, and must stop in time.
	b.leave()
	log.wait(interrupted, 2) // the watch was given up, then a read failed
	if _, now := seen.get(); now != calls {
		t.Fatalf("members became %q while etcd was down", seen.names())
	}

	etcd.Start()
	seen.wait("pod-a ")
	again := c.join(t, broker("b"))
	if second := again.incarnation(); second <= first {
		t.Fatalf("incarnation %d after %d", second, first)
	}
	seen.wait("pod-a pod-b ")
}

func TestAJoinThatEtcdMisses(t *testing.T) {
	t.Parallel()
	etcd := startEtcd(t)
	etcd.Stop()
	log := &heard{t: t}
	c := etcd.openLogged(log.logger()) // does not wait
	a := c.join(t, broker("a"))
	seen := c.follow(t)
	log.wait(interrupted, 1) // a read failed
	if got := seen.names(); got != "?" {
		t.Fatalf("members %q were reported before etcd was ever reached", got)
	}
	etcd.Start()
	a.incarnation()
	seen.wait("pod-a ")
}

// TestACompactedWatchReadsAgain: while the watch is cut, brokers come and go, and etcd compacts the
// revisions in between.
func TestACompactedWatchReadsAgain(t *testing.T) {
	t.Parallel()
	etcd := startEtcd(t)
	c := etcd.open()
	cable := etcd.cable()
	seen := etcd.open(cable.endpoint()).restless().follow(t)
	a, b := c.join(t, broker("a")), c.join(t, broker("b"))
	a.incarnation()
	b.incarnation()
	seen.wait("pod-a pod-b ")

	cable.set(cut)
	a.leave()
	d := c.join(t, broker("d"))
	d.incarnation()
	now, err := c.etcd.Get(context.Background(), "none")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.etcd.Compact(context.Background(), now.Header.Revision); err != nil {
		t.Fatal(err)
	}
	if got := seen.names(); got != "pod-a pod-b " {
		t.Fatalf("members became %q while the watch was cut", got)
	}
	cable.set(whole)
	seen.wait("pod-b pod-d ")
	b.leave()
	seen.wait("pod-d ")
}

// TestAFrozenConnectionCostsNeitherLeaseNorChanges: a coordinator vanishes without closing its
// connections, and another one answers.
func TestAFrozenConnectionCostsNeitherLeaseNorChanges(t *testing.T) {
	t.Parallel()
	etcd := startEtcd(t)
	const ttl = 10 * time.Second // a busy machine may keep the broker from several beats
	cable := etcd.cable()
	both := []string{cable.endpoint(), etcd.Endpoint()}
	wired := etcd.open(both...)
	wired.ttl = ttl
	a := wired.join(t, broker("a"))
	first := a.incarnation()
	frail := etcd.open(cable.endpoint()).restless().follow(t)
	frail.wait("pod-a ")

	steady := etcd.open().follow(t)
	steady.wait("pod-a ")
	cable.set(frozen)
	c := etcd.open()
	b := c.join(t, broker("b"))
	b.incarnation()
	steady.wait("pod-a pod-b ")
	// A lease without renewals, twice as long as a's and granted after the cable froze, shows
	// when that would have expired.
	hourglass, err := c.etcd.Grant(context.Background(), 2*int64(ttl/time.Second))
	if err != nil {
		t.Fatal(err)
	}
	value, _ := broker("c").encode()
	if _, err := c.etcd.Put(context.Background(), c.brokerKey("c"), string(value), clientv3.WithLease(hourglass.ID)); err != nil {
		t.Fatal(err)
	}
	has := func(name string) bool { return strings.Contains(steady.names(), name+" ") }
	steady.news.await(t, "the other lease is there", func() bool { return has("pod-c") })
	steady.news.await(t, "the other lease runs out", func() bool { return !has("pod-c") })
	if members, _ := steady.get(); steady.names() != "pod-a pod-b " || members[0].Incarnation != first {
		t.Fatalf("a, which has another way to etcd, lost its lease: members are %+v", members)
	}
	cable.set(whole)
	frail.wait("pod-a pod-b ")
}

// TestASilentWatchIsReplaced freezes whichever of its two cables a watch uses. The connections' own
// keepalive, which would close them too, comes too late for this test.
func TestASilentWatchIsReplaced(t *testing.T) {
	t.Parallel()
	etcd := startEtcd(t)
	c := etcd.open()
	ways := []*cable{etcd.cable(), etcd.cable()}
	seen := etcd.open(ways[0].endpoint(), ways[1].endpoint()).restless().follow(t)
	seen.wait("")
	want := ""
	for i, way := range ways {
		way.set(frozen)
		id := string(rune('a' + i))
		c.join(t, broker(id)).incarnation()
		want += "pod-" + id + " "
		seen.wait(want)
		way.set(whole)
	}
}

// TestAQuietEtcdIsNotSilent: without writes etcd sends nothing, which must not count as silence.
func TestAQuietEtcdIsNotSilent(t *testing.T) {
	t.Parallel()
	c := startEtcd(t).open()
	c.silent = 10 * time.Second
	if _, err := c.etcd.Put(context.Background(), c.prefix+"last", "written"); err != nil {
		t.Fatal(err)
	}
	m := mirror{
		c: c, prefix: c.prefix, keys: func() []string { return nil }, complete: func(int64) error { return nil },
		put: func(kv *mvccpb.KeyValue) {}, remove: func([]byte, int64) {},
	}
	revision, err := m.read(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	m.put = func(kv *mvccpb.KeyValue) { t.Errorf("what was read before came again: %s", kv.GetKey()) }
	ctx, stop := context.WithTimeout(context.Background(), c.silent+c.silent/2)
	defer stop()
	if _, err := m.watch(ctx, revision); ctx.Err() == nil {
		t.Errorf("the watch was given up: %v", err)
	}
}

func TestAnUnreadableRegistrationIsLeftOut(t *testing.T) {
	t.Parallel()
	etcd := startEtcd(t)
	c := etcd.open()
	for id, value := range map[string]string{
		"garbage": "{", "newer": `{"v":2}`, "odd id!": `{"v":1,"client":"a:1","route":"a:1","http":"a:1"}`,
		"no-port": `{"v":1,"client":"a","route":"a:1","http":"a:1"}`,
	} {
		if _, err := c.etcd.Put(context.Background(), c.brokerKey(id), value); err != nil {
			t.Fatal(err)
		}
	}
	seen := c.follow(t)
	seen.wait("")
	a := c.join(t, broker("a"))
	a.incarnation()
	seen.wait("pod-a ")
}

func TestInvalidRegistrationsAreRefused(t *testing.T) {
	t.Parallel()
	c, err := Open(Config{Endpoints: []string{"unix:///nowhere"}, Cluster: "default/main"})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	for _, spoil := range []func(*Broker){
		func(b *Broker) { b.ID = "" },
		func(b *Broker) { b.ID = "a/b" },
		func(b *Broker) { b.ID = strings.Repeat("a", 65) },
		func(b *Broker) { b.Route = "host" },
	} {
		b := broker("a")
		spoil(&b)
		if err := c.Join(context.Background(), b, nil); err == nil {
			t.Errorf("%+v was accepted", b)
		}
	}
}
