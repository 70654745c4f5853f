package admin

import (
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/carillon-mq/carillon/broker/coordination"
)

const ordersSnapshot = SnapshotSubject + "orders.0"

func (n *node) snapshot(payload string) (got SnapshotAnswer) {
	n.Helper()
	return n.snapshotOf(ordersSnapshot, payload)
}

func (n *node) snapshotOf(subject, payload string) (got SnapshotAnswer) {
	n.Helper()
	m := n.answer(n.ask(subject, payload, false))
	if err := json.Unmarshal(m.Data, &got); err != nil {
		n.Fatalf("%s: %v", m.Data, err)
	}
	return got
}

// TestASnapshotIsHeld: a shard stays readable as it was, during publishes and retention, until the
// snapshot is released or expires.
func TestASnapshotIsHeld(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := startNode(t, func(s *coordination.TopicSpec) { s.Retention.Messages = 3 })
		n.publish("one", "two", "three")
		if got := n.snapshot(`{"id":"s","lease_ms":60000}`); !reflect.DeepEqual(got, SnapshotAnswer{SnapshotShard: SnapshotShard{1, 4}, Lease: 60000}) {
			t.Fatalf("%+v %+v", got, got.Error)
		}
		n.publish("four", "five", "six")
		if got := n.snapshot(`{"id":"s","lease_ms":1000}`); !reflect.DeepEqual(got, SnapshotAnswer{SnapshotShard: SnapshotShard{1, 4}, Lease: 1000}) {
			t.Errorf("renewed: %+v", got)
		}
		if got := n.refusal(n.ask(ordersSubject, `{"offset":1}`, false)); got.Code != OutOfRange {
			t.Errorf("outside of it: %+v", got)
		}
		for payload, want := range map[string][]string{
			`{"snapshot":"s"}`: {"one", "two", "three"},
			`{"snapshot":"s","offset":2,"max_records":1}`: {"two"},
			`{"snapshot":"s","offset":4,"wait_ms":30000}`: nil,
			`{"snapshot":"s","offset":3,"wait_ms":30000}`: {"three"},
		} {
			if got, headers := n.records(n.ask(ordersSubject, payload, false)); !slices.Equal(got, want) || headers["Carillon-High"] != "4" {
				t.Errorf("%s: %q %v", payload, got, headers)
			}
		}
		if got := n.refusal(n.ask(ordersSubject, `{"snapshot":"other"}`, false)); got.Code != Expired {
			t.Errorf("%+v", got)
		}
		if got := n.snapshot(`{"id":"s","release":true}`); !reflect.DeepEqual(got, SnapshotAnswer{}) {
			t.Errorf("%+v", got)
		}
		if got := n.refusal(n.ask(ordersSubject, `{"snapshot":"s"}`, false)); got.Code != Expired {
			t.Errorf("%+v", got)
		}
		// An expired snapshot is released. It can be held again if the records exist, as after a
		// change of leader.
		n.snapshot(`{"id":"t","lease_ms":1000}`)
		time.Sleep(time.Second) // exactly the lease, by the bubble's clock
		synctest.Wait()
		if n.held() > 0 {
			t.Fatal("it is held for ever")
		}
		if got := n.snapshot(`{"id":"t","start":4,"high":7}`); !reflect.DeepEqual(got, SnapshotAnswer{SnapshotShard: SnapshotShard{4, 7}, Lease: 30000}) {
			t.Errorf("%+v %+v", got, got.Error)
		}
		for payload, code := range map[string]Code{
			``: BadRequest, `{}`: BadRequest, `{"id":"u","lease_ms":999}`: BadRequest, `{"id":"u","lease_ms":600001}`: BadRequest,
			`{"id":"u","start":5}`: BadRequest, `{"id":"u","start":5,"high":4}`: BadRequest, `{"id":"u","start":4,"high":9}`: OutOfRange, `{"id":"u","shards":[{"start":4,"high":7}]}`: BadRequest,
			`{"id":"` + strings.Repeat("x", 65) + `"}`: BadRequest, `{"id":"u","what":1}`: BadRequest,
		} {
			if got := n.snapshot(payload); got.Error == nil || got.Error.Code != code {
				t.Errorf("%s: %+v", payload, got.Error)
			}
		}
		for i := range maxSnapshots/2 - 1 {
			if got := n.snapshot(fmt.Sprintf(`{"id":"many-%d"}`, i)); got.Error != nil {
				t.Fatal(got.Error)
			}
		}
		if got := n.snapshot(`{"id":"one too many"}`); got.Error == nil || got.Error.Code != Busy {
			t.Errorf("%+v", got.Error)
		}
		n.server.Close()
		if n.held() != 0 {
			t.Error("a broker that stopped holds something")
		}
	})
}

func (n *node) held() int {
	n.server.snapshots.mu.Lock()
	defer n.server.snapshots.mu.Unlock()
	return len(n.server.snapshots.held)
}

// pair is two brokers that lead the shards of the Topic "orders" in turn, a the first one.
type pair struct {
	*testing.T
	a, b   *node
	shards []*coordination.Shard
	topics []*coordination.Topic
}

func startPair(t *testing.T, shards int, change func(*coordination.TopicSpec)) *pair {
	spec := coordination.TopicSpec{Subjects: []string{"orders.>"}, Shards: shards, Replicas: 1, Durability: coordination.Memory}
	if change != nil {
		change(&spec)
	}
	p := &pair{T: t, topics: []*coordination.Topic{{Name: "orders", ID: "o", Spec: spec}}}
	for n := range shards {
		id, life := "a", int64(5)
		if n%2 == 1 {
			id, life = "b", 6
		}
		p.shards = append(p.shards, &coordination.Shard{Topic: "o", Number: n, Epoch: 1, Leader: id, Replicas: []string{id}, InSync: []coordination.Replica{{Broker: id, Incarnation: life}}})
	}
	state := coordination.NewState(1, p.brokers(), p.topics, p.shards, nil)
	p.a, p.b = startNodeAs(t, "a", "main-0", state), startNodeAs(t, "b", "main-1", state)
	others := map[string]*node{"a": p.a, "b": p.b}
	p.a.others, p.b.others = others, others
	for n := range shards {
		p.leader(n).awaitShard(n)
	}
	return p
}

func (p *pair) brokers() []coordination.Broker {
	return []coordination.Broker{{ID: "a", Incarnation: 5, Name: "main-0"}, {ID: "b", Incarnation: 6, Name: "main-1"}}
}

func (p *pair) leader(shard int) *node {
	if shard%2 == 1 {
		return p.b
	}
	return p.a
}

// publish publishes one record on each of some subjects and returns the high watermarks.
func (p *pair) publish(subjects int) (high []uint64) {
	p.Helper()
	for i := range subjects {
		subject := fmt.Sprint("orders.", i)
		p.leader(p.a.topics.Topic("orders").ShardFor([]byte(subject)).Number()).publishOn(subject, subject)
	}
	for n := range p.shards {
		_, end := p.leader(n).topics.Topic("orders").ShardAt(n).Offsets()
		high = append(high, end)
	}
	return high
}

func (n *node) set(change func()) {
	n.mu.Lock()
	defer n.mu.Unlock()
	change()
}

func highs(shards []SnapshotShard) (high []uint64) {
	for _, s := range shards {
		high = append(high, s.High)
	}
	return high
}

const wholeSnapshot = SnapshotSubject + "orders"

// TestOneRequestHoldsAllShardsOfATopic: one request to any broker holds all shards under one id,
// wherever they are led, and renews and releases them together.
func TestOneRequestHoldsAllShardsOfATopic(t *testing.T) {
	p := startPair(t, 5, func(s *coordination.TopicSpec) { s.Retention.Messages = 1 })
	want := p.publish(40)
	got := p.b.snapshotOf(wholeSnapshot, `{"id":"s","lease_ms":60000}`)
	if got.Error != nil || got.Lease != 60000 || !slices.Equal(highs(got.Shards), want) || p.a.held() != 3 || p.b.held() != 2 {
		t.Fatalf("%+v %+v, want %d; %d and %d are held", got, got.Error, want, p.a.held(), p.b.held())
	}
	p.publish(40) // without the snapshot, retention would delete what it holds
	for n, shard := range got.Shards {
		records, headers := p.leader(n).records(p.leader(n).ask(fmt.Sprint(RecordsSubject, "orders.", n), `{"snapshot":"s"}`, false))
		if len(records) != int(shard.High-shard.Start) || headers["Carillon-High"] != fmt.Sprint(shard.High) {
			t.Errorf("shard %d has %d records %v, and %+v is held", n, len(records), headers, shard)
		}
	}
	// Renewed through the other broker, with and without the earlier ranges.
	shards, err := json.Marshal(got.Shards)
	if err != nil {
		t.Fatal(err)
	}
	for _, payload := range []string{`{"id":"s","lease_ms":1000}`, fmt.Sprintf(`{"id":"s","lease_ms":1000,"shards":%s}`, shards)} {
		if again := p.a.snapshotOf(wholeSnapshot, payload); !reflect.DeepEqual(again.Shards, got.Shards) || again.Lease != 1000 {
			t.Errorf("renewed: %+v %+v", again, again.Error)
		}
	}
	if done := p.a.snapshotOf(wholeSnapshot, `{"id":"s","release":true}`); !reflect.DeepEqual(done, SnapshotAnswer{}) || p.a.held()+p.b.held() != 0 {
		t.Errorf("released: %+v; %d and %d are held", done.Error, p.a.held(), p.b.held())
	}
	for payload, says := range map[string]string{
		``:                              "not a snapshot's",
		`{"id":"s","start":1,"high":2}`: "for each shard",
		`{"id":"s","shards":[{"start":1,"high":2}]}`:           "of 5 that topic orders has",
		`{"id":"s","shards":[{},{},{},{},{}]}`:                 "give all of them",
		`{"id":"s","shards":[{"start":2,"high":1}]}`:           "records from 2 to 1",
		`{"id":"s","lease_ms":1}`:                              "lease_ms",
		`{"id":"s","what":"` + strings.Repeat("x", 8192) + `"`: "use at most 8192",
	} {
		if got := p.a.snapshotOf(wholeSnapshot, payload); got.Error == nil || got.Error.Code != BadRequest || !strings.Contains(got.Error.Text, says) {
			t.Errorf("%.60s: %+v", payload, got.Error)
		}
	}
	if got := p.a.snapshotOf(SnapshotSubject+"nothing", `{"id":"s"}`); got.Error == nil || got.Error.Code != NotFound {
		t.Errorf("%+v", got.Error)
	}
}

// TestASnapshotHoldsAllShardsOrNone: if one shard cannot be held, the answer names it, and no shard
// is held.
func TestASnapshotHoldsAllShardsOrNone(t *testing.T) {
	p := startPair(t, 4, nil)
	p.publish(40)
	refused := func(payload string, code Code, shard int, says string) {
		t.Helper()
		got := p.a.snapshotOf(wholeSnapshot, payload)
		if got.Error == nil || got.Error.Code != code || got.Error.Shard == nil || *got.Error.Shard != shard || !strings.Contains(got.Error.Text, says) || !strings.Contains(got.Error.Text, fmt.Sprintf("shard %d:", shard)) {
			t.Errorf("%s: %+v", payload, got.Error)
		}
	}
	// A leader without room.
	for i := range maxSnapshots/2 - 1 {
		p.b.snapshotOf(SnapshotSubject+"orders.1", fmt.Sprintf(`{"id":"many-%d"}`, i))
	}
	refused(`{"id":"s"}`, Busy, 3, "release some")
	if p.a.held() != 0 || p.b.held() != maxSnapshots/2-1 {
		t.Errorf("%d and %d are held", p.a.held(), p.b.held())
	}
	// A leader whose answers are lost: it handles the request before the release.
	p.b.snapshotOf(SnapshotSubject+"orders.1", `{"id":"many-0","release":true}`)
	p.a.set(func() { p.a.deaf = true })
	began := time.Now()
	refused(`{"id":"s"}`, NotServed, 1, "did not answer")
	if took := time.Since(began); took < topicSnapshotTimeout || p.a.held() != 0 || p.b.held() != maxSnapshots/2-2 {
		t.Errorf("after %s %d and %d are held", took, p.a.held(), p.b.held())
	}
	p.a.set(func() { p.a.deaf = false })

	// A failed renewal releases nothing: a later one may succeed in time.
	taken := p.a.snapshotOf(wholeSnapshot, `{"id":"t"}`)
	if taken.Error != nil {
		t.Fatal(taken.Error)
	}
	shards, err := json.Marshal(taken.Shards)
	if err != nil {
		t.Fatal(err)
	}
	renew := fmt.Sprintf(`{"id":"t","shards":%s}`, shards)
	p.b.set(func() { p.b.deaf = true })
	refused(renew, NotServed, 1, "did not answer")
	p.b.set(func() { p.b.deaf = false })
	if p.a.held() != 2 {
		t.Errorf("%d are held", p.a.held())
	}
	// A newly elected leader holds the earlier range if the records exist; otherwise it refuses.
	p.b.server.snapshots.release(snapshotKey{p.b.topics.Topic("orders").ShardAt(3), "t"}, "")
	if again := p.a.snapshotOf(wholeSnapshot, renew); !reflect.DeepEqual(again.Shards, taken.Shards) {
		t.Errorf("%+v %+v", again, again.Error)
	}
	ahead := slices.Clone(taken.Shards)
	ahead[3].High += 100
	p.b.server.snapshots.release(snapshotKey{p.b.topics.Topic("orders").ShardAt(3), "t"}, "")
	shards, err = json.Marshal(ahead)
	if err != nil {
		t.Fatal(err)
	}
	refused(fmt.Sprintf(`{"id":"t","shards":%s}`, shards), OutOfRange, 3, "beyond the high watermark")

	// A shard without a leader.
	shard := *p.shards[2]
	shard.Leader, shard.Epoch = "", 2
	after := []*coordination.Shard{p.shards[0], p.shards[1], &shard, p.shards[3]}
	p.a.topics.Follow(coordination.NewState(2, p.brokers(), p.topics, after, nil), coordination.Changes{Shards: []coordination.Change[coordination.Shard]{{Before: p.shards[2], After: &shard}}})
	refused(`{"id":"u"}`, NotServed, 2, "no broker was chosen")
}

// TestAFailedRequestReleasesOnlyItsOwnHold: a failed request releases only what no later request
// holds.
func TestAFailedRequestReleasesOnlyItsOwnHold(t *testing.T) {
	n := startNode(t, nil)
	shard := n.topics.Topic("orders").ShardAt(0)
	request := &SnapshotRequest{ID: "s", Lease: 60_000}
	for _, attempt := range []string{"one", "two"} {
		if _, refusal := n.server.snapshots.hold(shard, request, SnapshotShard{}, attempt); refusal != nil {
			t.Fatal(refusal)
		}
	}
	for _, step := range []struct {
		attempt string
		held    int
	}{{"one", 1}, {"two", 0}} {
		q := holdRequest{Topic: "o", Attempt: step.attempt, Request: SnapshotRequest{ID: "s", Release: true}, Parts: []shardHold{{Number: 0}}}
		n.server.holdHere(&q, func([]shardHold) {})
		if n.held() != step.held {
			t.Errorf("after %s let go, %d are held", step.attempt, n.held())
		}
	}
}
