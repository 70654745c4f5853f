package coordination

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// SupersededError reports that a newer process has registered with this broker's identity.
type SupersededError struct {
	ID    string
	Newer int64 // its incarnation
}

func (e *SupersededError) Error() string {
	return fmt.Sprintf("broker %s: a newer process has registered with this identity (incarnation %d); "+
		"two processes use copies of one data volume: give one of them a volume of its own", e.ID, e.Newer)
}

// Join keeps self registered until ctx ends, and then removes the registration, so that the others
// see at once that the broker left. onJoined is called, on the caller's goroutine, with the
// incarnation of each registration: the first, and one after each loss of the lease.
//
// Everything that this process wrote exists as long as it runs. So a later registration keeps
// Since: self's, or else the first incarnation. In the same transaction it also restores the report
// and the leased drain that were put last.
//
// While etcd is unreachable Join retries. It returns nil when ctx ended. An error means that
// retrying cannot help.
func (c *Client) Join(ctx context.Context, self Broker, onJoined func(incarnation int64)) error {
	if err := self.valid(); err != nil {
		return err
	}
	r := &registration{c: c, key: c.brokerKey(self.ID), self: self}
	defer c.leased.forget(self.ID)
	defer r.leave()
	var pause backoff
	for {
		err := r.register(ctx)
		switch superseded := (*SupersededError)(nil); {
		case ctx.Err() != nil:
			return nil
		case errors.As(err, &superseded):
			return err
		case err != nil:
			c.log.Warn("registering with etcd failed; trying again", "broker", self.ID, "error", err)
			if !pause.wait(ctx) {
				return nil
			}
			continue
		}
		pause.reset()
		c.log.Info("registered", "broker", self.ID, "name", self.Name, "incarnation", r.incarnation)
		onJoined(r.incarnation)
		reason := r.hold(ctx)
		if ctx.Err() != nil {
			return nil
		}
		c.log.Warn("the registration was lost; registering again", "broker", self.ID, "error", reason)
	}
}

// registration is one broker's key and its lease.
type registration struct {
	c           *Client
	key         string
	self        Broker
	lease       clientv3.LeaseID // 0: none is held or half-made
	incarnation int64            // of the last registration; 0: none yet
	generation  int64            // of etcd, at the last registration
}

// register creates the key under a new lease. Before that it revokes what an earlier attempt of
// this process left, so a key that it finds then belongs to another process.
//
// Each request has a deadline of its own: a slow etcd delays a registration, and does not prevent
// it.
func (r *registration) register(ctx context.Context) error {
	generation, _, err := r.c.history.resolve(ctx)
	if err != nil {
		return err
	}
	if r.lease != 0 && r.generation < generation {
		if err := r.c.settle(ctx, generation); err != nil {
			return err
		}
	}
	if err := r.end(ctx); err != nil {
		return err
	}
	count := r.c.history.count()
	if r.lease, err = r.c.grant(ctx); err != nil {
		return err
	}
	self := r.self
	self.Incarnation = incarnation(generation, 0) // the value says the generation
	data, err := self.encode()
	if err != nil {
		return err
	}
	value := string(data)
	then := []clientv3.Op{clientv3.OpPut(r.key, value, clientv3.WithLease(r.lease))}
	for key, value := range r.c.leased.of(r.self.ID) {
		then = append(then, clientv3.OpPut(key, value, clientv3.WithLease(r.lease)))
	}
	when := []clientv3.Cmp{clientv3.Compare(clientv3.CreateRevision(r.key), "=", 0), r.c.in(generation)}
	put, err := r.c.transact(ctx, when, then, clientv3.OpGet(r.key))
	if err == nil && !put.Succeeded && readResult(put, 0) != nil {
		if err := r.deleteStale(ctx, readResult(put, 0), generation); err != nil {
			return err
		}
		put, err = r.c.transact(ctx, when, then)
	}
	if err != nil {
		return fmt.Errorf("put %s: %w", r.key, err)
	}
	if !put.Succeeded {
		return fmt.Errorf("put %s: another process registered with this identity at the same time, or etcd entered another generation (trying again)", r.key)
	}
	revision := put.Header.GetRevision()
	r.incarnation, r.generation = incarnation(generation, revision), generation
	// A restore to before this registration is noticed, also if no State shows the registration
	// until then.
	r.c.history.saw(count, revision, generation, []Mark{markOf(&mvccpb.KeyValue{
		Key: []byte(r.key), Value: []byte(value), Lease: int64(r.lease), CreateRevision: revision, ModRevision: revision,
	})})
	if r.self.Since == 0 {
		r.self.Since = r.incarnation // of the next registration
	}
	return nil
}

// grant begins a lease.
func (c *Client) grant(ctx context.Context) (clientv3.LeaseID, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	grant, err := c.etcd.Grant(ctx, int64(c.ttl/time.Second))
	if err != nil {
		return 0, fmt.Errorf("grant a lease: %w", err)
	}
	return grant.ID, nil
}

// deleteStale deletes the key of an earlier process with this identity. The key is never
// overwritten, since it would keep its create revision, which is the incarnation. Its lease is
// revoked with everything that the dead process attached to it.
func (r *registration) deleteStale(ctx context.Context, found *mvccpb.KeyValue, generation int64) error {
	id := r.c.brokerID([]byte(r.key))
	newer := incarnation(r.generation, found.CreateRevision)
	if other, err := decodeBroker(id, found.CreateRevision, found.Value); err == nil {
		newer = other.Incarnation
	}
	if r.incarnation != 0 && newer > r.incarnation {
		return &SupersededError{ID: id, Newer: newer}
	}
	if GenerationOf(newer) < generation {
		if err := r.c.settle(ctx, generation); err != nil {
			return err
		}
	}
	if found.Lease != 0 {
		if err := r.revoke(ctx, clientv3.LeaseID(found.Lease)); err != nil {
			return fmt.Errorf("revoke the lease of the life before (%s): %w", r.key, err)
		}
	}
	if _, err := r.c.transact(ctx,
		[]clientv3.Cmp{clientv3.Compare(clientv3.ModRevision(r.key), "=", found.ModRevision)},
		[]clientv3.Op{clientv3.OpDelete(r.key)}); err != nil {
		return fmt.Errorf("delete the key of the life before (%s): %w", r.key, err)
	}
	return nil
}

// revoke ends a lease, if it exists.
func (r *registration) revoke(ctx context.Context, lease clientv3.LeaseID) error {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	_, err := r.c.etcd.Revoke(ctx, lease)
	if errors.Is(err, rpctypes.ErrLeaseNotFound) {
		return nil
	}
	return err
}

// end revokes the lease that this process holds, if any.
func (r *registration) end(ctx context.Context) error {
	if r.lease == 0 {
		return nil
	}
	if err := r.revoke(ctx, r.lease); err != nil {
		return fmt.Errorf("revoke the lease of the last registration: %w", err)
	}
	r.lease = 0
	return nil
}

// leave is end after the caller's context has ended. If etcd is unreachable the lease expires.
func (r *registration) leave() {
	ctx, cancel := context.WithTimeout(context.Background(), farewellTimeout)
	defer cancel()
	if err := r.end(ctx); err != nil {
		r.c.log.Warn("leaving without telling etcd; the lease runs out by itself", "key", r.key, "error", err)
	}
}

// inspectEvery is the number of beats between two checks that the key still exists: an
// administrator may have deleted it.
const inspectEvery = 5

// hold keeps the lease alive and returns when it cannot any longer: the lease is gone, the key is
// gone, or ctx ended.
//
// Each beat is a request of its own with a short deadline, to the next endpoint in turn. The
// client's own KeepAlive uses one connection, and would lose the lease when that coordinator
// vanishes without closing it.
func (r *registration) hold(ctx context.Context) error {
	var (
		interval = r.c.ttl / 3
		deadline = r.c.ttl / 5
		retry    = r.c.ttl / 30
		wait     = interval
		last     = time.Now()
		warned   bool
	)
	timer := time.NewTimer(wait)
	defer timer.Stop()
	restored := r.c.history.after(r.generation)
	for beat := 1; ; beat++ {
		select {
		case <-restored:
			return fmt.Errorf("etcd was restored from a backup, and generation %d is over", r.generation)
		case <-ctx.Done():
			return ctx.Err()
		case <-timer.C:
		}
		alive, err := r.beat(ctx, deadline)
		switch {
		case err == nil && !alive:
			return errors.New("the lease ran out or was revoked")
		case err == nil:
			last, warned, wait = time.Now(), false, interval
			if beat%inspectEvery == 0 && r.gone(ctx) {
				return errors.New("the key was deleted, or etcd was restored from a backup")
			}
		default:
			wait = retry
			// etcd may be electing, and its new leader extends every lease by its full TTL. So only
			// an answer of etcd ends the registration.
			if !warned && time.Since(last) > r.c.ttl {
				warned = true
				r.c.log.Warn("etcd has not answered for longer than the lease lasts; going on", "key", r.key, "error", err)
			}
		}
		timer.Reset(wait)
	}
}

// beat renews the lease once. alive is false if etcd answers that the lease does not exist.
func (r *registration) beat(ctx context.Context, deadline time.Duration) (alive bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, deadline)
	defer cancel()
	stream, err := r.c.leases().LeaseKeepAlive(ctx)
	if err != nil {
		return false, err
	}
	if err := stream.Send(&etcdserverpb.LeaseKeepAliveRequest{ID: int64(r.lease)}); err != nil {
		return false, err
	}
	answer, err := stream.Recv()
	if err != nil {
		return false, err
	}
	_ = stream.CloseSend()
	return answer.GetTTL() > 0, nil
}

// gone reports whether etcd answers that the key is not the one that was put, or that etcd is in
// another generation or was restored.
func (r *registration) gone(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, r.c.ttl/3)
	defer cancel()
	if generation, err := r.c.history.check(ctx); err != nil {
		_, restored := errors.AsType[*RestoredError](err)
		return restored
	} else if generation != r.generation {
		return true
	}
	got, err := r.c.etcd.Get(ctx, r.key)
	return err == nil && (len(got.Kvs) == 0 || got.Kvs[0].CreateRevision != revisionOf(r.incarnation))
}
