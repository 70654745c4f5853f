package coordination

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
)

// TestOfDeadLettersThatGoInACircleOneIsRefused: also if their Subscriptions are made, or changed,
// at the same moment.
func TestOfDeadLettersThatGoInACircleOneIsRefused(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	etcd := startEtcd(t)
	c := etcd.open()
	topics := []string{"a", "b", "c"}
	for _, name := range topics {
		c.mustCreate(t, name, spec(name, name+".>"), client)
	}
	write := map[string]func(c *Client, from int, name string) error{
		"made": func(c *Client, from int, name string) error {
			_, err := c.CreateSubscription(ctx, topics[from], name, SubscriptionSpec{DeadLetter: topics[(from+1)%3]}, client)
			return err
		},
		"changed": func(c *Client, from int, name string) error {
			_, err := c.UpdateSubscription(ctx, topics[from], "plain", SubscriptionUpdate{By: client, Spec: SubscriptionSpec{DeadLetter: topics[(from+1)%3]}})
			return err
		},
	}
	for _, topic := range topics {
		if _, err := c.CreateSubscription(ctx, topic, "plain", SubscriptionSpec{}, client); err != nil {
			t.Fatal(err)
		}
	}
	clients := []*Client{c, etcd.open(), etcd.open()}
	for how, write := range write {
		for round := range 20 {
			name := fmt.Sprintf("%s-%d", how, round)
			errs := make([]error, 3)
			var all sync.WaitGroup
			for from := range topics {
				all.Go(func() { errs[from] = write(clients[from], from, name) })
			}
			all.Wait()
			stored, refused := 0, 0
			for _, err := range errs {
				var invalid *InvalidError
				switch {
				case err == nil:
					stored++
				case errors.As(err, &invalid) && strings.Contains(err.Error(), "come back for ever"):
					refused++
				default:
					t.Error(err)
				}
			}
			if stored != 2 || refused != 1 {
				t.Fatalf("%s: %d were stored, %d refused", name, stored, refused)
			}
			for _, topic := range topics {
				if how == "changed" {
					if _, err := c.UpdateSubscription(ctx, topic, "plain", SubscriptionUpdate{By: client}); err != nil {
						t.Fatal(err)
					}
				} else if err := c.DeleteSubscription(ctx, topic, name, 0, client); err != nil {
					var none *NotFoundError
					if !errors.As(err, &none) {
						t.Fatal(err)
					}
				}
			}
		}
	}
}
