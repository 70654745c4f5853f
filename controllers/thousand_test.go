package controllers_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/carillon-mq/carillon/api/v1alpha1"
	"github.com/carillon-mq/carillon/controllers"
	"github.com/carillon-mq/carillon/internal/testutil/keys"
)

// TestAThousandTopicsAtOnce: a thousand Topics that are applied at once are all served, with few
// requests and writes, and cost nothing afterwards, also after a restart of the operator. The time
// depends on the machine and is only logged. The number of requests is bounded: at 200 per second,
// 4 for each Topic take 20 s.
func TestAThousandTopicsAtOnce(t *testing.T) {
	const (
		topics = 1000
		// The statuses Placing, if that lasts over a second, and Served.
		statusesEach = 2
		requestsEach = 4 // the statuses, an event, and one to spare
		writesEach   = 7 // the manifest, the statuses, the keys of the Topic and its shard, and one to spare
	)
	w, f, _ := newServingWorld(t, "main-0", "main-1", "main-2")
	w.quiet()
	writes, requests, revision, begun := len(w.written()), w.requests(), f.etcdRevision(), time.Now()
	var all sync.WaitGroup
	for n := range 8 {
		all.Go(func() {
			for i := n; i < topics; i += 8 {
				if err := k8s.Create(t.Context(), object(t, "Topic", w.namespace, fmt.Sprintf("t%d", i), `{brokerRef: {name: main}}`)); err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
	applied := time.Since(begun)
	eventually.For(t, "waiting for all to be served", func(ctx context.Context) error {
		list := &v1alpha1.TopicList{}
		if err := k8s.List(ctx, list, client.InNamespace(w.namespace)); err != nil {
			return err
		}
		ready := 0
		for i := range list.Items {
			if meta.IsStatusConditionTrue(list.Items[i].Status.Conditions, "Ready") {
				ready++
			}
		}
		if ready < topics {
			return fmt.Errorf("%d of %d are", ready, topics)
		}
		return nil
	})
	took := time.Since(begun)
	w.quiet()
	statuses := 0
	for _, request := range w.written()[writes:] {
		if strings.HasPrefix(request, "PATCH") && strings.Contains(request, "/status ") {
			statuses++
		}
	}
	per := func(n int) float64 { return float64(n) / topics }
	wrote, asked := per(int(f.etcdRevision()-revision)), per(w.requests()-requests)
	t.Logf("%d Topics were applied within %v and served within %v; each took %.2f writes of both etcds and %.2f requests of the operator, %.2f of them of its status",
		topics, applied.Round(time.Millisecond), took.Round(time.Millisecond), wrote, asked, per(statuses))
	if wrote > writesEach || asked > requestsEach || per(statuses) > statusesEach {
		t.Errorf("each Topic took %.2f writes, %.2f requests and %.2f writes of its status, want at most %d, %d and %d", wrote, asked, per(statuses), writesEach, requestsEach, statusesEach)
	}

	before := len(w.written())
	keys := f.revision()
	w.restartOperator(func(o *controllers.Options) { o.PollInterval = 500 * time.Millisecond })
	w.quiet()
	if after := w.written(); len(after) != before {
		t.Errorf("converged, they cost %d writes, such as %v", len(after)-before, after[before:min(len(after), before+5)])
	}
	if now := f.revision(); now != keys {
		t.Errorf("converged, etcd went from revision %d to %d", keys, now)
	}
}

// etcdRevision counts every write of the test's etcd, which is Kubernetes' and the Broker's in one.
func (f *fleet) etcdRevision() int64 {
	f.t.Helper()
	return keys.State(f.t, f.keys).Revision
}
