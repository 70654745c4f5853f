package broker

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"sync"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/carillon-mq/carillon/broker/coordination"
	"github.com/carillon-mq/carillon/broker/env"
	"github.com/carillon-mq/carillon/broker/limits"
	"github.com/carillon-mq/carillon/broker/log"
	"github.com/carillon-mq/carillon/coordinator"
	"github.com/carillon-mq/carillon/internal/testutil"
)

// TestARestartedBrokerDoesNotLeadInItsFormerEpoch: a process dies and the next one on its volume
// starts before the cluster has noticed, so the earlier incarnation is still registered as the
// leader of a shard. The new process must not lead under that epoch: followers may have records
// that the earlier process had not written to its own log. The new process leads under a later
// epoch only. Which State it sees first depends on timing, so the test repeats.
func TestARestartedBrokerDoesNotLeadInItsFormerEpoch(t *testing.T) {
	for n := range 5 {
		t.Run(strconv.Itoa(n), followALife)
	}
}

func followALife(t *testing.T) {
	const cluster = "local/test"
	etcd, err := coordinator.StartLocal(t.Context(), t.TempDir(), slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	defer etcd.Close()
	store, err := coordination.Open(coordination.Config{
		// The life before must not end by itself.
		Endpoints: etcd.Endpoints(), Cluster: cluster, LeaseTTL: testutil.Patience,
	})
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	data := t.TempDir()
	self, err := coordination.LoadIdentity(data, cluster)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	defer running.Wait()
	defer cancel()

	// The earlier incarnation is still registered and leads a shard. The second replica is away.
	born := make(chan int64, 1)
	running.Go(func() { // it ends when it finds the next incarnation
		_ = store.Join(ctx, coordination.Broker{ID: self.ID, Name: "b", Client: "127.0.0.1:1", Route: "127.0.0.1:1"}, func(life int64) { born <- life })
	})
	before := coordination.Replica{Broker: self.ID, Incarnation: <-born}
	orders, err := store.CreateTopic(ctx, "orders", coordination.TopicSpec{Subjects: []string{"orders"}, Shards: 1, Replicas: 2, MinInSync: 1}, coordination.Owner{Kind: coordination.ClientOwner})
	if err != nil {
		t.Fatal(err)
	}
	raw, err := clientv3.New(clientv3.Config{Endpoints: etcd.Endpoints()})
	if err != nil {
		t.Fatal(err)
	}
	defer raw.Close()
	disk, err := log.OpenDisk(env.OS, data, log.Options{})
	if err != nil {
		t.Fatal(err)
	}
	for _, part := range []string{"", "state"} {
		l, err := disk.Open(log.Identity{Topic: orders.ID, Part: part}, 1, 1, nil)
		if err == nil {
			err = l.Close()
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := disk.Close(); err != nil {
		t.Fatal(err)
	}
	// Another broker is the controller, and places nothing until it gives that up.
	put := func(key, value string) {
		t.Helper()
		if _, err := raw.Put(ctx, "/carillon/"+cluster+"/"+key, value); err != nil {
			t.Fatal(err)
		}
	}
	put("controller", `{"v":1,"broker":"00000000000000000000000000000002","incarnation":1}`)
	put("shards/"+orders.ID+"/0", fmt.Sprintf(`{"v":1,"epoch":1,"leader":%q,"replicas":[%[1]q,"00000000000000000000000000000002"],"inSync":[{"broker":%[1]q,"incarnation":%d}]}`, self.ID, before.Incarnation))

	profile, err := limits.ForProfile("small")
	if err != nil {
		t.Fatal(err)
	}
	ready := make(chan string, 1)
	running.Go(func() {
		if err := Run(ctx, Config{
			Name: "b", Cluster: cluster, Data: data, Profile: profile, Endpoints: etcd.Endpoints(),
			Client: Address{Listen: "127.0.0.1:0"}, Route: Address{Listen: "127.0.0.1:0"},
			Ready: func(address, _ string) { ready <- address },
		}); err != nil {
			t.Error(err)
		}
	})
	leads := make(chan *coordination.Shard, 1) // as led by the new incarnation
	running.Go(func() {
		_ = store.WatchState(ctx, func(state *coordination.State, _ coordination.Changes) {
			s := state.Shard(orders.ID, 0)
			if s != nil && s.Leader == self.ID && slices.ContainsFunc(s.InSync, func(m coordination.Replica) bool { return m.Broker == self.ID && m.Incarnation > before.Incarnation }) {
				select {
				case leads <- s:
				default:
				}
			}
		})
	})
	<-ready
	if _, err := raw.Delete(ctx, "/carillon/"+cluster+"/controller"); err != nil {
		t.Fatal(err)
	}
	if s := <-leads; s.Epoch < 2 {
		t.Errorf("the next life is in %v under epoch %d, in which the life before led", s.InSync, s.Epoch)
	}
}
