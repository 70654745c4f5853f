package coordination

import (
	"context"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// TestAGenerationSettles: etcd is restored while two brokers are there, and a third one is gone
// whose lease has not ended. Until the third one's lease ends it is shown as a former one. No
// broker that is alive is overlooked: before one leaves its former registration, the generation
// settles anew.
func TestAGenerationSettles(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	etcd := startEtcd(t)
	a, b := etcd.openBroker(&memory{}), etcd.openBroker(&memory{})
	operator := etcd.open()
	seenA, seenB, seen := a.watchState(t), b.watchState(t), operator.watchState(t)
	joinedA, joinedB := a.join(t, modern("a")), b.join(t, modern("b"))
	joinedA.incarnation()
	joinedB.incarnation()
	gone := modern("gone")
	value, err := gone.encode()
	if err != nil {
		t.Fatal(err)
	}
	lease, err := operator.etcd.Grant(ctx, 3600)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := operator.etcd.Put(ctx, operator.brokerKey("gone"), string(value), clientv3.WithLease(lease.ID)); err != nil {
		t.Fatal(err)
	}
	backup := etcd.Backup()
	later := a.mustCreate(t, "later", TopicSpec{Subjects: []string{"later"}, Shards: 1}, client)
	for _, s := range []*states{seenA, seenB, seen} {
		s.await("the later Topic", func(s *State) bool { return s.Topic(later.Name) != nil })
	}

	etcd.Restore(backup)
	etcd.Start()
	state := seen.await("both brokers in the next generation", func(s *State) bool { return s.Generation == 1 && len(s.Brokers) == 2 })
	if !state.Settling || len(state.Former) != 1 || state.Former[0].ID != "gone" {
		t.Errorf("settling %v, former %+v", state.Settling, state.Former)
	}
	if _, err := operator.etcd.Revoke(ctx, lease.ID); err != nil {
		t.Fatal(err)
	}
	seen.await("the end of the former broker's lease", func(s *State) bool { return len(s.Former) == 0 && s.Settling })
	settling, err := operator.get(ctx, operator.settlingKey())
	if err != nil || settling == nil || settling.GetLease() == 0 {
		t.Fatal(settling, err)
	}
	if _, err := operator.etcd.Revoke(ctx, clientv3.LeaseID(settling.GetLease())); err != nil {
		t.Fatal(err)
	}
	last := seen.await("that it has settled", func(s *State) bool { return !s.Settling }).Revision

	raised, err := operator.get(ctx, operator.generationKey())
	if err != nil || raised == nil {
		t.Fatal(raised, err)
	}
	if now, err := operator.etcd.Get(ctx, operator.settlingKey(), clientv3.WithRev(raised.GetModRevision())); err != nil || len(now.Kvs) == 0 || now.Kvs[0].ModRevision != raised.GetModRevision() {
		t.Errorf("the generation did not begin to settle with its first revision: %+v, %v", now, err)
	}
	again, left := 0, 0
	for event := range changesOf(t, operator, raised.GetModRevision()+1, last) {
		switch key := string(event.Kv.Key); {
		case key == operator.settlingKey() && event.Type == clientv3.EventTypePut:
			again++
		case (key == operator.brokerKey("a") || key == operator.brokerKey("b")) && event.Type == clientv3.EventTypeDelete:
			if left++; again < left {
				t.Errorf("%s is removed at revision %d, and the generation did not settle anew before that", key, event.Kv.ModRevision)
			}
		}
	}
	if left != 2 {
		t.Errorf("%d former registrations were removed", left)
	}
}

// TestANewProcessSettlesAGeneration: a broker died before etcd was restored, and its process of now
// finds the registration of the former generation. It is overlooked at no moment.
func TestANewProcessSettlesAGeneration(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	etcd := startEtcd(t)
	c := etcd.openBroker(&memory{})
	value, err := modern("a").encode()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.etcd.Put(ctx, c.brokerKey("a"), string(value)); err != nil {
		t.Fatal(err)
	}
	raised, err := c.etcd.Put(ctx, c.generationKey(), encodeGeneration(1))
	if err != nil {
		t.Fatal(err)
	}
	joined := c.join(t, modern("a"))
	i := joined.incarnation()
	if GenerationOf(i) != 1 {
		t.Fatalf("it registered in generation %d", GenerationOf(i))
	}
	settled := false
	for event := range changesOf(t, c, raised.Header.Revision+1, revisionOf(i)) {
		switch key := string(event.Kv.Key); {
		case key == c.settlingKey():
			settled = true
		case key == c.brokerKey("a") && event.Type == clientv3.EventTypeDelete && !settled:
			t.Error("the former registration is removed, and the generation does not settle")
		}
	}
	if !settled {
		t.Error("the generation does not settle")
	}
}

// changesOf iterates over what happened to a cluster's keys from one revision up to another one.
func changesOf(t *testing.T, c *Client, from, to int64) func(yield func(*clientv3.Event) bool) {
	t.Helper()
	return func(yield func(*clientv3.Event) bool) {
		ctx, stop := context.WithCancel(context.Background())
		defer stop()
		for answer := range c.etcd.Watch(ctx, c.prefix, clientv3.WithPrefix(), clientv3.WithRev(from)) {
			if err := answer.Err(); err != nil {
				t.Fatal(err)
			}
			for _, event := range answer.Events {
				if event.Kv.ModRevision > to || !yield(event) || event.Kv.ModRevision == to {
					return
				}
			}
		}
	}
}
