package coordination

import (
	"context"
	"errors"
	"fmt"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// mortal is the etcd client of a process that dies at its n-th request: before the request is sent,
// or after it succeeded and before the answer arrives.
type mortal struct {
	clientv3.KV
	left int
	done bool // it dies after the request succeeded
}

var errDied = errors.New("the process died")

func (m *mortal) request(send func() error) error {
	if m.left--; m.left > 0 {
		return send()
	}
	if m.left == 0 && m.done {
		_ = send()
	}
	return errDied
}

func (m *mortal) Get(ctx context.Context, key string, opts ...clientv3.OpOption) (got *clientv3.GetResponse, err error) {
	err = m.request(func() error { got, err = m.KV.Get(ctx, key, opts...); return err })
	return got, err
}

func (m *mortal) Txn(ctx context.Context) clientv3.Txn { return &mortalTxn{m.KV.Txn(ctx), m} }

type mortalTxn struct {
	txn clientv3.Txn
	m   *mortal
}

func (t *mortalTxn) If(cs ...clientv3.Cmp) clientv3.Txn   { t.txn = t.txn.If(cs...); return t }
func (t *mortalTxn) Then(ops ...clientv3.Op) clientv3.Txn { t.txn = t.txn.Then(ops...); return t }
func (t *mortalTxn) Else(ops ...clientv3.Op) clientv3.Txn { t.txn = t.txn.Else(ops...); return t }

func (t *mortalTxn) Commit() (done *clientv3.TxnResponse, err error) {
	err = t.m.request(func() error { done, err = t.txn.Commit(); return err })
	return done, err
}

// dying returns a client that dies at its n-th request.
func (e *etcdServer) dying(n int, done bool) *Client {
	c := e.open()
	c.etcd.KV = &mortal{c.etcd.KV, n, done}
	return c
}

// fill gives a Topic a shard, and more Subscriptions than one step deletes.
func (c *Client) fill(t *testing.T, topic *Topic) {
	t.Helper()
	ctx := context.Background()
	value, err := (&Subscription{Name: "s", Spec: &SubscriptionSpec{}}).encode()
	if err != nil {
		t.Fatal(err)
	}
	var puts []clientv3.Op
	for i := range deleteKeys + 10 {
		puts = append(puts, clientv3.OpPut(c.subscriptionKey(topic.ID, fmt.Sprintf("s%d", i)), value))
		if len(puts) == 100 || i == deleteKeys+9 {
			if _, err := c.transact(ctx, nil, puts); err != nil {
				t.Fatal(err)
			}
			puts = nil
		}
	}
	shard := newShard(topic.ID, 0, Replica{"a", 1})
	value, _ = shard.encode()
	if _, err := c.etcd.Put(ctx, c.shardKey(topic.ID, 0), value); err != nil {
		t.Fatal(err)
	}
}

// TestAnyProcessFinishesADeletion: the deleting process dies between any two requests. Whichever
// process continues, nothing remains.
func TestAnyProcessFinishesADeletion(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	etcd := startEtcd(t)
	c := etcd.open()
	heirs := map[string]func(name string) error{
		"delete": func(name string) error {
			err := c.DeleteTopic(ctx, name, "", client)
			if gone := (*NotFoundError)(nil); errors.As(err, &gone) {
				return nil // the last request was the unanswered one
			}
			return err
		},
		"create": func(name string) error {
			if topic, err := c.GetTopic(ctx, name); err == nil && !topic.Deleting {
				return c.DeleteTopic(ctx, name, "", client) // it died before it set the mark
			}
			made, err := c.CreateTopic(ctx, name, spec(name), manifest)
			if err != nil {
				return err
			}
			return c.DeleteTopic(ctx, name, made.ID, manifest)
		},
		"controller": func(string) error {
			topics, _, err := c.listTopics(ctx)
			if err != nil {
				return err
			}
			for _, topic := range topics {
				if !topic.Deleting {
					err = c.DeleteTopic(ctx, topic.Name, "", client)
				} else {
					err = c.SweepTopic(ctx, topic)
				}
				if err != nil {
					return err
				}
			}
			return nil
		},
	}
	for heir, finish := range heirs {
		for _, done := range []bool{false, true} {
			deaths := 0
			for n := 1; ; n++ {
				name := fmt.Sprintf("%s-%v-%d", heir, done, n)
				topic := c.mustCreate(t, name, spec(name), client)
				c.fill(t, topic)
				err := etcd.dying(n, done).DeleteTopic(ctx, name, topic.ID, client)
				if err != nil && !errors.Is(err, errDied) {
					t.Fatal(err)
				}
				if err != nil {
					deaths++
					if err := finish(name); err != nil {
						t.Fatalf("%s goes on after %d requests: %v", heir, n, err)
					}
				}
				if left := c.keys(t, c.prefix) - c.keys(t, c.allTombstones()); left != 1 {
					t.Fatalf("%s after %d requests: %d keys are left, want the gate and tombstones only", heir, n, left)
				}
				if deleted, err := c.TopicDeleted(ctx, topic.ID); err != nil || !deleted {
					t.Fatalf("%s after %d requests: there is no tombstone, %v", heir, n, err)
				}
				if err == nil {
					break
				}
			}
			if deaths < 6 {
				t.Errorf("it died at %d places; the steps are read, mark, and two each per kind of key", deaths)
			}
		}
	}
}

// TestATopicMarkedForDeletionGetsNoShardsOrSubscriptions: a Topic that is being deleted is not
// served and gets no shards or Subscriptions.
func TestATopicMarkedForDeletionGetsNoShardsOrSubscriptions(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	etcd := startEtcd(t)
	c := etcd.open()
	a := Replica{"a", c.join(t, broker("a")).incarnation()}
	office := c.office(t, a)
	topic := c.mustCreate(t, "orders", spec("orders"), client)
	if err := etcd.dying(3, false).DeleteTopic(ctx, "orders", "", client); !errors.Is(err, errDied) {
		t.Fatal(err)
	}
	marked, err := c.GetTopic(ctx, "orders")
	if err != nil || !marked.Deleting {
		t.Fatalf("%+v, %v", marked, err)
	}
	_, err = c.CreateSubscription(ctx, "orders", "billing", SubscriptionSpec{}, client)
	as[*NotFoundError](t, err)
	_, err = c.UpdateTopic(ctx, "orders", TopicUpdate{By: client, Spec: spec("orders")})
	as[*NotFoundError](t, err)
	// The controller may not have seen the mark yet.
	if office.writes(t, ShardWrite{newShard(topic.ID, 0, a), topic}) {
		t.Error("a shard of a Topic that is being deleted was placed")
	}
	_, err = office.WriteShards(ctx, []ShardWrite{{newShard(topic.ID, 0, a), marked}})
	as[*InvalidError](t, err)
	// Its subjects stay claimed until everything is deleted.
	_, err = c.CreateTopic(ctx, "other", spec("orders"), client)
	as[*OverlapError](t, err)
	if err := c.SweepTopic(ctx, marked); err != nil {
		t.Fatal(err)
	}
	c.mustCreate(t, "other", spec("orders"), client)
	if err := c.SweepTopic(ctx, topic); err == nil {
		t.Error("what was not marked was swept")
	}
}

// TestACreationMayBeRepeated: the answer to a creation is lost, and repeating it returns the
// created Topic.
func TestACreationMayBeRepeated(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	etcd := startEtcd(t)
	c := etcd.open()
	for n := 1; ; n++ {
		name := fmt.Sprintf("t%d", n)
		_, err := etcd.dying(n, true).CreateTopic(ctx, name, spec(name), manifest)
		if err == nil {
			if n != 4 {
				t.Errorf("a creation took %d requests; want two readings and one transaction", n-1)
			}
			return
		}
		if !errors.Is(err, errDied) {
			t.Fatal(err)
		}
		before := c.revision(t)
		topic := c.mustCreate(t, name, spec(name), manifest)
		if again := c.mustCreate(t, name, spec(name), manifest); again.ID != topic.ID || n == 3 && c.revision(t) != before {
			t.Errorf("it was made again as %+v", again)
		}
	}
}

// interrupting is an etcd client whose next transaction is carried out, and then gets no answer.
type interrupting struct {
	clientv3.KV
	then func() // called once, after the transaction
}

func (i *interrupting) Txn(ctx context.Context) clientv3.Txn {
	return &interruptedTxn{i.KV.Txn(ctx), i}
}

type interruptedTxn struct {
	clientv3.Txn
	by *interrupting
}

func (t *interruptedTxn) If(cs ...clientv3.Cmp) clientv3.Txn   { t.Txn = t.Txn.If(cs...); return t }
func (t *interruptedTxn) Then(ops ...clientv3.Op) clientv3.Txn { t.Txn = t.Txn.Then(ops...); return t }
func (t *interruptedTxn) Else(ops ...clientv3.Op) clientv3.Txn { t.Txn = t.Txn.Else(ops...); return t }

func (t *interruptedTxn) Commit() (*clientv3.TxnResponse, error) {
	done, err := t.Txn.Commit()
	then := t.by.then
	if then == nil || err != nil {
		return done, err
	}
	t.by.then = nil
	then()
	return nil, context.Canceled
}

// TestARepeatedCreationHasAnotherID: a creation shares its transaction with a call whose context
// ends, so it is repeated without knowing that the Topic was made. Another client deletes the Topic
// in between, completely or not. The Topic that is made then has another id: a tombstone is never
// one of a Topic that exists.
func TestARepeatedCreationHasAnotherID(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	etcd := startEtcd(t)
	others := etcd.open()
	for name, meanwhile := range map[string]func(*Topic){
		"kept": func(*Topic) {},
		"deleted": func(topic *Topic) {
			if err := others.DeleteTopic(ctx, topic.Name, topic.ID, client); err != nil {
				t.Error(err)
			}
		},
		"marked": func(topic *Topic) {
			if err := etcd.dying(3, false).DeleteTopic(ctx, topic.Name, topic.ID, client); !errors.Is(err, errDied) {
				t.Error(err)
			}
		},
	} {
		c := etcd.open()
		c.mustCreate(t, "before-"+name, spec("before-"+name), client) // so that the claims are loaded
		hurried, cancel := context.WithCancel(ctx)
		defer cancel()
		var first *Topic
		c.etcd.KV = &interrupting{c.etcd.KV, func() {
			var err error
			if first, err = others.GetTopic(ctx, name); err != nil {
				t.Error(err)
			} else {
				meanwhile(first)
			}
			cancel()
		}}
		<-c.puts.turn
		call, ended := askedOf(ctx), make(chan struct{})
		var made *Topic
		var failed error
		go func() {
			defer close(ended)
			made, failed = c.CreateTopic(call, name, spec(name), client)
		}()
		c.puts.queued(t, call, 1)
		c.putSome(hurried)
		c.puts.mustWait(t, 1)
		c.puts.turn <- struct{}{}
		<-ended
		if failed != nil || first == nil {
			t.Fatalf("%s: first %+v, then %v", name, first, failed)
		}
		if got, err := others.GetTopic(ctx, name); err != nil || got.ID != made.ID || got.Deleting {
			t.Errorf("%s: made %+v, and there is %+v, %v", name, made, got, err)
		}
		if gone := name != "kept"; c.buried(t, first.ID) != gone || (made.ID != first.ID) != gone || c.buried(t, made.ID) {
			t.Errorf("%s: first %s, then %s; tombstones: %v, %v", name, first.ID, made.ID, c.buried(t, first.ID), c.buried(t, made.ID))
		}
	}
}
