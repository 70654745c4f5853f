package topic

import (
	"slices"
	"testing"
)

func TestWhatIsPublishedIsKeptAndAnswered(t *testing.T) {
	n := newSite(t)
	n.serve("orders")
	n.expect(n.ask("orders.eu", "one"), "orders@1")
	n.expect(n.ask("orders.us", "two"), "orders@2")
	n.hub.publish(message("orders.eu", "", "nobody waits for an answer"))
	n.expect(n.ask("orders.eu", "four"), "orders@4")
	want := []string{"1 orders.eu one", "2 orders.us two", "3 orders.eu nobody waits for an answer", "4 orders.eu four"}
	if got := n.read("orders"); !slices.Equal(got, want) {
		t.Fatalf("kept %q", got)
	}
	n.restart("orders")
	if got := n.read("orders"); !slices.Equal(got, want) {
		t.Fatalf("kept after a restart: %q", got)
	}
	n.expect(n.ask("orders.eu", "five"), "orders@5")
	if e := n.service.Topic("orders").Shard().Epoch(); e != 2 {
		t.Errorf("epoch %d", e)
	}
}
