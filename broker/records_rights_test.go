package broker_test

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/carillon-mq/carillon/broker/coordination"
	"github.com/carillon-mq/carillon/broker/identity"
	"github.com/carillon-mq/carillon/client"
	"github.com/carillon-mq/carillon/internal/testutil"
)

// TestRecordsOfACluster: through each broker, a user reads the records of all shards that it may
// subscribe to, whichever brokers lead these. A reader that waits gets nothing of a subject whose
// right is lost, and ends when all are.
func TestRecordsOfACluster(t *testing.T) {
	l := startLimited(t, 2)
	rights := func(subscribe identity.Subjects) {
		t.Helper()
		var doc identity.Document
		for _, name := range []string{"ann", "bob"} {
			sum := sha256.Sum256([]byte(name))
			doc.Users = append(doc.Users, identity.User{Name: name, Tokens: []string{"sha256:" + hex.EncodeToString(sum[:])}})
		}
		doc.Users[0].Permissions = &identity.Permissions{Subscribe: &subscribe}
		_, err := l.store.PutUsers(t.Context(), &doc)
		testutil.Must(t, err)
	}
	rights(identity.Subjects{Allow: []string{"_INBOX.>", "orders.eu.>"}, Deny: []string{"orders.eu.secret"}})
	_, js := l.connect(0, "bob")
	_, err := l.store.CreateTopic(t.Context(), "orders", coordination.TopicSpec{Subjects: []string{"orders.>"}, Shards: 4, Replicas: 1, Deduplication: time.Hour}, coordination.Owner{Kind: coordination.ClientOwner})
	testutil.Must(t, err)
	publish := func(subject, payload string) {
		t.Helper()
		testutil.Eventually(t, "a message is stored", func() error {
			_, err := js.Publish(t.Context(), subject, []byte(payload), jetstream.WithMsgID(payload+subject))
			return err
		})
	}
	var want []string
	for n := range 40 {
		publish(fmt.Sprintf("orders.us.%d", n), "hidden")
		publish(fmt.Sprintf("orders.eu.%d", n), fmt.Sprint(n))
		want = append(want, fmt.Sprint(n))
	}
	publish("orders.eu.secret", "hidden")
	slices.Sort(want)
	ctx, cancel := context.WithTimeout(t.Context(), testutil.Patience)
	defer cancel()
	for i := range 2 {
		nc, _ := l.connect(i, "ann")
		for _, options := range []client.ReaderOptions{{}, {Full: true}, {Where: "true"}} {
			if got := everything(t, ctx, nc, options); !slices.Equal(got, want) {
				t.Errorf("broker %d, %+v: %q", i, options, got)
			}
		}
	}

	// Waiting readers of all shards.
	nc, _ := l.connect(1, "ann")
	got := make(chan string, 100)
	var reading sync.WaitGroup
	for shard := range 4 {
		r, err := client.NewReader(nc, "orders", shard, 0, client.ReaderOptions{Where: "has(json.follow)", Wait: time.Second})
		testutil.Must(t, err)
		reading.Go(func() {
			defer r.Close()
			for {
				is, err := r.Next(ctx)
				if err == nil {
					got <- string(is.Data)
					continue
				}
				if refused := (*client.ReadError)(nil); errors.As(err, &refused) {
					got <- string(refused.Code)
				} else {
					got <- err.Error()
				}
				return
			}
		})
	}
	// refused waits until both brokers know that ann may not read a subject.
	refused := func(subject string) {
		t.Helper()
		for i := range 2 {
			nc, _ := l.connect(i, "ann")
			for shard := range 4 {
				testutil.EventuallyTrue(t, "ann may not read "+subject, func() bool {
					r, err := client.NewReader(nc, "orders", shard, 0, client.ReaderOptions{Subjects: []string{subject}})
					testutil.Must(t, err)
					defer r.Close()
					soon, stop := context.WithTimeout(ctx, time.Second)
					defer stop()
					_, err = r.Next(soon)
					e := (*client.ReadError)(nil)
					return errors.As(err, &e) && e.Code == client.Forbidden
				})
			}
		}
	}
	publish("orders.eu.a", `{"follow":1}`)
	if is := <-got; is != `{"follow":1}` {
		t.Errorf("the first is %s", is)
	}
	rights(identity.Subjects{Allow: []string{"_INBOX.>", "orders.eu.a", "orders.eu.c"}})
	refused("orders.eu.b")
	publish("orders.eu.b", `{"follow":2}`)
	publish("orders.eu.c", `{"follow":3}`)
	if is := <-got; is != `{"follow":3}` {
		t.Errorf("with less rights %s comes", is)
	}
	rights(identity.Subjects{Allow: []string{"_INBOX.>"}})
	refused("orders.>")
	publish("orders.eu.a", `{"follow":4}`)
	reading.Wait()
	for range 4 {
		if is := <-got; is != string(client.Forbidden) {
			t.Errorf("without rights %s comes", is)
		}
	}
}

// everything returns the payloads of a snapshot, sorted.
func everything(t *testing.T, ctx context.Context, nc *nats.Conn, options client.ReaderOptions) (all []string) {
	t.Helper()
	s, err := client.TakeSnapshot(ctx, nc, "orders", client.SnapshotOptions{})
	testutil.Must(t, err)
	defer s.Close(ctx)
	for _, shard := range s.Shards() {
		r, err := s.Reader(shard.Number, 0, options)
		testutil.Must(t, err)
		for {
			is, err := r.Next(ctx)
			if errors.Is(err, io.EOF) {
				break
			}
			testutil.Must(t, err)
			all = append(all, string(is.Data))
		}
		testutil.Must(t, r.Close())
	}
	slices.Sort(all)
	return all
}
