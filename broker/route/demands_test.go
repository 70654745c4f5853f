package route

import (
	"fmt"
	"testing"

	"github.com/carillon-mq/carillon/broker/coordination"
	"github.com/carillon-mq/carillon/internal/testutil"
)

func demanding(n *notices) func(*Config) {
	return func(c *Config) {
		c.Demands, c.Features = n.take, coordination.MakeFeatureSet(coordination.FeatureDividedLimits)
	}
}

// TestReportsReachBrokersThatUnderstandThem, in order. Brokers of earlier versions get none, and
// keep their links.
func TestReportsReachBrokersThatUnderstandThem(t *testing.T) {
	ca := newAuthority(t)
	var ofB notices
	a, b := startNode(t, "a", ca, demanding(&notices{})), startNode(t, "b", ca, demanding(&ofB))
	early := startNode(t, "c", ca)
	early.hub.set("work", "", 1)
	linkAll(t, a, b, early)
	before := early.links()
	for i := range 100 {
		a.Report(fmt.Append(nil, i))
	}
	testutil.EventuallyTrue(t, "all have arrived", func() bool { return len(ofB.list()) == 100 })
	for i, got := range ofB.list() {
		if want := fmt.Sprint("a ", i); got != want {
			t.Fatalf("report %d is %q", i, got)
		}
	}
	a.hub.publish("work", "behind the reports")
	testutil.EventuallyTrue(t, "the earlier one has read on", func() bool { return len(early.hub.messages()) == 1 })
	for _, l := range before {
		if !l.alive() {
			t.Error("an earlier broker has lost a link")
		}
	}
}

// TestABrokenReportEndsItsLink, and one that the receiver has not asked for.
func TestABrokenReportEndsItsLink(t *testing.T) {
	ca := newAuthority(t)
	a, b := startNode(t, "a", ca, demanding(&notices{})), startNode(t, "b", ca, demanding(&notices{}))
	early := startNode(t, "c", ca)
	linkAll(t, a, b, early)
	link := func(from *testNode, to string) *link {
		for _, l := range from.links() {
			if l.peer.ID == to {
				return l
			}
		}
		t.Fatalf("no link to %s", to)
		return nil
	}
	broken, unasked := link(a, "b"), link(a, "c")
	a.Report([]byte("broken"))
	<-broken.done
	unasked.sendControl(func(f *frames) { f.opaque(frameDemands, []byte("x")) })
	<-unasked.done
}
