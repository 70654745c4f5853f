package coordination

import (
	"context"
	"errors"
	"fmt"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// buried reports whether the Topic of an id has a tombstone.
func (c *Client) buried(t *testing.T, id string) bool {
	t.Helper()
	deleted, err := c.TopicDeleted(context.Background(), id)
	if err != nil {
		t.Fatal(err)
	}
	return deleted
}

// TestATombstoneReplacesATopic: the deleting process dies between any two requests. A Topic has its
// key or a tombstone, and never both or neither. A Topic that is made anew under its name has none.
func TestATombstoneReplacesATopic(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	etcd := startEtcd(t)
	c := etcd.open()
	for _, done := range []bool{false, true} {
		replaced := 0
		for n := 1; ; n++ {
			name := fmt.Sprintf("orders-%v-%d", done, n)
			topic := c.mustCreate(t, name, spec(name), client)
			c.fill(t, topic)
			err := etcd.dying(n, done).DeleteTopic(ctx, name, topic.ID, client)
			if err != nil && !errors.Is(err, errDied) {
				t.Fatal(err)
			}
			_, getErr := c.GetTopic(ctx, name)
			if gone := (*NotFoundError)(nil); getErr != nil && !errors.As(getErr, &gone) {
				t.Fatal(getErr)
			}
			if buried := c.buried(t, topic.ID); buried != (getErr != nil) {
				t.Fatalf("after %d requests its tombstone is %v, and its key: %v", n, buried, getErr)
			} else if buried {
				replaced++
			} else if err := c.DeleteTopic(ctx, name, "", client); err != nil {
				t.Fatal(err)
			}
			again := c.mustCreate(t, name, spec(name), client)
			if c.buried(t, again.ID) || !c.buried(t, topic.ID) {
				t.Fatalf("after %d requests the new Topic has a tombstone, or the former one none", n)
			}
			if err == nil {
				break
			}
		}
		if replaced == 0 || replaced > 2 {
			t.Errorf("with answers %v it was replaced after %d of its requests", done, replaced)
		}
	}
}

// counted is an etcd client that calls a function once, after keys were counted.
type counted struct {
	clientv3.KV
	then func()
}

func (c *counted) Get(ctx context.Context, key string, opts ...clientv3.OpOption) (*clientv3.GetResponse, error) {
	got, err := c.KV.Get(ctx, key, opts...)
	if then := c.then; then != nil && err == nil && got.Count > 0 && len(got.Kvs) == 0 {
		c.then = nil
		then()
	}
	return got, err
}

// TestTombstonesAreBounded: the newest are kept. Most deletions remove none, and one removes many,
// also if two deletions find too many at once.
func TestTombstonesAreBounded(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	etcd := startEtcd(t)
	c, other := etcd.open(), etcd.open()
	c.tombstones, other.tombstones = 3, 3
	const early = 101
	var ids []string
	for i := range early {
		id := fmt.Sprintf("%03d", (i*37)%early) // in another order than the keys'
		value, err := encodeValue(id, tombstoneValue{tombstoneValueVersion, id, now()})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := c.etcd.Put(ctx, c.tombstoneKey(id), value); err != nil {
			t.Fatal(err)
		}
		ids = append(ids, id)
	}
	remove := func(by *Client, name string) {
		topic := c.mustCreate(t, name, spec(name), client)
		if err := by.DeleteTopic(ctx, name, "", client); err != nil {
			t.Fatal(err)
		}
		ids = append(ids, topic.ID)
	}
	// The third deletion is the first that finds 100 more than are kept. Another one is completed
	// just after it has counted them.
	for i, want := range []int{102, 103, 5, 6} {
		if i == 2 {
			c.etcd.KV = &counted{c.etcd.KV, func() { remove(other, "bills") }}
		}
		remove(c, fmt.Sprintf("orders-%d", i))
		if got := c.keys(t, c.allTombstones()); got != want {
			t.Fatalf("after %d deletions there are %d tombstones, want %d", i+1, got, want)
		}
		for _, id := range ids[len(ids)-want:] {
			if !c.buried(t, id) {
				t.Fatalf("after %d deletions, a tombstone of the %d newest is gone", i+1, want)
			}
		}
	}
}

// TestAnUnreadableTombstoneProvesNothing: what this version does not understand is no proof.
// Followers of the State pass over all tombstones.
func TestAnUnreadableTombstoneProvesNothing(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	c := startEtcd(t).open()
	for id, value := range map[string]string{"later": `{"v":2}`, "spoilt": `{"v":`, "none": ``, "list": `[]`} {
		if _, err := c.etcd.Put(ctx, c.tombstoneKey(id), value); err != nil {
			t.Fatal(err)
		}
		if c.buried(t, id) {
			t.Errorf("%s is taken for a proof", value)
		}
	}
	if c.buried(t, "nobody") {
		t.Error("without a key there is a tombstone")
	}
	over, cancel := context.WithCancel(ctx)
	cancel()
	if _, err := c.TopicDeleted(over, "nobody"); !errors.Is(err, context.Canceled) {
		t.Errorf("without an answer: %v", err)
	}
	following, stop := context.WithCancel(ctx)
	defer stop()
	err := c.WatchState(following, func(s *State, _ Changes) {
		if keys := s.Unreadable(); len(keys) > 0 || s.TopicCount() > 0 {
			t.Errorf("the State has %d Topics, and can't read %q", s.TopicCount(), keys)
		}
		stop()
	})
	if err != nil {
		t.Error(err)
	}
}
