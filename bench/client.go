package bench

import (
	"context"
	"fmt"
	"sync"
	"time"
)

// A driver opens the connections of one run with one kind of client. The collector hears of
// every message and of every subscriber that is cut off.
type driver interface {
	// subscribe returns when the server has confirmed every subscription.
	subscribe(ctx context.Context, t Target, prefix string, listeners []listener) error
	// connect opens a connection for each publisher.
	connect(ctx context.Context, t Target, subjects []string) ([]publisher, error)
	// close cuts every connection and waits until nothing is delivered any more.
	close()
}

// A publisher sends on one subject. One goroutine at a time.
type publisher interface {
	publish(payload []byte) error
	// flush returns when the server has taken everything that was published.
	flush(ctx context.Context) error
}

func newDriver(client string, c *collector) driver {
	if client == ClientNATS {
		return newNATSDriver(c)
	}
	return newLightDriver(c, newReaders)
}

const (
	connectAtOnce  = 32               // so that a server's accept queue does not overflow
	connectTimeout = 10 * time.Second // of one connection
	writeTimeout   = 5 * time.Second  // a server that takes nothing for so long has failed
)

// inParallel runs do for 0 to n-1, a few at once, and returns the first error.
func inParallel(ctx context.Context, n int, do func(context.Context, int) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var wg sync.WaitGroup
	next := make(chan int)
	for range min(n, connectAtOnce) {
		wg.Go(func() {
			for i := range next {
				if err := do(ctx, i); err != nil {
					cancel(fmt.Errorf("connection %d of %d: %w", i+1, n, err))
				}
			}
		})
	}
	for i := 0; i < n && ctx.Err() == nil; i++ {
		select {
		case next <- i:
		case <-ctx.Done():
		}
	}
	close(next)
	wg.Wait()
	return context.Cause(ctx)
}
