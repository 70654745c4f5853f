package coordination

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/carillon-mq/carillon/internal/testutil"
)

// memory keeps what a broker saw of etcd, as its volume does.
type memory struct {
	mu   sync.Mutex
	seen *Seen
}

func (m *memory) Load() (*Seen, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.seen, nil
}

func (m *memory) Save(seen Seen) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.seen = &seen
	return nil
}

// openBroker returns a broker's client, which keeps what it sees of etcd. No lease runs out while
// etcd is stopped for a backup on a busy machine.
func (e *etcdServer) openBroker(store SeenStore) *Client {
	c := e.open()
	c.ttl = 10 * testutil.Patience
	c.history = newHistory(c, store)
	return c
}

// modern is a broker that announces what this program does.
func modern(id string) Broker {
	b := broker(id)
	b.Features = Features()
	return b
}

// await waits for a State for which ok returns true, and returns it.
func (s *states) await(what string, ok func(*State) bool) (state *State) {
	s.t.Helper()
	s.news.await(s.t, what, func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		state = s.last
		return state != nil && ok(state)
	})
	return state
}

func (s *states) sawRestored() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range s.saw {
		if c.Restored {
			return true
		}
	}
	return false
}

// TestARestoredEtcdBeginsAGeneration: two brokers are there while etcd is restored. They register
// again, and nothing that belongs to the former generation can be written.
func TestARestoredEtcdBeginsAGeneration(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	etcd := startEtcd(t)
	a, b := etcd.openBroker(&memory{}), etcd.openBroker(&memory{})
	seenA, seenB, operator := a.watchState(t), b.watchState(t), etcd.open().watchState(t)
	joinedA, joinedB := a.join(t, modern("a")), b.join(t, modern("b"))
	self := Replica{"a", joinedA.incarnation()}
	joinedB.incarnation()
	orders := a.mustCreate(t, "orders", TopicSpec{Subjects: []string{"orders"}, Shards: 1}, client)
	office := a.office(t, self)
	if !office.writes(t, ShardWrite{newShard(orders.ID, 0, self), orders}) {
		t.Fatal("the shard has changed meanwhile")
	}
	backup := etcd.Backup()

	later := a.mustCreate(t, "later", TopicSpec{Subjects: []string{"later"}, Shards: 1}, client)
	shards, _, err := a.ReadShards(ctx, orders.ID)
	if err != nil {
		t.Fatal(err)
	}
	elected := *shards[0]
	elected.Epoch++
	if !office.writes(t, ShardWrite{elected, orders}) {
		t.Fatal("the shard has changed meanwhile")
	}
	for _, s := range []*states{seenA, seenB, operator} {
		s.await("the later Topic", func(s *State) bool { return s.Topic(later.Name) != nil && s.Shard(orders.ID, 0).Epoch == 2 })
	}

	etcd.Restore(backup)
	etcd.Start()
	for _, s := range []*states{seenA, seenB, operator} {
		state := s.await("both brokers in the next generation", func(s *State) bool { return s.Generation == 1 && len(s.Brokers) == 2 })
		if !s.sawRestored() || state.Topic(later.Name) != nil || state.Shard(orders.ID, 0).Epoch != 1 || state.Shard(orders.ID, 0).Generation != 0 {
			t.Errorf("after the restore: Restored %v, %s", s.sawRestored(), text(state))
		}
		for _, b := range state.Brokers {
			if GenerationOf(b.Incarnation) != 1 || b.Incarnation <= self.Incarnation {
				t.Errorf("broker %s has incarnation %d", b.ID, b.Incarnation)
			}
		}
	}
	restored := seenA.await("a State", func(*State) bool { return true }).Shard(orders.ID, 0)
	_, err = office.WriteShards(ctx, []ShardWrite{{*restored, orders}})
	as[*DeposedError](t, err)
	_, err = a.SwapInSync(ctx, self, restored, []Replica{self})
	as[*StaleError](t, err)

	now := Replica{"a", joinedA.incarnation()}
	office = a.office(t, now)
	if office.Generation() != 1 {
		t.Errorf("the office is of generation %d", office.Generation())
	}
	again := *restored
	again.Epoch, again.Generation, again.InSync = 10, 1, []Replica{now}
	if !office.writes(t, ShardWrite{again, orders}) {
		t.Fatal("the shard has changed meanwhile")
	}
	seenB.await("the shard in the next generation", func(s *State) bool {
		shard := s.Shard(orders.ID, 0)
		return shard.Generation == 1 && shard.Epoch == 10 && shard.Leader == "a"
	})
	// A program that knows no generations refuses such a shard.
	kv, err := a.get(ctx, a.shardKey(orders.ID, 0))
	if err != nil || kv == nil {
		t.Fatal(kv, err)
	}
	var value shardValue
	if err := decodeValue("a shard", kv.GetValue(), shardValueVersion, &value, &value.V); err == nil {
		t.Error("an earlier version can read the shard")
	}
}

// TestARestoredEtcdThatWentOnIsNoticed: all brokers are stopped while etcd is restored. Before the
// first one is back, etcd has passed the revision that it had.
func TestARestoredEtcdThatWentOnIsNoticed(t *testing.T) {
	t.Parallel()
	etcd := startEtcd(t)
	volume := &memory{}
	life := func(until func(s *states)) int64 {
		c := etcd.openBroker(volume)
		ctx, cancel := context.WithCancel(context.Background())
		var running sync.WaitGroup
		seen := &states{t: t}
		running.Go(func() {
			_ = c.WatchState(ctx, func(state *State, changes Changes) {
				seen.mu.Lock()
				seen.last, seen.saw = state, append(seen.saw, changes)
				seen.mu.Unlock()
				seen.news.tell()
			})
		})
		j := c.join(t, modern("a"))
		i := j.incarnation()
		seen.await("itself", func(s *State) bool { return len(s.Brokers) == 1 })
		until(seen)
		j.leave()
		cancel()
		running.Wait()
		return i
	}
	life(func(*states) {})
	backup := etcd.Backup()
	c := etcd.open()
	life(func(seen *states) {
		c.mustCreate(t, "orders", TopicSpec{Subjects: []string{"orders"}, Shards: 1}, client)
		seen.await("the Topic", func(s *State) bool { return s.Topic("orders") != nil })
	})
	etcd.Restore(backup)
	etcd.Start()
	for i := range 100 {
		if _, err := c.etcd.Put(context.Background(), c.prefix+"other", fmt.Sprint(i)); err != nil {
			t.Fatal(err)
		}
	}
	if i := life(func(*states) {}); GenerationOf(i) != 1 {
		t.Fatalf("the broker registered in generation %d", GenerationOf(i))
	}
	// Again, to before the generation was raised: its number is not used twice.
	etcd.Restore(backup)
	etcd.Start()
	if i := life(func(*states) {}); GenerationOf(i) != 2 {
		t.Fatalf("after the second restore, the broker registered in generation %d", GenerationOf(i))
	}
}

// TestOnlyARestoreBeginsAGeneration: etcd stops and starts, and loses old revisions; a broker with
// an empty volume comes.
func TestOnlyARestoreBeginsAGeneration(t *testing.T) {
	t.Parallel()
	etcd := startEtcd(t)
	volume := &memory{}
	a := etcd.openBroker(volume)
	seen := a.watchState(t)
	j := a.join(t, modern("a"))
	j.incarnation()
	seen.await("the broker", func(s *State) bool { return len(s.Brokers) == 1 })
	etcd.Stop()
	etcd.Start()
	put, err := a.etcd.Put(context.Background(), a.prefix+"other", "")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := a.etcd.Compact(context.Background(), put.Header.Revision); err != nil {
		t.Fatal(err)
	}
	etcd.Stop()
	etcd.Start()
	b := etcd.openBroker(&memory{}).join(t, modern("b"))
	if i := b.incarnation(); GenerationOf(i) != 0 {
		t.Errorf("a broker without a past registered in generation %d", GenerationOf(i))
	}
	state := seen.await("both", func(s *State) bool { return len(s.Brokers) == 2 })
	if state.Generation != 0 || a.history.count() != 0 {
		t.Errorf("generation %d, %d restores", state.Generation, a.history.count())
	}
}

// TestAGenerationWaitsForEarlierVersions: a restored etcd shows a broker of a version that knows no
// generations. It is waited for, since it would be none in the next generation.
func TestAGenerationWaitsForEarlierVersions(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	etcd := startEtcd(t)
	log := &heard{t: t}
	c := etcd.openLogged(log.logger())
	c.history = newHistory(c, &memory{seen: &Seen{Revision: 1000, Marks: []Mark{{Key: "x", Revision: 1000}}}})
	value, err := broker("old").encode()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.etcd.Put(ctx, c.brokerKey("old"), string(value)); err != nil {
		t.Fatal(err)
	}
	a := c.join(t, modern("a"))
	log.wait("registering with etcd failed; trying again", 1)
	if _, err := c.etcd.Delete(ctx, c.brokerKey("old")); err != nil {
		t.Fatal(err)
	}
	if i := a.incarnation(); GenerationOf(i) != 1 {
		t.Errorf("it registered in generation %d", GenerationOf(i))
	}
}

// TestALaterGenerationDoesNotWaitForEarlierVersions: etcd is restored for the second time while a
// broker of an earlier version is registered. It is no member anyway, and the restored sets are not
// believed.
func TestALaterGenerationDoesNotWaitForEarlierVersions(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	etcd := startEtcd(t)
	c := etcd.open()
	h := newHistory(c, &memory{seen: &Seen{Generation: 1, Revision: 1000, Marks: []Mark{{Key: "x", Revision: 1000}}}})
	value, err := broker("old").encode()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.etcd.Put(ctx, c.brokerKey("old"), string(value)); err != nil {
		t.Fatal(err)
	}
	if generation, restored, err := h.resolve(ctx); generation != 2 || !restored || err != nil {
		t.Errorf("generation %d, restored is %v, error %v", generation, restored, err)
	}
}

func TestARestoredEtcdDiffersFromWhatWasSeen(t *testing.T) {
	kv := &mvccpb.KeyValue{Key: []byte("k"), Value: []byte("v"), CreateRevision: 3, ModRevision: 7, Lease: 1}
	answer := func(revision int64, kvs ...*mvccpb.KeyValue) *clientv3.TxnResponse { return readAnswer(revision, kvs) }
	other := &mvccpb.KeyValue{Key: []byte("k"), Value: []byte("w"), CreateRevision: 3, ModRevision: 7, Lease: 1}
	seen := Seen{Generation: 1, Revision: 9, Marks: []Mark{markOf(kv)}}
	for name, c := range map[string]struct {
		generation int64
		done       *clientv3.TxnResponse
		restored   bool
	}{
		"as it was":                    {1, answer(9, kv), false},
		"further":                      {2, answer(20, kv), false},
		"behind":                       {1, answer(8, kv), true},
		"an earlier generation":        {0, answer(20, kv), true},
		"another value":                {1, answer(20, other), true},
		"no value":                     {1, answer(20, nil), true},
		"far ahead, as etcdutl leaves": {1, answer(1_000_000_009, kv), true},
	} {
		if err := seen.compare(seen.Marks, c.generation, c.done); (err != nil) != c.restored {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// readAnswer is the answer to a check: the generation, which is passed separately, and the marks.
func readAnswer(revision int64, kvs []*mvccpb.KeyValue) *clientv3.TxnResponse {
	responses := []*etcdserverpb.ResponseOp{{Response: &etcdserverpb.ResponseOp_ResponseRange{ResponseRange: &etcdserverpb.RangeResponse{}}}}
	for _, kv := range kvs {
		found := &etcdserverpb.RangeResponse{}
		if kv != nil {
			found.Kvs = append(found.Kvs, kv)
		}
		responses = append(responses, &etcdserverpb.ResponseOp{Response: &etcdserverpb.ResponseOp_ResponseRange{ResponseRange: found}})
	}
	return (*clientv3.TxnResponse)(&etcdserverpb.TxnResponse{Header: &etcdserverpb.ResponseHeader{Revision: revision}, Responses: responses})
}

// TestALaterGenerationAfterCompaction: a broker was cut off from etcd while that was restored, and
// until what it had seen last was compacted. What it holds may be missing since the restore, so it
// takes nothing for deleted; and the generation is not raised once more.
func TestALaterGenerationAfterCompaction(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	etcd := startEtcd(t)
	c := etcd.open()
	first, err := c.etcd.Put(ctx, c.prefix+"other", "")
	if err != nil {
		t.Fatal(err)
	}
	mark := Mark{Key: c.prefix + "other", Revision: first.Header.Revision, Created: first.Header.Revision, Sum: markOf(&mvccpb.KeyValue{}).Sum}
	h := newHistory(c, &memory{seen: &Seen{Revision: first.Header.Revision, Marks: []Mark{mark}}})
	if _, restored, err := h.resolve(ctx); restored || err != nil {
		t.Fatalf("before: restored is %v, error %v", restored, err)
	}
	put, err := c.etcd.Put(ctx, c.generationKey(), encodeGeneration(2))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.etcd.Compact(ctx, put.Header.Revision); err != nil {
		t.Fatal(err)
	}
	generation, restored, err := h.resolve(ctx)
	if generation != 2 || !restored || err != nil || h.count() != 1 {
		t.Errorf("generation %d, restored is %v, error %v, %d restores", generation, restored, err, h.count())
	}
	if generation, restored, err = h.resolve(ctx); generation != 2 || restored || err != nil {
		t.Errorf("again: generation %d, restored is %v, error %v", generation, restored, err)
	}
}

// TestANewLeaderOfEtcdExtendsLeases: the registrations that a restored etcd shows are believed to
// be of living brokers only if they outlast their leases under one leader of etcd.
func TestANewLeaderOfEtcdExtendsLeases(t *testing.T) {
	h := newHistory(nil, nil)
	h.ruled(&etcdserverpb.ResponseHeader{RaftTerm: 5})
	h.since = time.Now()
	if h.ruled(&etcdserverpb.ResponseHeader{RaftTerm: 5}); h.since.IsZero() {
		t.Error("the wait begins again under the same leader")
	}
	if h.ruled(&etcdserverpb.ResponseHeader{RaftTerm: 6}); !h.since.IsZero() {
		t.Error("the wait goes on under another leader")
	}
}
