//go:build linux

package devcluster

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/carillon-mq/carillon/broker/admin"
	"github.com/carillon-mq/carillon/broker/attribute"
	"github.com/carillon-mq/carillon/broker/coordination"
	"github.com/carillon-mq/carillon/broker/lapse"
	"github.com/carillon-mq/carillon/internal/testutil"
)

// changes is what a follower of all attributes was told.
type changes struct {
	mu   sync.Mutex
	told []attribute.Event
}

// followAttributes follows the attributes of subjects beside the brokers.
func (c *cluster) followAttributes() (*attribute.Store, *changes) {
	c.t.Helper()
	all, err := coordination.OpenAttributes(coordination.Config{Endpoints: []string{c.endpoint()}, Cluster: "local/dev"}, attribute.NewStore())
	testutil.Must(c.t, err)
	seen := &changes{}
	if _, ok := all.Store().Tell(func(e attribute.Event) {
		seen.mu.Lock()
		defer seen.mu.Unlock()
		seen.told = append(seen.told, e)
	}); !ok {
		c.t.Fatal("nobody may be told")
	}
	ctx, cancel := context.WithCancel(context.Background())
	var following sync.WaitGroup
	following.Go(func() { all.Follow(ctx) })
	c.t.Cleanup(func() {
		cancel()
		following.Wait()
		_ = all.Close()
	})
	return all.Store(), seen
}

// setAttributes requests changes, again until they are made: a broker that has just started may
// know none yet.
func (c *cluster) setAttributes(nc *nats.Conn, bound *bool, subjects ...string) {
	c.t.Helper()
	for len(subjects) > 0 {
		n := min(len(subjects), attribute.MaxChanges)
		var request admin.AttributesRequest
		for _, s := range subjects[:n] {
			request.Changes = append(request.Changes, admin.AttributesChange{Subject: s, Set: attribute.Set{"room": attribute.String("410")}, Bound: bound})
		}
		payload, err := json.Marshal(request)
		testutil.Must(c.t, err)
		testutil.Eventually(c.t, "attributes are set", func() error {
			got, err := nc.Request(admin.AttributesSetSubject, payload, answerTime)
			if err != nil {
				return err
			}
			var answer admin.AttributesResults
			if err := json.Unmarshal(got.Data, &answer); err != nil || answer.Error != nil {
				return errors.Join(err, fmt.Errorf("it was answered by %s", got.Data))
			}
			for _, result := range answer.Results {
				if result.Error != nil {
					return errors.New(result.Error.Text)
				}
			}
			return nil
		})
		subjects = subjects[n:]
	}
}

// TestAttributesLapseOnceWithTheirBrokers: a broker is killed and another one is ended in order.
// Both are started again at once. What their clients had bound goes, each subject once and in
// batches. What the clients claim from another broker, and what was not bound, stays, and nobody
// sees a difference.
func TestAttributesLapseOnceWithTheirBrokers(t *testing.T) {
	t.Parallel()
	const each = 300
	c := startCluster(t)
	store, seen := c.followAttributes()
	bound, unbound := true, false
	want := map[string]bool{} // the subjects, and whether they are to stay
	var claimed []string
	for broker := range 2 {
		nc, err := nats.Connect(c.urls[broker], nats.NoReconnect(), nats.IgnoreDiscoveredServers(), nats.Timeout(answerTime))
		testutil.Must(t, err)
		defer nc.Close()
		var mine []string
		for i := range each {
			subject := fmt.Sprintf("held.%d.%d", broker, i)
			mine, want[subject] = append(mine, subject), i%3 == 0
			if i%3 == 0 {
				claimed = append(claimed, subject)
			}
		}
		c.setAttributes(nc, &bound, mine...)
		free := fmt.Sprintf("free.%d", broker)
		c.setAttributes(nc, &unbound, free)
		want[free] = true
	}
	testutil.EventuallyTrue(t, "all attributes are seen", func() bool { return store.Stats().Subjects == len(want) })
	heir, err := nats.Connect(c.urls[2], nats.NoReconnect(), nats.IgnoreDiscoveredServers(), nats.Timeout(answerTime))
	testutil.Must(t, err)
	defer heir.Close()
	c.kill(0)
	c.signal(syscall.SIGTERM, 1)
	died := time.Now()
	c.setAttributes(heir, &bound, claimed...)
	late := time.Since(died) >= lapse.Grace // on a starved machine, they may have lapsed before
	testutil.EventuallyTrue(t, "what nobody claimed has lapsed", func() bool { return store.Stats().Subjects == len(claimed)+2 })

	// A connection of a restarted broker may have the number of an earlier one. It holds nothing.
	again, err := nats.Connect(c.urls[0], nats.MaxReconnects(-1), nats.RetryOnFailedConnect(true), nats.IgnoreDiscoveredServers())
	testutil.Must(t, err)
	defer again.Close()
	c.setAttributes(again, &bound, "last")
	testutil.EventuallyTrue(t, "a change after that is seen", func() bool { return store.Get("last").Text != "" })
	seen.mu.Lock()
	defer seen.mu.Unlock()
	begun, gone, batches := map[string]int{}, map[string]int{}, map[int64]bool{}
	for _, e := range seen.told {
		switch {
		case e.Before == nil:
			begun[e.Subject]++
		case e.After == nil:
			gone[e.Subject]++
			batches[e.Revision] = true
		default:
			t.Errorf("subject %s changed: %+v", e.Subject, e)
		}
	}
	for subject, stays := range want {
		ends := 1
		if stays {
			ends = 0
		}
		if stays && late {
			ends = begun[subject] - 1
		}
		if begun[subject] != 1 && !(stays && late) || gone[subject] != ends {
			t.Errorf("the attributes of subject %s came %d times and went %d times, want once and %d times", subject, begun[subject], gone[subject], ends)
		}
		if (store.Get(subject).Text != "") != stays {
			t.Errorf("subject %s has the attributes %q", subject, store.Get(subject).Text)
		}
	}
	// The subjects of two brokers lapsed, 200 of each, in batches of up to a hundred. A batch whose
	// answer was lost may have had only a part of them.
	if lapsed := len(want) - len(claimed) - 2; len(batches) > lapsed/20 {
		t.Errorf("%d subjects lapsed in %d transactions", lapsed, len(batches))
	}
	if holders := store.Holders(); len(holders) != 2 {
		t.Errorf("attributes are held by %+v, want the two connections that are there", holders)
	}
}
