package coordination

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/carillon-mq/carillon/internal/testutil"
)

// withRoom returns the client with other bounds of what clients may have.
func (c *Client) withRoom(most, unseen int64) *Client {
	c.room.most, c.room.unseenMost = most, unseen
	return c
}

// fat returns a spec with that much metadata.
func fat(subject string, bytes int) TopicSpec {
	s := spec(subject)
	s.Stream.Metadata = map[string]string{"x": strings.Repeat("x", bytes)}
	return s
}

// TestClientsCannotFillEtcd: clients fill their room with streams of much metadata. A broker that
// wrote none of them refuses more, too. What manifests declare still fits, and a deletion makes
// room.
func TestClientsCannotFillEtcd(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	const metadata, most = 128 << 10, 1 << 20
	e := startEtcd(t)
	a, b := e.open().withRoom(most, most), e.open().withRoom(most, most)
	for _, c := range []*Client{a, b} {
		c.watchState(t).wait("the first state", func(*State) bool { return true })
	}
	agree := func(what string, bytes func(int64) bool) {
		t.Helper()
		testutil.EventuallyTrue(t, what, func() bool {
			x, y := a.ClientRoom().Bytes, b.ClientRoom().Bytes
			return x == y && bytes(x)
		})
	}
	made := 0
	var full *FullError
	for ; full == nil; made++ {
		if made*metadata > most {
			t.Fatalf("%d streams were made, and none was refused", made)
		}
		name := fmt.Sprintf("s%d", made)
		if _, err := a.CreateTopic(ctx, name, fat(name, metadata), client); err != nil {
			full = as[*FullError](t, err)
			made--
		}
	}
	if made != most/(metadata+2048) {
		t.Errorf("%d streams were made", made)
	}
	if full.Most != most || full.Used > most || full.Used+full.Bytes <= most || !strings.Contains(full.Error(), fmt.Sprint(full.Used)) {
		t.Errorf("refused with %v", full)
	}
	agree("both brokers know the sum", func(sum int64) bool { return sum == full.Used })

	_, err := b.CreateTopic(ctx, "other", fat("other", metadata), client)
	as[*FullError](t, err)
	_, err = b.CreateSubscription(ctx, "s0", "reader", SubscriptionSpec{Consumer: ConsumerSettings{Metadata: fat("", metadata).Stream.Metadata}}, client)
	as[*FullError](t, err)
	_, err = b.UpdateTopic(ctx, "s0", TopicUpdate{By: client, Spec: fat("s0", 2*metadata-4096)})
	as[*FullError](t, err)
	if refused := b.ClientRoom().Refused; refused != 3 {
		t.Errorf("it counts %d refusals", refused)
	}
	a.mustCreate(t, "declared", fat("declared", metadata), manifest)
	agree("what a manifest declares is not counted", func(sum int64) bool { return sum == full.Used })

	// A smaller definition and a deletion are never refused, and make room.
	if _, err := a.UpdateTopic(ctx, "s0", TopicUpdate{By: client, Spec: spec("s0")}); err != nil {
		t.Fatal(err)
	}
	if err := b.DeleteTopic(ctx, "s1", "", client); err != nil {
		t.Fatal(err)
	}
	agree("there is room again", func(sum int64) bool { return sum < full.Used-2*metadata })
	b.mustCreate(t, "other", fat("other", metadata), client)

	// What a manifest leaves behind is the clients'.
	before := a.ClientRoom().Bytes
	if _, err := a.OrphanTopic(ctx, "declared", manifest); err != nil {
		t.Fatal(err)
	}
	agree("what is left behind counts", func(sum int64) bool { return sum > before+metadata })
}

// TestWhatIsThereMayBeCreatedAgainWithoutRoom: as applications do when they start. It is the same
// answer as ever, also to a creation with another spec.
func TestWhatIsThereMayBeCreatedAgainWithoutRoom(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	c := startEtcd(t).open()
	orders := c.mustCreate(t, "orders", spec("orders"), client)
	reader, err := c.CreateSubscription(ctx, "orders", "reader", SubscriptionSpec{}, client)
	testutil.Must(t, err)
	c.withRoom(1, 1).watchState(t).wait("the first state", func(*State) bool { return true })

	if again, err := c.CreateTopic(ctx, "orders", spec("orders"), client); err != nil || again.ID != orders.ID {
		t.Errorf("the topic: %v, %v", again, err)
	}
	if again, err := c.CreateSubscription(ctx, "orders", "reader", SubscriptionSpec{}, client); err != nil || again.Made != reader.Made {
		t.Errorf("the subscription: %v, %v", again, err)
	}
	_, err = c.CreateTopic(ctx, "orders", spec("other"), client)
	as[*ExistsError](t, err)
	_, err = c.CreateSubscription(ctx, "orders", "reader", SubscriptionSpec{Consumer: ConsumerSettings{Description: "x"}}, client)
	as[*ExistsError](t, err)
	_, err = c.CreateTopic(ctx, "more", spec("more"), client)
	as[*FullError](t, err)
	_, err = c.CreateSubscription(ctx, "orders", "more", SubscriptionSpec{}, client)
	as[*FullError](t, err)
}

// TestBrokersExceedTheRoomOfClientsByABoundedAmount: brokers fill the room at the same time, and
// nobody waits for another.
func TestBrokersExceedTheRoomOfClientsByABoundedAmount(t *testing.T) {
	t.Parallel()
	const brokers, metadata, most, unseen = 3, 16 << 10, 1 << 20, 64 << 10
	e := startEtcd(t)
	var all []*Client
	for range brokers {
		c := e.open().withRoom(most, unseen)
		c.watchState(t).wait("the first state", func(*State) bool { return true })
		all = append(all, c)
	}
	var running sync.WaitGroup
	for b, c := range all {
		for i := range 8 {
			running.Go(func() {
				for n := range most / metadata {
					name := fmt.Sprintf("s-%d-%d-%d", b, i, n)
					_, err := c.CreateTopic(t.Context(), name, fat(name, metadata), client)
					if full := (*FullError)(nil); errors.As(err, &full) {
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
	revision := all[0].revision(t)
	testutil.EventuallyTrue(t, "all see all", func() bool {
		return !slices.ContainsFunc(all, func(c *Client) bool {
			c.room.mu.Lock()
			defer c.room.mu.Unlock()
			return c.room.revision < revision
		})
	})
	sum := all[0].ClientRoom().Bytes
	for _, c := range all[1:] {
		if other := c.ClientRoom().Bytes; other != sum {
			t.Errorf("one has %d bytes, another %d", sum, other)
		}
	}
	if sum < most-metadata-2048 || sum > most+(brokers-1)*unseen {
		t.Errorf("the sum is %d of %d", sum, most)
	}
}

// TestAWriteOfAClientWaitsForTheStateToFollow: what a broker wrote counts until its State has it.
// Beyond a bound of that the next write waits.
func TestAWriteOfAClientWaitsForTheStateToFollow(t *testing.T) {
	r := newClientRoom()
	r.most, r.unseenMost = 1000, 100
	take := func(bytes int64) func(int64) {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		done, err := r.take(ctx, client, need{what: "topic orders", bytes: bytes})
		if err != nil && ctx.Err() == nil {
			t.Fatal(err)
		}
		return done
	}
	r.note(figures{revision: 10})
	first, second := take(60), take(40)
	if first == nil || second == nil || take(1) != nil {
		t.Fatal("the bound of what is not seen is not kept")
	}
	first(12)
	r.note(figures{revision: 11})
	if take(1) != nil {
		t.Error("it did not wait for revision 12")
	}
	r.note(figures{revision: 12, bytes: 60})
	if third := take(60); third == nil {
		t.Error("what the State has still counts as not seen")
	} else {
		third(0) // nothing was written
	}
	second(20)
	waited := make(chan error, 1)
	go func() {
		done, err := r.take(t.Context(), client, need{what: "topic orders", bytes: 61})
		if err == nil {
			done(0)
		}
		waited <- err
	}()
	r.note(figures{revision: 5, restored: true}) // etcd was restored: revision 20 may never come
	if err := <-waited; err != nil {
		t.Error(err)
	}
}
