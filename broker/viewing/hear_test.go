package viewing

import (
	"fmt"
	"testing"
	"time"

	"github.com/carillon-mq/carillon/broker/filter"
	"github.com/carillon-mq/carillon/broker/protocol"
	"github.com/carillon-mq/carillon/broker/publish"
	"github.com/carillon-mq/carillon/broker/view"
	"github.com/carillon-mq/carillon/broker/work"
)

// handingOver is links to a leader that hands over what a shard has.
type handingOver struct {
	publish.Hub
	t     *testing.T
	to    *Service[*leader]
	shard *view.Shard
	bytes int // of the last page that was asked for
}

func (h *handingOver) Forward(_ string, m *protocol.Message) (linked bool, behind work.Behind) {
	p, q := &piece{}, &question{}
	data, err := unframed(m.Data, p)
	if err == nil {
		_, err = unframed(data, q)
	}
	h.bytes = q.Bytes
	page, refused := h.shard.HandOverPage(q.from(), q.Bytes)
	if err != nil || refused != nil {
		h.t.Error(err, refused)
		return false, behind
	}
	told := framed(&piece{From: "1", Number: p.Number, Count: 1}, framed(&answer{}, page))
	h.to.Take([]protocol.Message{{Subject: []byte(answerSubject), Data: told}}, nil, true)
	return true, behind
}

// TestALeaderThatIsReadingIsAskedWithPauses: a new leader hands over windows that it has read
// again, and that the owner has. That these fill pages is no reason to ask for the next one at
// once, and the pages are small until they tell something new.
func TestALeaderThatIsReadingIsAskedWithPauses(t *testing.T) {
	t.Parallel()
	of := tumbling(0, 0)
	v, err := view.Compile(of.Spec)
	if err != nil {
		t.Fatal(err)
	}
	const records = 15000
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	fed := func(from *view.Shard, upTo int) *view.Shard {
		for n := int(from.Next()); n < upTo; n++ {
			now := at.Add(time.Duration(n) * time.Second)
			r := filter.Record{Subject: []byte("in.x"), Time: now.UnixNano(), Data: fmt.Appendf(nil, `{"t":%q,"k":"key%d","n":1}`, now.Format(time.RFC3339), n)}
			if err := from.Add(uint64(n), &r); err != nil {
				t.Fatal(err)
			}
		}
		return from
	}
	hub := &handingOver{t: t, shard: fed(v.NewShard(), records)}
	s := New(Config[*leader]{Self: "0", Payload: 4 << 10, Memory: 64 << 20, Hub: hub,
		Shard: func(string, int) (*leader, bool, string) { return nil, false, "1" }})
	hub.to = s
	o := newOwner(s, Place{Topic: "in", Name: "in", Shards: 1}, of, v)
	tenure, err := o.begin()
	if err != nil {
		t.Fatal(err)
	}
	hear := func(what string, bytes int, want bool) {
		t.Helper()
		if full, err := o.hear(t.Context(), tenure); err != nil || full != want || hub.bytes != bytes {
			t.Errorf("%s: asked for %d bytes, and then without a pause: %v; want %d, %v (%v)", what, hub.bytes, full, bytes, want, err)
		}
	}
	hear("the first page", pageBytes, true)
	former := hub.shard
	hub.shard = fed(v.NewShard(), records*2/3)
	page, err := hub.shard.HandOverPage(tenure.engine.Wanted(0), leastPage)
	all, err2 := hub.shard.HandOver(tenure.engine.Wanted(0))
	if err != nil || err2 != nil || len(page) < 1000 || len(all) < 2*len(page) {
		t.Fatalf("of %d bytes of the new leader a page has %d (%v, %v)", len(all), len(page), err, err2)
	}
	hear("a new leader is reading", pageBytes, false)
	for range 3 {
		hear("while it is reading", leastPage, false)
	}
	hub.shard = former
	hear("it has read all", leastPage, true)
	hear("the next page", pageBytes, true)
	for n := 0; tenure.engine.More(0) && n < records; n++ {
		if _, err := o.hear(t.Context(), tenure); err != nil {
			t.Fatal(err)
		}
	}
	if full, err := o.hear(t.Context(), tenure); err != nil || full {
		t.Errorf("when the owner has all it asks again without a pause: %v (%v)", full, err)
	}
}
