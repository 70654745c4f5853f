package topic

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/carillon-mq/carillon/broker/coordination"
	"github.com/carillon-mq/carillon/broker/copystate"
	"github.com/carillon-mq/carillon/broker/env/crashfs"
	"github.com/carillon-mq/carillon/broker/log"
	"github.com/carillon-mq/carillon/broker/protocol"
)

// publisher sends "NAME SEQ" to one Topic in order, with ids, and sends again what was not
// acknowledged.
type publisher struct {
	name, topic string
	next        int
	unsure      []int // sent and not acknowledged, in order
}

func (p *publisher) message(seq, life int) protocol.Message {
	text := fmt.Sprintf("%s %d", p.name, seq)
	return message(p.topic+"."+p.name, fmt.Sprintf("%s/%d/%d", p.name, seq, life), text, "Id: "+text)
}

// promises is what a Topic was said to hold.
type promises struct {
	acked  map[string]uint64 // offsets by text
	seen   uint64            // greatest end that a reader saw
	purged uint64            // records below may be gone
	start  uint64            // records below must be gone
}

// TestAPowerCutLosesNoAcknowledgedMessage: the power is cut at any step, repeatedly; publishers
// repeat messages without an ack.
func TestAPowerCutLosesNoAcknowledgedMessage(t *testing.T) {
	t.Parallel()
	seeds := uint64(300)
	if testing.Short() {
		seeds = 50
	}
	for seed := range seeds {
		cutPower(t, seed)
		if t.Failed() {
			t.Fatalf("seed %d", seed)
		}
	}
}

func cutPower(t *testing.T, seed uint64) {
	rng := rand.New(rand.NewPCG(seed, 7))
	n := newSite(t)
	defer n.stop()
	topics := []string{"orders", "bills"}[:1+rng.IntN(2)]
	held := map[string]*promises{}
	var publishers []*publisher
	for _, name := range topics {
		n.topic(name, func(s *coordination.TopicSpec) { s.Deduplication = time.Hour })
		held[name] = &promises{acked: map[string]uint64{}, start: 1, purged: 1}
		for i := range 1 + rng.IntN(3) {
			publishers = append(publishers, &publisher{name: fmt.Sprintf("%s-%d", name, i), topic: name})
		}
	}
	fs := crashfs.New()
	lives := 2 + rng.IntN(3)
	for life := range lives {
		n.fs = fs
		n.serve(topics...)
		for _, name := range topics {
			if err := held[name].check(n, name); err != nil {
				t.Errorf("life %d, topic %s: %v", life, name, err)
				return
			}
		}
		if life < lives-1 { // the last one is let live
			fs.StopAfter(rng.IntN(120))
		}
		sent := map[string]bool{}
		for _, p := range publishers { // first of all, what may have been lost
			var read []protocol.Message
			for _, seq := range p.unsure {
				read = append(read, p.message(seq, life))
				sent[string(read[len(read)-1].Reply)] = true
			}
			n.hub.publish(read...)
		}
		for range 5 + rng.IntN(60) {
			p := publishers[rng.IntN(len(publishers))]
			var read []protocol.Message
			for range 1 + rng.IntN(12) {
				read = append(read, p.message(p.next, life))
				sent[string(read[len(read)-1].Reply)] = true
				p.unsure = append(p.unsure, p.next)
				p.next++
			}
			n.hub.publish(read...)
			name := topics[rng.IntN(len(topics))]
			s, h := n.service.Topic(name).Shard(), held[name]
			if s == nil {
				continue
			}
			switch rng.IntN(10) {
			case 0:
				start, end := s.Offsets()
				below := start + rng.Uint64N(end-start+1)
				h.purged = max(h.purged, below)
				if purged, err := s.Purge(context.Background(), below); err == nil {
					h.start = max(h.start, start+purged)
				}
			case 1, 2:
				_, end := s.Offsets()
				h.seen = max(h.seen, end)
			case 3:
				n.eventually("answers", func() bool { return n.service.Stats().Unanswered == 0 })
			}
		}
		n.stop()
		for reply := range sent {
			if got := n.hub.answers[reply]; len(got) != 1 {
				t.Errorf("life %d: %d answers to %s: %q", life, len(got), reply, got)
				return
			}
		}
		for _, p := range publishers {
			p.learn(t, n.hub, life, held[p.topic])
		}
		if life < lives-1 {
			fs = fs.Crash(rng)
		}
	}
	n.fs = fs
	n.serve(topics...)
	for _, name := range topics {
		if err := held[name].check(n, name); err != nil {
			t.Errorf("in the end, topic %s: %v", name, err)
		}
	}
}

// TestNoCrashMakesALogThatWasLostPassForWhole: a broker comes back without the log of a shard that
// counts on it, makes it anew, and its power is cut at every step of that. No step leaves a log
// that the next process takes for whole.
func TestNoCrashMakesALogThatWasLostPassForWhole(t *testing.T) {
	t.Parallel()
	made := false
	for steps, over := 0, false; !over; steps++ {
		n := newSite(t)
		n.topic("orders", nil)
		n.shards["id-orders"] = &coordination.Shard{Topic: "id-orders", Epoch: 2, Replicas: []string{self, "broker-b"},
			InSync: []coordination.Replica{{Broker: self, Incarnation: 1}, {Broker: "broker-b", Incarnation: 1}}, Revision: 1}
		n.startAgain() // in another incarnation
		fs := n.fs.(*crashfs.FS)
		fs.StopAfter(steps)
		n.tell()
		p := n.service.Topic("orders").shards[0]
		n.eventually("it has opened its copy, or died", func() bool {
			over = p.opened.Load() != nil
			return over || p.trouble.Load() != nil
		})
		n.stop()
		for seed := range uint64(8) {
			d, err := log.OpenDisk(fs.Clone().Crash(rand.New(rand.NewPCG(seed, uint64(steps)))), "data", n.options)
			if err != nil {
				t.Fatal(err)
			}
			stored, there := d.Stored("id-orders-0")
			if made = made || there; there && !copystate.Decode(stored.Meta.Copy).Grave() {
				t.Errorf("step %d, seed %d: %+v", steps, seed, stored)
			}
			if err := d.Close(); err != nil {
				t.Fatal(err)
			}
		}
	}
	if !made {
		t.Error("no log was made")
	}
}

// TestACopyThatAnEarlierVersionCalledPartialIsInDoubt: version 018b7c1 called a copy partial in the
// spec beside its log. That counts until the manifest has a state.
func TestACopyThatAnEarlierVersionCalledPartialIsInDoubt(t *testing.T) {
	n := newSite(t)
	d, err := log.OpenDisk(n.fs, "data", n.options)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := d.Open(log.Identity{Topic: "id-orders"}, 1, 7, []byte(`{"v":1,"name":"orders","id":"id-orders","partial":true}`)); err != nil {
		t.Fatal(err)
	}
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	n.doubt = true
	n.serve("orders")
	if trouble := n.service.Topic("orders").Trouble(); !strings.Contains(trouble, "was not there in epoch 7 and begins anew") {
		t.Errorf("trouble: %q", trouble)
	}
	n.doubt = false
	n.restart("orders")
	if trouble := n.service.Topic("orders").Trouble(); trouble != "" {
		t.Errorf("it led in doubt, and is in doubt again: %q", trouble)
	}
}

// learn notes what was acknowledged.
func (p *publisher) learn(t *testing.T, hub *testHub, life int, h *promises) {
	var unsure []int
	for _, seq := range p.unsure {
		answers := hub.answers[fmt.Sprintf("%s/%d/%d", p.name, seq, life)]
		at, ok := strings.CutPrefix(answers[0], p.topic+"@")
		if !ok {
			unsure = append(unsure, seq)
			continue
		}
		offset, err := strconv.ParseUint(strings.TrimSuffix(at, " again"), 10, 64)
		if err != nil {
			t.Errorf("answered %q", answers[0])
		}
		h.acked[fmt.Sprintf("%s %d", p.name, seq)] = offset
	}
	p.unsure = unsure
}

// check holds what a Topic has after a crash to what was promised.
func (h *promises) check(n *site, name string) error {
	s := n.service.Topic(name).Shard()
	start, end := s.Offsets()
	switch {
	case start < h.start || start > h.purged:
		return fmt.Errorf("it begins at %d; purged up to %d, asked for %d", start, h.start, h.purged)
	case end < h.seen:
		return fmt.Errorf("it ends at %d, and readers had seen %d", end, h.seen)
	}
	records, err := readAll(s)
	if err != nil {
		return err
	}
	at := map[string]uint64{}
	last := map[string]int{}
	for i, r := range records {
		var offset uint64
		var on, who string
		var seq int
		if _, err := fmt.Sscanf(r, "%d %s %s %d", &offset, &on, &who, &seq); err != nil || offset != start+uint64(i) || on != name+"."+who {
			return fmt.Errorf("there is %q at %d", r, start+uint64(i))
		}
		text := fmt.Sprintf("%s %d", who, seq)
		if twice, ok := at[text]; ok {
			return fmt.Errorf("%q is there twice, at %d and %d", text, twice, offset)
		}
		at[text] = offset
		if before, ok := last[who]; ok && seq != before+1 {
			return fmt.Errorf("%q follows %s %d", text, who, before)
		}
		last[who] = seq
	}
	for text, offset := range h.acked {
		if offset >= end || offset >= start && at[text] != offset {
			return fmt.Errorf("%q was acknowledged at %d and is at %d of %d up to %d", text, offset, at[text], start, end)
		}
	}
	h.start = start
	return nil
}
