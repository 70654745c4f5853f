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

// Feed adds names of manifests to the queue of their controller. It never blocks, and the queue has
// each name once.
type Feed struct {
	Delay time.Duration // names within it cause one pass

	mu      sync.Mutex
	queue   workqueue.TypedRateLimitingInterface[reconcile.Request]
	waiting map[types.NamespacedName]bool // names from before the queue existed
}

// Source returns the source for the controller.
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

// Add requests a pass over that manifest.
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
