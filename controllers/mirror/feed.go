package mirror

import (
	"context"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"
)

// Feed brings names of manifests to the queue of their controller. It never blocks; the queue has
// each name once.
type Feed struct {
	Delay time.Duration // what comes within it is one look

	mu      sync.Mutex
	queue   workqueue.TypedRateLimitingInterface[reconcile.Request]
	waiting map[types.NamespacedName]bool // until there is a queue
}

// Source is what the controller is given.
func (f *Feed) Source() source.Source {
	return source.Func(func(_ context.Context, queue workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.queue = queue
		for name := range f.waiting {
			queue.AddAfter(reconcile.Request{NamespacedName: name}, f.Delay)
		}
		f.waiting = nil
		return nil
	})
}

// Add asks for a look at that manifest.
func (f *Feed) Add(name types.NamespacedName) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.queue != nil {
		f.queue.AddAfter(reconcile.Request{NamespacedName: name}, f.Delay)
		return
	}
	if f.waiting == nil {
		f.waiting = map[types.NamespacedName]bool{}
	}
	f.waiting[name] = true
}
