package coordination

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/carillon-mq/carillon/broker/work"
)

// Controller is the broker that places shards, as long as its key exists.
type Controller struct {
	Replica
	Term int64 // create revision of the key: greater for each election; 0: none
}

type controllerValue struct {
	V int `json:"v"`
	Replica
}

const controllerValueVersion = 1

func (c *Client) controllerKey() string { return c.prefix + "controller" }

func decodeController(kv *mvccpb.KeyValue) (Controller, error) {
	var value controllerValue
	if err := decodeValue("the controller", kv.GetValue(), controllerValueVersion, &value, &value.V); err != nil {
		return Controller{}, err
	}
	return Controller{value.Replica, kv.GetCreateRevision()}, nil
}

// Office is the write access of the elected controller. Every write compares that the key of its
// election still exists, so a deposed controller that does not know of its end changes nothing.
type Office struct {
	c          *Client
	term       int64
	generation int64
}

// Generation returns the generation of the election. Its end ends the term.
func (o *Office) Generation() int64 { return o.generation }

// Term returns the create revision of the key: greater for every later election.
func (o *Office) Term() int64 { return o.term }

// DeposedError reports that a controller wrote after it was deposed.
type DeposedError struct{ Term int64 }

func (e *DeposedError) Error() string {
	return fmt.Sprintf("the controller elected at revision %d is controller no more (stop, and campaign again)", e.Term)
}

// NotRegisteredError reports that the broker's registration, whose lease its candidacy uses, is not
// of this incarnation.
type NotRegisteredError struct{ Replica }

func (e *NotRegisteredError) Error() string {
	return fmt.Sprintf("broker %s is not registered with incarnation %d (campaign when it has joined, with its new incarnation)", e.Broker, e.Incarnation)
}

// Campaign runs for controller until ctx ends, and then returns nil. Whenever self is elected it
// calls lead, on the caller's goroutine, with a context that ends when ctx does or when self cannot
// be sure to be controller any more. If lead returns earlier, self resigns and runs again.
//
// The key uses the lease of the broker's registration, so it ends with it: revoking the lease of a
// dead broker also ends its term. When self is no longer registered in that incarnation, Campaign
// returns a *NotRegisteredError.
//
// vacant, which is never closed, signals that there may be no controller, for example when a State
// has none. Without it Campaign detects that within the TTL of a lease.
func (c *Client) Campaign(ctx context.Context, self Replica, vacant <-chan struct{}, lead func(context.Context, *Office)) error {
	var pause backoff
	for ctx.Err() == nil {
		term, err := c.elect(ctx, self)
		if missing, ok := err.(*NotRegisteredError); ok {
			return missing
		}
		switch {
		case ctx.Err() != nil:
			return nil
		case err != nil:
			c.log.Warn("standing for controller failed; trying again", "broker", self.Broker, "error", err)
			if !pause.wait(ctx) {
				return nil
			}
			continue
		case term == 0:
			pause.reset()
			timer := time.NewTimer(c.ttl)
			select {
			case <-ctx.Done():
			case <-vacant:
			case <-timer.C:
			}
			timer.Stop()
			continue
		}
		c.log.Info("elected controller", "broker", self.Broker, "term", term)
		c.hold(ctx, &Office{c, term, self.Generation()}, lead)
		c.resign(term)
		c.log.Info("controller no more", "broker", self.Broker, "term", term)
		if !pause.wait(ctx) { // otherwise a lead that returns at once would make this a busy loop
			return nil
		}
	}
	return nil
}

// elect tries once. Term 0 means that another broker is controller.
func (c *Client) elect(ctx context.Context, self Replica) (term int64, err error) {
	value, err := encodeValue("the controller", controllerValue{controllerValueVersion, self})
	if err != nil {
		return 0, err
	}
	found, err := c.get(ctx, c.brokerKey(self.Broker))
	if err != nil {
		return 0, err
	}
	if !registers(found, self) {
		return 0, &NotRegisteredError{self}
	}
	key := c.controllerKey()
	done, err := c.transact(ctx,
		[]clientv3.Cmp{clientv3.Compare(clientv3.CreateRevision(key), "=", 0), c.lives(self), c.in(self.Generation())},
		[]clientv3.Op{clientv3.OpPut(key, value, clientv3.WithLease(clientv3.LeaseID(found.GetLease())))},
		clientv3.OpGet(key))
	if err != nil {
		return 0, fmt.Errorf("put %s: %w", key, err)
	}
	if done.Succeeded {
		return done.Header.GetRevision(), nil
	}
	// The answer of an earlier election may have been lost. Then the key is this broker's, in this
	// incarnation.
	if found := readResult(done, 0); found != nil {
		controller, err := decodeController(found)
		if err == nil && controller.Replica == self {
			return controller.Term, nil
		}
		if err == nil && controller.Generation() < self.Generation() { // it was restored with etcd
			return 0, c.unseat(ctx, self, found)
		}
	}
	return 0, nil
}

// unseat deletes the key of a controller of an earlier generation.
func (c *Client) unseat(ctx context.Context, self Replica, found *mvccpb.KeyValue) error {
	key := c.controllerKey()
	if _, err := c.transact(ctx,
		[]clientv3.Cmp{clientv3.Compare(clientv3.ModRevision(key), "=", found.GetModRevision()), c.lives(self), c.in(self.Generation())},
		[]clientv3.Op{clientv3.OpDelete(key)}); err != nil {
		return fmt.Errorf("delete the controller of an earlier generation: %w", err)
	}
	return errUnseated
}

// errUnseated has the election tried again.
var errUnseated = errors.New("the controller of an earlier generation was removed")

// hold runs lead while the key is seen at least once per TTL of the lease.
func (c *Client) hold(ctx context.Context, office *Office, lead func(context.Context, *Office)) {
	ctx, cancel := context.WithCancel(ctx)
	watched := make(chan struct{})
	go func() {
		defer close(watched)
		defer cancel()
		c.confirm(ctx, office.term)
	}()
	lead(ctx, office)
	cancel()
	<-watched
}

// confirm returns when the key is gone or was not seen for longer than the TTL.
func (c *Client) confirm(ctx context.Context, term int64) {
	interval := c.ttl / 3
	seen := time.Now()
	for work.SleepToTick(ctx, interval) {
		asked := time.Now()
		asking, cancel := context.WithTimeout(ctx, interval)
		got, err := c.etcd.Get(asking, c.controllerKey())
		cancel()
		switch {
		case err == nil && (len(got.Kvs) == 0 || got.Kvs[0].CreateRevision != term):
			return
		case err == nil:
			seen = asked
		case time.Since(seen) > c.ttl:
			c.log.Warn("etcd has not answered for longer than a lease lasts; being controller no more", "term", term, "error", err)
			return
		}
	}
}

// resign deletes the key, so that another broker need not wait for the lease.
func (c *Client) resign(term int64) {
	ctx, cancel := context.WithTimeout(context.Background(), farewellTimeout)
	defer cancel()
	key := c.controllerKey()
	if _, err := c.transact(ctx,
		[]clientv3.Cmp{clientv3.Compare(clientv3.CreateRevision(key), "=", term)},
		[]clientv3.Op{clientv3.OpDelete(key)}); err != nil {
		c.log.Warn("resigning without telling etcd; the lease runs out by itself", "term", term, "error", err)
	}
}

// ShardWrite is one change of a shard by the controller.
type ShardWrite struct {
	Shard Shard  // with the revision that it replaces; 0: new
	Topic *Topic // of the shard; a new shard is not written if the Topic has changed since
}

// MaxShardWrites bounds the changes of one call, by the operations that etcd takes in one
// transaction (128).
const MaxShardWrites = 100

// WriteShards writes changes in one transaction, and returns the revision of each. A revision of 0
// says that the shard, its Topic, or the incarnation of its leader has changed since the controller
// read it, and that this change was not made: brokers change their entries all the time, and delay
// no other shard. With an error no revision is known. A *DeposedError reports that this broker is
// not controller any more.
func (o *Office) WriteShards(ctx context.Context, writes []ShardWrite) (revisions []int64, err error) {
	if len(writes) == 0 || len(writes) > MaxShardWrites {
		return nil, &InvalidError{"writing shards", fmt.Sprintf("%d at once (use 1 to %d)", len(writes), MaxShardWrites)}
	}
	c := o.c
	each := make([]clientv3.Op, 0, len(writes))
	for i := range writes {
		s := &writes[i].Shard
		if why := writes[i].valid(); why != "" {
			return nil, &InvalidError{s.String(), why}
		}
		value, err := s.encode()
		if err != nil {
			return nil, err
		}
		put := clientv3.OpPut(c.shardKey(s.Topic, s.Number), value)
		each = append(each, clientv3.OpTxn(o.compares(&writes[i]), []clientv3.Op{put}, nil))
	}
	when := []clientv3.Cmp{clientv3.Compare(clientv3.CreateRevision(c.controllerKey()), "=", o.term), c.in(o.generation)}
	done, err := c.transact(ctx, when, each)
	if err != nil {
		return nil, fmt.Errorf("write %d shards: %w", len(each), err)
	}
	if !done.Succeeded {
		return nil, &DeposedError{o.term}
	}
	for i := range each {
		var revision int64
		if done.Responses[i].GetResponseTxn().GetSucceeded() {
			revision = done.Header.GetRevision()
		}
		revisions = append(revisions, revision)
	}
	return revisions, nil
}

func (w *ShardWrite) valid() string {
	if w.Shard.Revision == 0 && (w.Topic == nil || w.Topic.ID != w.Shard.Topic || w.Topic.Deleting) {
		return "a new shard goes with its topic, which is not being deleted"
	}
	return w.Shard.valid()
}

// compares returns the conditions of a write.
func (o *Office) compares(w *ShardWrite) []clientv3.Cmp {
	c, s := o.c, &w.Shard
	key := c.shardKey(s.Topic, s.Number)
	when := []clientv3.Cmp{clientv3.Compare(clientv3.ModRevision(key), "=", s.Revision)}
	if s.Revision == 0 { // a deletion of the Topic deletes an existing shard's key
		when = append(when, clientv3.Compare(clientv3.ModRevision(c.topicKey(w.Topic.Name)), "=", w.Topic.Revision))
	}
	if leader, in := s.Member(s.Leader); in {
		when = append(when, c.lives(leader))
	}
	return when
}
