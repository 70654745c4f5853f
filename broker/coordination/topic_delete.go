package coordination

import (
	"context"
	"errors"
	"fmt"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// deleteKeys is the number of keys that one transaction of a deletion removes, few enough that etcd
// serves others in between.
const deleteKeys = 500

// DeleteTopic deletes a Topic with its shards and Subscriptions. Brokers delete its logs when they
// see that. An id that is not empty must be the Topic's.
//
//  1. It marks the Topic. From then on it is not served and gets no shards and Subscriptions, since
//     their writes compare the Topic's key.
//  2. It deletes the shards and Subscriptions, then the Topic's key, which a tombstone replaces.
//  3. If it is interrupted, the next DeleteTopic or CreateTopic of that name continues, or the
//     controller, which calls SweepTopic for marked Topics.
func (c *Client) DeleteTopic(ctx context.Context, name, id string, by Owner) error {
	marked, err := c.reviseTopic(ctx, name, Owner{}, func(t *Topic) error {
		switch {
		case !t.Owner.mayChange(by):
			return &NotOwnerError{"topic " + name, t.Owner}
		case id != "" && t.ID != id:
			return &StaleError{"topic " + name}
		}
		t.Deleting = true
		return nil
	})
	if gone := (*NotFoundError)(nil); errors.As(err, &gone) {
		left, getErr := c.GetTopic(ctx, name)
		if getErr != nil {
			return getErr // usually because it does not exist
		}
		if !left.Deleting || id != "" && left.ID != id {
			return &StaleError{"topic " + name}
		}
		return c.SweepTopic(ctx, left)
	}
	if err != nil {
		return err
	}
	return c.SweepTopic(ctx, marked)
}

// SweepTopic continues a deletion. It may be repeated and run concurrently.
func (c *Client) SweepTopic(ctx context.Context, t *Topic) error {
	if !t.Deleting {
		return fmt.Errorf("sweep topic %s: it is not being deleted (call DeleteTopic)", t.Name)
	}
	mark := clientv3.Compare(clientv3.ModRevision(c.topicKey(t.Name)), "=", t.Revision)
	for _, prefix := range []string{c.subscriptionsPrefix(t.ID), c.shardsPrefix(t.ID)} {
		for {
			done, err := c.sweepSome(ctx, prefix, mark)
			if err != nil {
				return fmt.Errorf("delete topic %s: %w", t.Name, err)
			}
			if done {
				break
			}
		}
	}
	if err := c.trimTombstones(ctx); err != nil {
		return fmt.Errorf("delete topic %s: %w", t.Name, err)
	}
	tombstone, err := c.bury(t)
	if err != nil {
		return err
	}
	done, err := c.transact(ctx, []clientv3.Cmp{mark}, []clientv3.Op{clientv3.OpDelete(c.topicKey(t.Name)), tombstone})
	if err != nil {
		return fmt.Errorf("delete topic %s: %w", t.Name, err)
	}
	c.room.frees(done.Header.GetRevision())
	return nil // without the mark, another sweep has finished
}

// sweepSome deletes the first keys under a prefix, and reports whether those were all.
func (c *Client) sweepSome(ctx context.Context, prefix string, mark clientv3.Cmp) (done bool, err error) {
	reading, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	got, err := c.etcd.Get(reading, prefix, clientv3.WithPrefix(), clientv3.WithKeysOnly(), clientv3.WithLimit(deleteKeys))
	if err != nil {
		return false, fmt.Errorf("get %s: %w", prefix, err)
	}
	if len(got.Kvs) == 0 {
		return true, nil
	}
	end := string(got.Kvs[len(got.Kvs)-1].GetKey()) + "\x00"
	deleted, err := c.transact(ctx, []clientv3.Cmp{mark}, []clientv3.Op{clientv3.OpDelete(prefix, clientv3.WithRange(end))})
	if err != nil {
		return false, fmt.Errorf("delete %s: %w", prefix, err)
	}
	return !got.More || !deleted.Succeeded, nil
}
