package topic

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/carillon-mq/carillon/broker/coordination"
)

// TestAHeaderThatAsksForNothingChangesNothing: messages without a header are answered and kept as
// those with one that asks for nothing, whatever the Topic has rules for, also behind messages that
// ask for something.
func TestAHeaderThatAsksForNothingChangesNothing(t *testing.T) {
	for name, change := range map[string]func(*coordination.TopicSpec){
		"no rule": func(*coordination.TopicSpec) {},
		"ids":     func(s *coordination.TopicSpec) { s.Deduplication = 1 << 40 },
		"rollups": func(s *coordination.TopicSpec) { s.Stream.AllowRollup = true },
		"limit":   func(s *coordination.TopicSpec) { s.Stream.MaxPerSubject = 1 },
		"limit that refuses": func(s *coordination.TopicSpec) {
			s.Stream.MaxPerSubject, s.Stream.DiscardNew, s.Stream.DiscardNewPerSubject = 1, true, true
		},
		"bound":    func(s *coordination.TopicSpec) { s.Stream.DiscardNew, s.Retention.Messages = true, 3 },
		"sealed":   func(s *coordination.TopicSpec) { s.Stream.DiscardNew, s.Stream.Sealed = true, true },
		"counters": func(s *coordination.TopicSpec) { s.Stream.AllowCounter = true },
		"largest":  func(s *coordination.TopicSpec) { s.MaxMessage = 64 },
		"republish": func(s *coordination.TopicSpec) {
			s.Stream.Republish = &coordination.Republish{Source: ">", Destination: "again.>"}
		},
	} {
		t.Run(name, func(t *testing.T) {
			story := func(none ...string) (told []string) {
				n := newSite(t)
				n.again = &listener{}
				n.topic("orders", change)
				n.serve("orders")
				told = append(told, n.ask("orders.eu", "a", none...), n.ask("orders.eu", "b", "Id: b"), n.ask("orders.us", "c", none...),
					n.ask("orders.us", string(make([]byte, 80-len(message("", "", "", none...).Data))), none...), n.ask("orders.us", "d", "Expect-Last-Id: b"), n.ask("orders.us", "d", "Rollup: sub"),
					n.ask("orders.us", "e", none...), n.ask("orders.eu", "f", none...), n.ask("orders.us", "g", "Expect-Last-By-Subject: 3"))
				kept := left(t, n.leading())
				if n.topics["orders"].Spec.Stream.Republish != nil {
					n.eventually("all are published again", func() bool { return n.service.Stats().Republish.Published == uint64(len(kept)) })
				}
				return append(told, kept...)
			}
			if bare, with := story(), story("Other: nothing"); !slices.Equal(bare, with) {
				t.Errorf("without a header: %q\nwith one: %q", bare, with)
			}
		})
	}
}

// TestARefusedBatchChangesNoMessageOfAnotherTopic: what a message of the batch would have removed
// stays known where a message without a header comes next.
func TestARefusedBatchChangesNoMessageOfAnotherTopic(t *testing.T) {
	n := newSite(t)
	n.takesBatches(func(s *coordination.TopicSpec) { s.Stream.AllowRollup = true })
	n.topic("plain", nil)
	n.serve("orders", "plain")
	n.expect(n.ask("orders.a", "1"), "orders@1")
	n.expect(n.ask("plain.a", "1"), "plain@1")
	n.expect(n.ask("plain.b", "2", "Expect-Last-By-Subject: 0"), "plain@2")
	for last := 2; last < 20; last++ { // what is reused is by chance
		n.expect(n.ask("plain.c", "x"), fmt.Sprintf("plain@%d", last+1))
		if got := n.batch("x", "orders.a 1 Rollup:all", "orders.b 2 Expect-Last-Id:x"); !strings.HasPrefix(got, "no: ") {
			t.Fatalf("the batch was answered %q", got)
		}
	}
	n.expect(n.ask("plain.c", "x"), "plain@21")
	n.expect(n.ask("plain.a", "y", "Expect-Last-By-Subject: 1"), "plain@22")
}
