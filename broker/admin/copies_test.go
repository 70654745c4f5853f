package admin

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/carillon-mq/carillon/internal/testutil"
)

// TestABrokerReportsWhenItsCopiesWereScrubbed: a broker says how long ago its copies of a Topic
// were scrubbed. Those of another broker are asked for there, once.
func TestABrokerReportsWhenItsCopiesWereScrubbed(t *testing.T) {
	n := startNode(t, nil)
	for range 5 {
		n.publish(strings.Repeat("x", 5000)) // a segment has 8 KiB
	}
	testutil.EventuallyTrue(t, "a segment is sealed", func() bool { return n.topics.ByID("o").Shards()[0].Unscrubbed() > 0 })
	var told TopicCopies
	if m := n.answer(n.ask(TopicCopiesSubject+"orders.a", "", false)); json.Unmarshal(m.Data, &told) != nil {
		t.Fatalf("it answers %s", m.Data)
	}
	if told.Error != nil || told.Broker == nil || told.Broker.Name != "main-0" || len(told.Copies) != 1 || told.Copies[0].Shard != 0 || told.Copies[0].Unscrubbed <= 0 {
		t.Errorf("it tells %+v", told)
	}
	var none TopicCopies
	if m := n.answer(n.ask(TopicCopiesSubject+"bills.a", "", false)); json.Unmarshal(m.Data, &none) != nil || none.Error != nil || len(none.Copies) != 0 {
		t.Errorf("of a Topic of which it has no copy it tells %s", m.Data)
	}
	n.ask(TopicCopiesSubject+"bills.b", "", false)
	if m := n.answer("to b"); string(m.Data) != TopicCopiesSubject+"bills.b" {
		t.Errorf("it forwards %q", m.Data)
	}
	for subject, code := range map[string]Code{
		"nothing.a": NotFound, "orders.c": NotFound, "orders": BadRequest, "orders.a.b": BadRequest,
	} {
		if why := n.refusal(n.ask(TopicCopiesSubject+subject, "", false)); why.Code != code {
			t.Errorf("%s: %+v", subject, why)
		}
	}
	if why := n.refusal(n.ask(TopicCopiesSubject+"bills.b", "", true)); why.Code != Unavailable {
		t.Errorf("forwarded again: %+v", why)
	}
}
