package coordination

import (
	"context"
	"slices"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/carillon-mq/carillon/internal/testutil"
)

// candidate is a broker that a test lets run for controller.
type candidate struct {
	t       *testing.T
	stop    context.CancelFunc
	offices chan *Office         // one per election
	ends    chan context.Context // the context of that term, when it ended
	done    chan error
}

func (c *Client) campaign(t *testing.T, self Replica, vacant <-chan struct{}) *candidate {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	who := &candidate{t, cancel, make(chan *Office, 8), make(chan context.Context, 8), make(chan error, 1)}
	finished := make(chan struct{})
	go func() {
		defer close(finished)
		who.done <- c.Campaign(ctx, self, vacant, func(ctx context.Context, office *Office) {
			who.offices <- office
			<-ctx.Done()
			who.ends <- ctx
		})
	}()
	t.Cleanup(func() { cancel(); <-finished })
	return who
}

func receive[T any](t *testing.T, what string, from <-chan T) (got T) {
	t.Helper()
	select {
	case got = <-from:
	case <-time.After(testutil.Patience):
		t.Fatalf("waited in vain for: %s", what)
	}
	return got
}

func (w *candidate) elected() *Office {
	w.t.Helper()
	return receive(w.t, "an election", w.offices)
}

// office returns the Office of self, which is controller until the test ends.
func (c *Client) office(t *testing.T, self Replica) *Office {
	t.Helper()
	return c.campaign(t, self, nil).elected()
}

// writes writes shards, and reports whether all were written.
func (o *Office) writes(t *testing.T, shards ...ShardWrite) bool {
	t.Helper()
	revisions, err := o.WriteShards(context.Background(), shards)
	if err != nil || len(revisions) != len(shards) {
		t.Fatalf("%d revisions for %d shards, %v", len(revisions), len(shards), err)
	}
	return !slices.Contains(revisions, 0)
}

// TestAFormerControllerIsFenced: the term passes to another broker in every possible way, and the
// former controller cannot write.
func TestAFormerControllerIsFenced(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	etcd := startEtcd(t)
	c := etcd.open().withShortTTL() // within which a vacancy is seen
	topic := c.mustCreate(t, "orders", TopicSpec{Subjects: []string{"orders"}, Shards: 8}, client)
	brokers := []*joined{c.join(t, broker("a")), c.join(t, broker("b"))}
	a, b := Replica{"a", brokers[0].incarnation()}, Replica{"b", brokers[1].incarnation()}
	number := 0
	write := func(office *Office) error {
		shard := newShard(topic.ID, number, a)
		number++
		revisions, err := office.WriteShards(ctx, []ShardWrite{{shard, topic}})
		if err == nil && revisions[0] == 0 {
			t.Errorf("shard %d was not written", shard.Number)
		}
		return err
	}

	first := c.campaign(t, a, nil)
	officeA := first.elected()
	second := c.campaign(t, b, nil)
	if err := write(officeA); err != nil {
		t.Fatal(err)
	}

	// A controller that stops resigns: its broker goes on renewing the lease of its key.
	first.stop()
	officeB := second.elected()
	if err := receive(t, "the end of the first campaign", first.done); err != nil {
		t.Error(err)
	}
	if officeB.Term() <= officeA.Term() {
		t.Errorf("term %d follows %d", officeB.Term(), officeA.Term())
	}
	as[*DeposedError](t, write(officeA))
	if err := write(officeB); err != nil {
		t.Error(err)
	}

	// A controller whose lease is revoked learns that it is deposed.
	third := c.campaign(t, a, nil)
	got, err := c.etcd.Get(ctx, c.brokerKey("b"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.etcd.Revoke(ctx, clientv3.LeaseID(got.Kvs[0].Lease)); err != nil {
		t.Fatal(err)
	}
	officeC := third.elected()
	receive(t, "the end of the office", second.ends)
	as[*NotRegisteredError](t, receive(t, "the end of the second campaign", second.done))
	as[*DeposedError](t, write(officeB))
	if err := write(officeC); err != nil {
		t.Error(err)
	}
}

// TestAControllerThatIsCutOffStops: a controller that cannot reach etcd stops within the TTL of its
// lease, and then another is elected.
func TestAControllerThatIsCutOffStops(t *testing.T) {
	t.Parallel()
	etcd := startEtcd(t)
	cable := etcd.cable()
	far, near := etcd.open(cable.endpoint()).withShortTTL(), etcd.open().withShortTTL()
	a := Replica{"a", far.join(t, broker("a")).incarnation()}
	cutOff := far.campaign(t, a, nil)
	cutOff.elected()
	b := Replica{"b", near.join(t, broker("b")).incarnation()}
	vacant := make(chan struct{}, 1)
	other := near.campaign(t, b, vacant)
	cable.set(frozen)
	began := time.Now()
	receive(t, "the end of the office", cutOff.ends)
	if took := time.Since(began); took > 3*far.ttl {
		t.Errorf("it went on for %v", took)
	}
	other.elected()
	cable.set(whole)
	// It registers in a new incarnation, so its old candidacy ends.
	as[*NotRegisteredError](t, receive(t, "the end of the campaign", cutOff.done))
}

// TestACandidateLearnsOfAVacancyAtOnce: a candidate that is told of a vacancy does not wait for its
// next check.
func TestACandidateLearnsOfAVacancyAtOnce(t *testing.T) {
	t.Parallel()
	etcd := startEtcd(t)
	c := etcd.open()
	c.ttl = time.Hour // its next check, too
	a := Replica{"a", c.join(t, broker("a")).incarnation()}
	b := Replica{"b", c.join(t, broker("b")).incarnation()}
	first := c.campaign(t, a, nil)
	first.elected()
	vacant := make(chan struct{}, 1)
	second := c.campaign(t, b, vacant)
	seen := c.watchState(t)
	seen.wait("a controller", func(s *State) bool { return s.Controller.Replica == a })
	first.stop()
	// No other controller, except a candidate that was late enough to find the office free.
	seen.wait("a vacancy", func(s *State) bool { return s.Controller.Replica != a })
	vacant <- struct{}{}
	second.elected()
}
