package replica

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/carillon-mq/carillon/broker/coordination"
	"github.com/carillon-mq/carillon/broker/env"
	"github.com/carillon-mq/carillon/broker/env/crashfs"
	"github.com/carillon-mq/carillon/broker/log"
)

// TestRandomFaultsLoseNoAcknowledgedRecord: three brokers and one shard with random faults: in the
// end each acknowledged record is on all brokers, at its offset.
func TestRandomFaultsLoseNoAcknowledgedRecord(t *testing.T) {
	for seed := range uint64(50) {
		t.Run(fmt.Sprint("seed=", seed), func(t *testing.T) {
			story(t, "", func(w *world) { whatever(w, rand.New(rand.NewPCG(seed, 4))) })
		})
	}
}

func whatever(w *world, dice *rand.Rand) {
	w.minInSync = 2
	all := []string{"a", "b", "c"}
	disks := map[string]env.FS{}
	for _, id := range all {
		w.start(id, crashfs.New())
	}
	w.place(orders, 1, "a b c")
	acked := map[uint64]string{} // by offset
	texts := map[uint64]string{} // appended by the present leader
	n := 0
	leader := func() *node { return w.nodes[w.store.shard(orders).Leader] }
	note := func() {
		if l := leader(); l != nil && l.leads[orders] != nil {
			for offset, text := range texts {
				if offset < l.leads[orders].High(Data) {
					acked[offset] = text
				}
			}
		}
	}
	// elect makes another member of the set the leader, if its incarnation is the one that the set
	// names.
	elect := func() {
		before := w.store.shard(orders)
		var can []coordination.Replica
		for _, m := range before.InSync {
			if m.Broker != before.Leader && w.nodes[m.Broker] != nil && (w.store.lives()[m.Broker] == m.Incarnation) {
				can = append(can, m)
			}
		}
		if len(can) == 0 {
			return
		}
		note()
		after := *before
		after.Epoch++
		after.Leader = can[dice.IntN(len(can))].Broker
		w.store.put(&after)
		texts = map[uint64]string{}
		w.spread()
	}
	// All members of the last set may have died together. What was synced is on their disks, so
	// each counts in its next incarnation.
	readmit := func() {
		before := w.store.shard(orders)
		after := *before
		after.InSync = slices.Clone(before.InSync)
		for i, m := range after.InSync {
			if now := w.store.lives()[m.Broker]; now != 0 {
				after.InSync[i].Incarnation = now
			}
		}
		if !same(after.InSync, before.InSync) {
			w.store.put(&after)
			w.spread()
		}
	}
	for range 60 {
		id, other := all[dice.IntN(3)], all[dice.IntN(3)]
		switch dice.IntN(12) {
		default:
			if l := leader(); l != nil && l.leads[orders] != nil {
				for range 1 + dice.IntN(20) {
					n++
					text := fmt.Sprintf("%d of epoch %d %s", n, l.leads[orders].epoch, strings.Repeat("x", dice.IntN(500)))
					texts[l.append(orders, Data, true, text)-1] = text
					l.append(orders, State, dice.IntN(2) == 0, text)
				}
			}
		case 4:
			w.wires.freeze(id, other)
		case 5:
			w.wires.thaw(id, other)
		case 6:
			w.wires.reset(id)
		case 7:
			w.wires.breakAfter(id, other, dice.IntN(2000))
		case 8:
			if w.nodes[id] != nil {
				note()
				lead := leader() != nil && leader().id == id
				disks[id] = w.nodes[id].kill()
				if lead {
					texts = map[uint64]string{}
					elect()
				}
			}
		case 9:
			if w.nodes[id] == nil {
				w.start(id, disks[id])
				readmit()
				if leader() == nil {
					elect()
				}
			}
		case 10:
			elect()
		case 11:
			if l := leader(); l != nil && l.leads[orders] != nil {
				if high := l.leads[orders].High(Data); high > 20 {
					_, _ = l.logs[orders][Data].Trim(high - 20)
				}
			}
		}
		time.Sleep(time.Duration(dice.IntN(400)) * time.Millisecond)
		note()
	}
	for _, from := range all {
		for _, to := range all {
			w.wires.thaw(from, to)
		}
	}
	w.wires.mu.Lock()
	clear(w.wires.breakIn)
	w.wires.mu.Unlock()
	for _, id := range all {
		if w.nodes[id] == nil {
			w.start(id, disks[id])
		}
	}
	readmit()
	before := w.store.shard(orders)
	if l := leader(); l.leads[orders] == nil || !slices.Contains(before.InSync, coordination.Replica{Broker: l.id, Incarnation: w.store.lives()[l.id]}) {
		elect()
	}
	w.spread()
	w.within(30*time.Second, "all are in sync", func() bool { return w.inSync(orders, "a b c") })
	leader().publish(orders, "the last")
	time.Sleep(3 * time.Second) // until nothing is trimmed any more
	w.within(5*time.Second, "the logs are equal", func() bool { return w.equal(orders, "a b c") })
	l := leader().logs[orders][Data]
	found := map[uint64]string{}
	for c := l.NewCursor(l.Start()); ; {
		v, err := c.Read(1 << 20)
		if err != nil {
			w.t.Fatal(err)
		}
		if v.From == v.End {
			break
		}
		for b, ok := v.Next(); ok; b, ok = v.Next() {
			it := b.Records()
			for r := (log.Record{}); it.Next(&r); {
				found[r.Offset] = string(r.Data)
			}
		}
		v.Release()
	}
	for _, offset := range slices.Sorted(maps.Keys(acked)) {
		if offset >= l.Start() && found[offset] != acked[offset] {
			w.t.Errorf("offset %d was acknowledged as %.20q and is %.20q", offset, acked[offset], found[offset])
		}
	}
	if len(acked) == 0 {
		w.t.Error("nothing was acknowledged")
	}
	for id, n := range w.nodes {
		for _, trouble := range []string{"Ended a replication connection for what came over it"} {
			if strings.Contains(n.out.String(), trouble) {
				w.t.Errorf("%s: %s", id, n.out.String())
			}
		}
	}
}
