package coordinator

import (
	"context"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/carillon-mq/carillon/broker/attribute"
	"github.com/carillon-mq/carillon/broker/coordination"
)

// attributes opens the attributes of subjects as a broker does, and waits until they are read.
func (c *testCluster) attributes() *coordination.Attributes {
	c.t.Helper()
	a, err := coordination.OpenAttributes(coordination.Config{Endpoints: c.endpoints(), TLS: c.tls, Cluster: "default/main"}, attribute.NewStore())
	if err != nil {
		c.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var following sync.WaitGroup
	following.Go(func() { a.Follow(ctx) })
	c.t.Cleanup(func() {
		cancel()
		following.Wait()
		_ = a.Close()
	})
	eventually.ForTrue(c.t, "the attributes are read", func() bool { return a.Store().Stats().Ready })
	return a
}

func (c *testCluster) endpoints() (all []string) {
	for _, m := range c.members {
		_, port, _ := net.SplitHostPort(m.config.ClientListen)
		all = append(all, "https://localhost:"+port)
	}
	return all
}

// TestChangesOfAttributesOutliveTheLeaderOfTheCoordinators: two brokers merge into the same
// subjects, each its own attribute, while the leader of the coordinators is killed. Changes go on
// at both. Afterwards each acknowledged one is there, and none was carried out twice: etcd has
// counted as many writes of each key as there were answers.
func TestChangesOfAttributesOutliveTheLeaderOfTheCoordinators(t *testing.T) {
	t.Parallel()
	const subjects, some = 3, 20
	c := newCluster(t, 3)
	c.spawn()
	brokers := []*coordination.Attributes{c.attributes(), c.attributes()}
	var acked [2][subjects]atomic.Int64
	var stopping atomic.Bool
	var writing sync.WaitGroup
	ctx, cancel := context.WithTimeout(context.Background(), eventually.Limit)
	t.Cleanup(func() { stopping.Store(true); cancel(); writing.Wait() })
	for b, a := range brokers {
		for s := range subjects {
			writing.Go(func() {
				for n := int64(1); !stopping.Load(); n++ {
					out, err := a.Change(ctx, []attribute.Change{{Subject: fmt.Sprint("s.", s), Set: attribute.Set{fmt.Sprint("b", b): attribute.Number(float64(n))}}})
					if err == nil {
						err = out[0].Err
					}
					if err != nil {
						t.Errorf("change %d of subject %d by broker %d: %v", n, s, b, err)
						return
					}
					acked[b][s].Store(n)
				}
			})
		}
	}
	goesOn := func(when string) {
		t.Helper()
		for b := range brokers {
			for s := range subjects {
				before := acked[b][s].Load()
				eventually.ForTrue(t, "changes "+when, func() bool { return t.Failed() || acked[b][s].Load() >= before+some })
			}
		}
	}
	goesOn("before")
	dead := c.leader()
	dead.kill()
	goesOn("after the leader died")
	dead.spawn()
	dead.waitReady()
	goesOn("with all three")
	stopping.Store(true)
	writing.Wait()

	raw, err := clientv3.New(clientv3.Config{Endpoints: c.endpoints(), TLS: c.tls.Client("localhost"), Logger: zap.NewNop()})
	if err != nil {
		t.Fatal(err)
	}
	defer raw.Close()
	for s := range subjects {
		subject := fmt.Sprint("s.", s)
		first, second := acked[0][s].Load(), acked[1][s].Load()
		var got *clientv3.GetResponse
		// A busy etcd may elect another leader at any time.
		eventually.For(t, "subject "+subject+" is read", func(ctx context.Context) (err error) {
			got, err = raw.Get(ctx, "/carillon/default/main/attributes/subjects/"+subject)
			return err
		})
		if len(got.Kvs) != 1 {
			t.Fatalf("etcd has %v of subject %s", got, subject)
		}
		if writes := got.Kvs[0].Version; writes != first+second {
			t.Errorf("subject %s was written %d times, after %d and %d answers", subject, writes, first, second)
		}
		want := fmt.Sprintf(`{"b0":%d,"b1":%d}`, first, second)
		for b, a := range brokers {
			eventually.ForTrue(t, fmt.Sprintf("broker %d has %s of %s", b, want, subject), func() bool { return a.Store().Get(subject).Text == want })
		}
	}
}
