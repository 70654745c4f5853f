// Package keys reads what a cluster has in etcd, for tests.
package keys

import (
	"context"
	"testing"

	"github.com/carillon-mq/carillon/broker/coordination"
	"github.com/carillon-mq/carillon/internal/testutil"
)

// State reads all keys of a cluster at one revision of etcd. It fails the test after
// testutil.Patience.
func State(t testing.TB, c *coordination.Client) (state *coordination.State) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), testutil.Patience)
	defer cancel()
	err := c.WatchState(ctx, func(first *coordination.State, _ coordination.Changes) {
		if state == nil {
			state = first
			cancel()
		}
	})
	testutil.Must(t, err)
	if state == nil {
		t.Fatalf("the keys of the cluster could not be read within %v", testutil.Patience)
	}
	return state
}
