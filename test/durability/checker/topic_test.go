package checker

import (
	"strings"
	"testing"
)

// TestSubjectsOfShards: the shard of a subject never changes, so neither do these subjects. Every
// publisher has a subject of its own.
func TestSubjectsOfShards(t *testing.T) {
	topic := NewTopic("orders", 4)
	got, seen := "", map[string]bool{}
	for _, h := range topic.Shards {
		for publisher := range 3 {
			subject := h.subject(publisher)
			if got += subject + " "; seen[subject] {
				t.Errorf("%s is that of two publishers", subject)
			}
			seen[subject] = true
		}
	}
	if want := "orders.p0.0 orders.p1.1 orders.p2.2 orders.p0.3 orders.p1.2 orders.p2.1 orders.p0.2 orders.p1.3 orders.p2.0 orders.p0.1 orders.p1.0 orders.p2.3 "; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if one := NewTopic("orders", 1); one.Shards[0].Stream != "orders" || one.Shards[0].subject(2) != "orders.p2" {
		t.Errorf("of one shard: stream %s, subject %s", one.Shards[0].Stream, one.Shards[0].subject(2))
	}
}

// TestAConsumerMissesAShard: a delivery to a consumer of the whole Topic counts for its shard, and
// a shard without deliveries is found.
func TestAConsumerMissesAShard(t *testing.T) {
	topic := NewTopic("orders", 2)
	stream := map[*History][]Entry{}
	for _, h := range topic.Shards {
		h.expect("billing")
		v := h.Intend(h.NewPublisher())
		h.Acked(v, 1)
		stream[h] = []Entry{{1, Encode(h.Stream, v)}}
	}
	first, second := topic.Shards[0], topic.Shards[1]
	topic.shard("orders--0").Delivered("billing", 1, stream[first][0].Payload)
	if err := first.Judge(stream[first]).Err(); err != nil {
		t.Error(err)
	}
	if v := second.Judge(stream[second]); v.Count(Skipped) != 1 {
		t.Errorf("that it got nothing of %s was not found: %v", second.Stream, v.Err())
	}
	first.astray("billing", "clicks--0")
	if err := first.Judge(stream[first]).Err(); err == nil || !strings.Contains(err.Error(), `of stream "clicks--0"`) {
		t.Errorf("a message of another Topic: %v", err)
	}
	if topic.shard("orders") != nil {
		t.Error("the Topic's own name is none of its streams")
	}
}
