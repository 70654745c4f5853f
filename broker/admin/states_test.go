package admin

import (
	"testing"

	"github.com/carillon-mq/carillon/broker/coordination"
)

// TestStatesComeInPages: pages of Subscriptions neither overlap nor leave one out, and one that is
// named is alone.
func TestStatesComeInPages(t *testing.T) {
	c := startAdmin(t)
	topic, err := c.CreateTopic(t.Context(), "orders", coordination.TopicSpec{Subjects: []string{"orders.>"}, Shards: 1}, coordination.Owner{Kind: coordination.ClientOwner})
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"a", "b", "c", "d", "e"} {
		if _, err := c.CreateSubscription(t.Context(), "orders", name, coordination.SubscriptionSpec{}, coordination.Owner{Kind: coordination.ClientOwner}); err != nil {
			t.Fatal(err)
		}
	}
	c.await("all are known", func(s *coordination.State) bool { return len(s.Subscriptions(topic.ID)) == 5 })
	v, seen := c.server.view(), ""
	for after, pages := "", 0; ; pages++ {
		page := v.statesPage(topic.ID, "", ListRequest{After: after, Limit: 2})
		for _, name := range []string{"a", "b", "c", "d", "e"} {
			if page.has(name) {
				seen += name
			}
		}
		if after = page.next; after == "" {
			if pages != 2 || seen != "abcde" {
				t.Errorf("%d pages had %s", pages+1, seen)
			}
			break
		}
	}
	if one := v.statesPage(topic.ID, "c", ListRequest{Limit: 2}); !one.has("c") || one.has("b") || one.next != "" {
		t.Errorf("the page of one is %+v", one)
	}
}
