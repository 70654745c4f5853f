package coordination

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
)

var (
	client   = Owner{Kind: ClientOwner, Name: "shop"}
	manifest = Owner{Kind: ManifestOwner, Namespace: "default", Name: "orders", UID: "uid-1"}
	// The manifest, recreated.
	again = Owner{Kind: ManifestOwner, Namespace: "default", Name: "orders", UID: "uid-2"}
	other = Owner{Kind: ManifestOwner, Namespace: "default", Name: "other", UID: "uid-3"}
)

func spec(subjects ...string) TopicSpec { return TopicSpec{Subjects: subjects, Shards: 1} }

func (c *Client) mustCreate(t *testing.T, name string, spec TopicSpec, owner Owner) *Topic {
	t.Helper()
	topic, err := c.CreateTopic(context.Background(), name, spec, owner)
	if err != nil {
		t.Fatal(err)
	}
	return topic
}

// as checks that err is an E and returns it.
func as[E error](t *testing.T, err error) E {
	t.Helper()
	var e E
	if !errors.As(err, &e) {
		t.Fatalf("got %v (%T), want a %T", err, err, e)
	}
	return e
}

func (c *Client) keys(t *testing.T, prefix string) int {
	t.Helper()
	got, err := c.etcd.Get(context.Background(), prefix, clientv3.WithPrefix(), clientv3.WithCountOnly())
	if err != nil {
		t.Fatal(err)
	}
	return int(got.Count)
}

func (c *Client) revision(t *testing.T) int64 {
	t.Helper()
	got, err := c.etcd.Get(context.Background(), "none")
	if err != nil {
		t.Fatal(err)
	}
	return got.Header.Revision
}

func TestATopicIsMadeChangedAndDeleted(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	c := startEtcd(t).open()
	want := spec("orders", "orders.>")
	want.Retention = Retention{Age: time.Hour, Bytes: 1 << 30}
	want.Stream = StreamSettings{Description: "what was ordered", Metadata: map[string]string{"a": "b"}, AllowRollup: true}
	made := c.mustCreate(t, "orders", want, manifest)

	// A created Topic can be read, alone and in the list, and creating it again changes nothing.
	read, err := c.GetTopic(ctx, "orders")
	if err != nil || fmt.Sprintf("%+v", *read) != fmt.Sprintf("%+v", *made) || read.Generation != 1 {
		t.Fatalf("read %+v, %v; want %+v", read, err, made)
	}
	before := c.revision(t)
	if same := c.mustCreate(t, "orders", want, manifest); same.ID != made.ID || c.revision(t) != before {
		t.Errorf("making it again made %+v", same)
	}
	if list, revision, err := c.listTopics(ctx); err != nil || len(list) != 1 || list[0].ID != made.ID || revision < made.Revision {
		t.Errorf("listed %v at %d, %v", list, revision, err)
	}

	// An update requires the expected generation. An equal spec is not written.
	want.Retention.Age = 2 * time.Hour
	changed, err := c.UpdateTopic(ctx, "orders", TopicUpdate{By: manifest, ID: made.ID, Generation: 1, Spec: want})
	if err != nil || changed.Generation != 2 || changed.Spec.Retention.Age != 2*time.Hour || changed.ID != made.ID {
		t.Fatalf("changed to %+v, %v", changed, err)
	}
	before = c.revision(t)
	if _, err := c.UpdateTopic(ctx, "orders", TopicUpdate{By: manifest, Generation: 2, Spec: want}); err != nil || c.revision(t) != before {
		t.Errorf("the same spec: %v, and revision %d after %d", err, c.revision(t), before)
	}
	_, err = c.UpdateTopic(ctx, "orders", TopicUpdate{By: manifest, Generation: 1, Spec: spec("orders")})
	as[*StaleError](t, err)
	wider := want
	wider.Shards = 2
	_, err = c.UpdateTopic(ctx, "orders", TopicUpdate{By: manifest, Spec: wider})
	if e := as[*ImmutableError](t, err); !strings.Contains(e.Error(), "shards") {
		t.Errorf("the error is %v", e)
	}

	byInterest := want
	byInterest.Stream.Retention = InterestPolicy
	if changed, err := c.UpdateTopic(ctx, "orders", TopicUpdate{By: manifest, Spec: byInterest}); err != nil || changed.Spec.Stream.Retention != InterestPolicy {
		t.Errorf("by interest: %+v, %v", changed, err)
	}
	queue := want
	queue.Stream.Retention = WorkQueue
	_, err = c.UpdateTopic(ctx, "orders", TopicUpdate{By: manifest, Spec: queue})
	if e := as[*ImmutableError](t, err); !strings.Contains(e.Error(), "work queue") {
		t.Errorf("the error is %v", e)
	}

	bearing := byInterest // settings that messages in it depend on
	bearing.Stream.AllowMessageTTL, bearing.Stream.AllowSchedules = true, true
	if _, err := c.UpdateTopic(ctx, "orders", TopicUpdate{By: manifest, Spec: bearing}); err != nil {
		t.Fatal(err)
	}
	for what, change := range map[string]func(*TopicSpec){
		"counters":  func(s *TopicSpec) { s.Stream.AllowCounter = true },
		"mirrors":   func(s *TopicSpec) { s.Subjects, s.Stream.Mirror = nil, &StreamSource{Name: "bills"} },
		"a TTL":     func(s *TopicSpec) { s.Stream.AllowMessageTTL = false },
		"scheduled": func(s *TopicSpec) { s.Stream.AllowSchedules = false },
	} {
		other := bearing
		change(&other)
		_, err := c.UpdateTopic(ctx, "orders", TopicUpdate{By: manifest, Spec: other})
		if e := as[*ImmutableError](t, err); !strings.Contains(e.Error(), what) {
			t.Errorf("%s: the error is %v", what, e)
		}
	}

	// A deletion deletes everything but the gate, and a new Topic of that name is another one.
	if _, err := c.CreateSubscription(ctx, "orders", "billing", SubscriptionSpec{}, client); err != nil {
		t.Fatal(err)
	}
	as[*StaleError](t, c.DeleteTopic(ctx, "orders", newID(), manifest))
	if err := c.DeleteTopic(ctx, "orders", made.ID, manifest); err != nil {
		t.Fatal(err)
	}
	if n := c.keys(t, c.prefix) - c.keys(t, c.allTombstones()); n != 1 {
		t.Errorf("%d keys are left, want the gate and the tombstone only", n)
	}
	as[*NotFoundError](t, c.DeleteTopic(ctx, "orders", "", manifest))
	_, err = c.GetTopic(ctx, "orders")
	as[*NotFoundError](t, err)
	if anew := c.mustCreate(t, "orders", want, manifest); anew.ID == made.ID {
		t.Error("a Topic made again has the id of the one before")
	}

	queue.Shards, queue.Subjects = 2, []string{"queue"}
	if made, err := c.CreateTopic(ctx, "queue", queue, client); err != nil || made.Spec.Stream.Retention != WorkQueue || made.Spec.Shards != 2 {
		t.Errorf("a work queue with two shards: %+v, %v", made, err)
	}
}

func TestOnlyTheOwnerChangesATopic(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	c := startEtcd(t).open()
	c.mustCreate(t, "orders", spec("orders"), manifest)
	c.mustCreate(t, "clicks", spec("clicks"), client)

	change := func(name string, by Owner) error {
		current, err := c.GetTopic(ctx, name)
		if err != nil {
			return err
		}
		next := current.Spec
		next.Retention.Messages++
		_, err = c.UpdateTopic(ctx, name, TopicUpdate{By: by, Spec: next})
		return err
	}
	for _, by := range []Owner{client, other, again} {
		if e := as[*NotOwnerError](t, change("orders", by)); e.Owner != manifest || !strings.Contains(e.Error(), "default/orders") {
			t.Errorf("%v was refused with %v", by, e)
		}
		as[*NotOwnerError](t, c.DeleteTopic(ctx, "orders", "", by))
	}
	as[*NotOwnerError](t, change("clicks", manifest))
	if err := change("clicks", Owner{Kind: ClientOwner, Name: "another"}); err != nil {
		t.Errorf("a client can't change what a client made: %v", err)
	}
	_, err := c.CreateTopic(ctx, "orders", spec("elsewhere"), client)
	if e := as[*ExistsError](t, err); e.Owner != manifest {
		t.Errorf("the owner named is %v", e.Owner)
	}

	// The manifest is deleted and recreated: only it can adopt the Topic.
	if _, err := c.OrphanTopic(ctx, "orders", other); err == nil {
		t.Error("another manifest orphaned it")
	}
	if orphan, err := c.OrphanTopic(ctx, "orders", manifest); err != nil || orphan.Owner.Orphaned.IsZero() || orphan.Generation != 1 {
		t.Fatalf("orphaned: %+v, %v", orphan, err)
	}
	_, err = c.AdoptTopic(ctx, "orders", other, spec("orders"))
	as[*NotOwnerError](t, err)
	_, err = c.AdoptTopic(ctx, "clicks", manifest, spec("clicks"))
	as[*NotOwnerError](t, err)
	wider := spec("orders")
	wider.Shards = 2
	_, err = c.AdoptTopic(ctx, "orders", again, wider)
	as[*ImmutableError](t, err)
	adopted, err := c.AdoptTopic(ctx, "orders", again, spec("orders", "orders.>"))
	if err != nil || adopted.Owner != again || adopted.Generation != 2 || len(adopted.Spec.Subjects) != 2 {
		t.Fatalf("adopted: %+v, %v", adopted, err)
	}
	as[*NotOwnerError](t, c.DeleteTopic(ctx, "orders", "", client))
	// A client may delete what no manifest declares any more.
	if _, err := c.OrphanTopic(ctx, "orders", again); err != nil {
		t.Fatal(err)
	}
	if err := c.DeleteTopic(ctx, "orders", "", client); err != nil {
		t.Error(err)
	}
}

func TestTwoTopicsNeverKeepOneSubject(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	etcd := startEtcd(t)
	a, b := etcd.open(), etcd.open()
	a.mustCreate(t, "orders", spec("orders.>"), manifest)
	for _, subject := range []string{"orders.eu", "*.eu", "orders.*.new", "*.*"} {
		_, err := b.CreateTopic(ctx, "eu", spec("eu", subject), client)
		if e := as[*OverlapError](t, err); e.Other != "orders" || e.Claimed != "orders.>" || e.Subject != subject || e.Owner != manifest {
			t.Errorf("%s: %+v", subject, e)
		}
	}
	b.mustCreate(t, "eu", spec("eu"), client)
	// An update claims subjects, too. A refused one changes nothing.
	_, err := b.UpdateTopic(ctx, "eu", TopicUpdate{By: client, Spec: spec("eu", "orders.eu")})
	as[*OverlapError](t, err)
	if _, err := b.UpdateTopic(ctx, "eu", TopicUpdate{By: client, Spec: spec("de")}); err != nil {
		t.Fatal(err)
	}
	// Another process that knew of a claim can use a subject that was released or deleted.
	a.mustCreate(t, "eu2", spec("eu"), client)
	if err := a.DeleteTopic(ctx, "orders", "", manifest); err != nil {
		t.Fatal(err)
	}
	b.mustCreate(t, "orders2", spec("orders.eu"), client)
	// It cannot use one that was claimed again since.
	if err := a.DeleteTopic(ctx, "eu2", "", client); err != nil {
		t.Fatal(err)
	}
	a.mustCreate(t, "eu2", spec("uk"), client)
	_, err = b.CreateTopic(ctx, "uk", spec("uk"), client)
	as[*OverlapError](t, err)
}

// TestOneOfConcurrentOverlappingTopicsIsCreated: of concurrently created Topics that overlap,
// exactly one succeeds, in all processes.
func TestOneOfConcurrentOverlappingTopicsIsCreated(t *testing.T) {
	t.Parallel()
	etcd := startEtcd(t)
	clients := []*Client{etcd.open(), etcd.open(), etcd.open()}
	for round := range 5 {
		var won, lost atomic.Int32
		var all sync.WaitGroup
		for i := range 12 {
			all.Go(func() {
				subject := fmt.Sprintf("round%d.>", round)
				if i%2 == 0 {
					subject = fmt.Sprintf("round%d.*", round)
				}
				_, err := clients[i%3].CreateTopic(context.Background(), fmt.Sprintf("t-%d-%d", round, i), spec(subject), client)
				switch overlap := (*OverlapError)(nil); {
				case err == nil:
					won.Add(1)
				case errors.As(err, &overlap):
					lost.Add(1)
				default:
					t.Error(err)
				}
			})
		}
		all.Wait()
		if won.Load() != 1 || lost.Load() != 11 {
			t.Fatalf("round %d: %d were made and %d were refused for the overlap", round, won.Load(), lost.Load())
		}
	}
}

// TestAThousandTopicsAtOnce: a thousand concurrent creations from two processes share transactions.
func TestAThousandTopicsAtOnce(t *testing.T) {
	t.Parallel()
	etcd := startEtcd(t)
	clients := []*Client{etcd.open(), etcd.open()}
	before, began := clients[0].revision(t), time.Now()
	const topics = 1000
	var all sync.WaitGroup
	for i := range topics {
		all.Go(func() {
			name := fmt.Sprintf("topic-%d", i)
			if _, err := clients[i%2].CreateTopic(context.Background(), name, spec(name, name+".>"), client); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	took, revisions := time.Since(began), clients[0].revision(t)-before
	t.Logf("%d topics in %v, with %d transactions that wrote", topics, took.Round(time.Millisecond), revisions)
	if revisions > topics/10 {
		t.Errorf("%d topics took %d transactions", topics, revisions)
	}
	if list, _, err := clients[0].listTopics(context.Background()); err != nil || len(list) != topics {
		t.Errorf("%d topics are listed, %v", len(list), err)
	}
}

func TestInvalidTopicsAreRefused(t *testing.T) {
	t.Parallel()
	c, err := Open(Config{Endpoints: []string{"unix:///nowhere"}, Cluster: "default/main"})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	for _, name := range []string{"", "a.b", "a b", "a*", "a>", "a/b", `a\b`, "a\x00", "\xff", "orders--3", strings.Repeat("a", maxTopicName+1)} {
		_, err := c.CreateTopic(context.Background(), name, spec("a"), client)
		as[*InvalidError](t, err)
	}
	for what, spoil := range map[string]func(*TopicSpec){
		"no subject":       func(s *TopicSpec) { s.Subjects = nil },
		"everything":       func(s *TopicSpec) { s.Subjects = []string{">"} },
		"inboxes":          func(s *TopicSpec) { s.Subjects = []string{"_INBOX.>"} },
		"the API":          func(s *TopicSpec) { s.Subjects = []string{"$JS.API.>"} },
		"no subject at al": func(s *TopicSpec) { s.Subjects = []string{"a..b"} },
		"overlap in it":    func(s *TopicSpec) { s.Subjects = []string{"a.*", "*.b"} },
		"too many":         func(s *TopicSpec) { s.Subjects = make([]string, MaxTopicSubjects+1) },
		"no shard":         func(s *TopicSpec) { s.Shards = 0 },
		"too many shards":  func(s *TopicSpec) { s.Shards = maxShards + 1 },
		"tokens missing":   func(s *TopicSpec) { s.PartitionBy = ByTokens },
		"token 0":          func(s *TopicSpec) { s.PartitionBy, s.PartitionTokens = ByTokens, []int{0} },
		"never acked":      func(s *TopicSpec) { s.Replicas, s.MinInSync = 2, 3 },
		"durability":       func(s *TopicSpec) { s.Durability = "Maybe" },
		"negative":         func(s *TopicSpec) { s.Retention.Bytes = -1 },
		"random shards": func(s *TopicSpec) {
			s.Shards, s.Stream.Sources = 2, []StreamSource{{Name: "b", Transforms: []SubjectMapping{{Destination: "x.{{Random(2)}}.>"}}}}
		},
		"a mirror under other subjects": func(s *TopicSpec) {
			s.Subjects, s.Shards, s.Stream.Mirror = nil, 2, &StreamSource{Name: "b", Transforms: []SubjectMapping{{Source: "b.>", Destination: "c.>"}}}
		},
		"shards of a shard": func(s *TopicSpec) { s.Subjects, s.Shards, s.Stream.Mirror = nil, 2, &StreamSource{Name: "b--1"} },
		"too large":         func(s *TopicSpec) { s.Stream.Metadata = map[string]string{"a": strings.Repeat("b", maxValue)} },
	} {
		s := spec("a")
		spoil(&s)
		if _, err := c.CreateTopic(context.Background(), "a", s, client); err == nil || strings.Contains(err.Error(), "nowhere") {
			t.Errorf("%s: %v", what, err)
		} else {
			as[*InvalidError](t, err)
		}
	}
	for _, o := range []Owner{{}, {Kind: ManifestOwner, Name: "a"}, {Kind: ClientOwner, UID: "u"}} {
		_, err := c.CreateTopic(context.Background(), "a", spec("a"), o)
		as[*InvalidError](t, err)
	}
	kv := spec("$KV.bucket.>")
	if why := kv.valid(); why != "" {
		t.Error(why)
	}
}

// TestAMirrorHasTheShardsOfItsOrigin: as many, by the same tokens. Another one does not fit.
func TestAMirrorHasTheShardsOfItsOrigin(t *testing.T) {
	three := spec("a")
	three.Shards, three.PartitionBy, three.PartitionTokens = 3, ByTokens, []int{2}
	state := NewState(1, nil, []*Topic{{Name: "three", Spec: three}, {Name: "one", Spec: spec("b")}, {Name: "going", Spec: three, Deleting: true}}, nil, nil)
	for _, test := range []struct {
		origin string
		shards int
		tokens []int
		want   string // of why it does not fit
	}{
		{"three", 3, []int{2}, ""},
		{"three", 1, nil, "the mirror has 1 shard, and three, which it mirrors, has 3"},
		{"three", 4, []int{2}, "the mirror has 4 shards"},
		{"three", 3, nil, "other tokens of a subject decide"},
		{"three", 3, []int{1}, "other tokens of a subject decide"},
		{"three--1", 1, nil, ""},
		{"one", 1, []int{1}, ""},
		{"one", 3, nil, "and one, which it mirrors, has 1"},
		{"later", 3, nil, ""},
		{"going", 5, nil, ""},
	} {
		mirror := TopicSpec{Shards: test.shards, PartitionTokens: test.tokens, Stream: StreamSettings{Mirror: &StreamSource{Name: test.origin}}}
		if why := mirror.MirrorMismatch(mirror.Origin(state)); (why == "") != (test.want == "") || !strings.Contains(why, test.want) {
			t.Errorf("%+v: %q", test, why)
		}
		made := mirror
		if made.ShardAsOrigin(made.Origin(state)); made.MirrorMismatch(made.Origin(state)) != "" {
			t.Errorf("%+v is made as %+v", test, made)
		}
	}
	sources := TopicSpec{Shards: 5, Stream: StreamSettings{Sources: []StreamSource{{Name: "three"}}}}
	if sources.ShardAsOrigin(sources.Origin(state)); sources.Shards != 5 || sources.MirrorMismatch(sources.Origin(state)) != "" {
		t.Errorf("with sources it has %d shards", sources.Shards)
	}
}

// BenchmarkClaims measures the comparison with all other claims, without the transaction.
func BenchmarkClaims(b *testing.B) {
	claims := newClaims()
	for i := range 10_000 {
		name := fmt.Sprintf("topic-%d", i)
		claims.set(name, claim{[]string{name, name + ".>"}, client})
	}
	wanted := &Topic{Name: "new", Spec: spec("new", "new.>")}
	b.ReportAllocs()
	for b.Loop() {
		if claims.overlap(wanted) != nil {
			b.Fatal("an overlap was found")
		}
	}
}
