package coordination

import (
	"errors"
	"fmt"
	"sync"
	"testing"

	"go.etcd.io/etcd/api/v3/mvccpb"

	"github.com/carillon-mq/carillon/broker/identity"
	"github.com/carillon-mq/carillon/internal/testutil"
)

// ann is what the user ann makes.
var ann = Owner{Kind: ClientOwner, User: "ann"}

// limiting opens a client by which the user ann has limits, and which has seen a State.
func (e *etcdServer) limiting(limits *identity.Limits) *Client {
	c := e.open()
	c.room.limits = func(user string) identity.Limits {
		if user == "ann" {
			return *limits
		}
		return identity.Limits{}
	}
	c.watchState(e.t).wait("the first state", func(*State) bool { return true })
	return c
}

// knows waits until a client's State has so much of ann.
func (c *Client) knows(t *testing.T, want usage) {
	t.Helper()
	testutil.EventuallyTrue(t, fmt.Sprintf("ann has %+v", want), func() bool {
		c.room.mu.Lock()
		defer c.room.mu.Unlock()
		return c.room.users["ann"] == want
	})
}

// bounded returns a spec with a bound of what it stores.
func bounded(subject string, bytes int64, replicas int) TopicSpec {
	s := spec(subject)
	s.Retention.Bytes, s.Replicas, s.MinInSync = bytes, replicas, 0
	return s
}

// refused fails unless the limit refused.
func refused(t *testing.T, err error, limit string) *LimitError {
	t.Helper()
	e := as[*LimitError](t, err)
	if e.Limit != limit || e.User != "ann" || e.Error() == "" {
		t.Errorf("refused by %+v, want the limit %s", e, limit)
	}
	return e
}

// TestAUserMakesSoManyStreamsWhicheverBrokerItAsks: a user's third stream is refused by both
// brokers. Other users and manifests aren't limited by that. Whoever changes its streams, they
// count for the one who made them, until they are deleted.
func TestAUserMakesSoManyStreamsWhicheverBrokerItAsks(t *testing.T) {
	t.Parallel()
	ctx, e, limits := t.Context(), startEtcd(t), &identity.Limits{Streams: 2}
	a, b := e.limiting(limits), e.limiting(limits)
	a.mustCreate(t, "one", spec("one"), ann)
	a.mustCreate(t, "two", spec("two"), ann)
	b.knows(t, usage{streams: 2, unbounded: 2})
	for _, c := range []*Client{a, b} {
		_, err := c.CreateTopic(ctx, "three", spec("three"), ann)
		if e := refused(t, err, LimitStreams); e.Used != 2 || e.Most != 2 {
			t.Errorf("refused with %v", e)
		}
		if n := c.ClientRoom().RefusedOf[LimitStreams]; n != 1 {
			t.Errorf("it counts %d refusals", n)
		}
	}
	b.mustCreate(t, "others", spec("others"), Owner{Kind: ClientOwner, User: "bob"})
	b.mustCreate(t, "nobody's", spec("nobodys"), client)
	b.mustCreate(t, "declared", spec("declared"), manifest)
	if _, err := b.UpdateTopic(ctx, "one", TopicUpdate{By: Owner{Kind: ClientOwner, User: "bob"}, Spec: spec("one", "uno")}); err != nil {
		t.Error(err)
	}
	a.knows(t, usage{streams: 2, unbounded: 2})

	limits.Streams = 1 // what exists stays, and may be changed
	if _, err := a.UpdateTopic(ctx, "one", TopicUpdate{By: ann, Spec: spec("one")}); err != nil {
		t.Error(err)
	}
	limits.Streams = 2
	if err := b.DeleteTopic(ctx, "two", "", client); err != nil {
		t.Fatal(err)
	}
	a.knows(t, usage{streams: 1, unbounded: 1})
	a.mustCreate(t, "three", spec("three"), ann)

	// A State that is followed anew has the same sums.
	c := e.limiting(limits)
	c.knows(t, usage{streams: 2, unbounded: 2})
	for range 20 { // a deletion makes room at once for creations by the same broker
		if err := c.DeleteTopic(ctx, "three", "", client); err != nil {
			t.Fatal(err)
		}
		c.mustCreate(t, "three", spec("three"), ann)
	}
}

// TestAUsersStreamsReserveWhatTheyStore: each stream reserves its bound on every shard and replica.
// Without a bound it is refused, and so is a larger bound later. A lower one makes room.
func TestAUsersStreamsReserveWhatTheyStore(t *testing.T) {
	t.Parallel()
	ctx, e, limits := t.Context(), startEtcd(t), &identity.Limits{}
	c := e.limiting(limits)
	c.mustCreate(t, "earlier", spec("earlier"), ann)
	limits.StoredBytes = 1000
	for _, bytes := range []int64{0, 1 << 50} {
		_, err := c.CreateTopic(ctx, "unbounded", bounded("unbounded", bytes, 1), ann)
		if e := refused(t, err, LimitStoredBytes); !e.Unbounded {
			t.Errorf("refused with %v", e)
		}
	}
	c.mustCreate(t, "one", bounded("one", 200, 3), ann)
	c.knows(t, usage{streams: 2, stored: 600, unbounded: 1})
	_, err := c.CreateTopic(ctx, "two", bounded("two", 401, 1), ann)
	if e := refused(t, err, LimitStoredBytes); e.Used != 600 || e.More != 401 || e.Most != 1000 {
		t.Errorf("refused with %v", e)
	}
	sharded := bounded("two", 200, 1)
	sharded.Shards = 2
	c.mustCreate(t, "two", sharded, ann)
	update := func(name string, spec TopicSpec) error {
		_, err := c.UpdateTopic(ctx, name, TopicUpdate{By: client, Spec: spec})
		return err
	}
	refused(t, update("one", bounded("one", 201, 3)), LimitStoredBytes)
	refused(t, update("one", bounded("one", 0, 3)), LimitStoredBytes)
	for _, spec := range []TopicSpec{bounded("one", 200, 2), bounded("one", 300, 2), bounded("one", 300, 1)} {
		if err := update("one", spec); err != nil {
			t.Error(err)
		}
	}
	if err := update("earlier", spec("earlier", "before")); err != nil {
		t.Errorf("a stream that was made before the limit can't be changed: %v", err)
	}
	c.knows(t, usage{streams: 3, stored: 700, unbounded: 1})
}

// TestBrokersExceedTheStreamsOfAUserByABoundedNumber: a user makes streams through three brokers at
// the same time, many at once. Through one broker alone it makes exactly as many as it may.
func TestBrokersExceedTheStreamsOfAUserByABoundedNumber(t *testing.T) {
	t.Parallel()
	for _, brokers := range []int{1, 3} {
		const most, atOnce = 30, 20
		e, limits := startEtcd(t), &identity.Limits{Streams: most}
		var all []*Client
		for range brokers {
			all = append(all, e.limiting(limits))
		}
		var running sync.WaitGroup
		for b, c := range all {
			for i := range atOnce {
				running.Go(func() {
					for n := 0; ; n++ {
						name := fmt.Sprintf("s-%d-%d-%d", b, i, n)
						_, err := c.CreateTopic(t.Context(), name, spec(name), ann)
						if e := (*LimitError)(nil); errors.As(err, &e) {
							return
						}
						if err != nil {
							t.Errorf("create %s: %v", name, err)
							return
						}
					}
				})
			}
		}
		running.Wait()
		made := 0
		_, err := all[0].pages(t.Context(), all[0].topicsPrefix(), func(*mvccpb.KeyValue) { made++ })
		testutil.Must(t, err)
		if made < most || made > most+(brokers-1)*unseenOfUser {
			t.Errorf("through %d brokers a user with the limit %d made %d streams", brokers, most, made)
		}
	}
}
