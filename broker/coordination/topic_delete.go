package coordination

import (
	"context"
	"errors"
	"fmt"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// deleteKeys is how many keys one transaction of a deletion takes away: few enough that etcd
// serves others in between.
const deleteKeys = 500

// DeleteTopic deletes a Topic with its shards and Subscriptions; what is on the brokers' disks
// they delete when they see it. An id that is not empty must be the Topic's.
//
// It is first marked, and so neither served nor given shards and Subscriptions any more, since
// whoever writes those compares the Topic's key. Then what hangs on it goes, at last the key.
// Whatever ends in between is gone on with by the next DeleteTopic or CreateTopic of that
// name, or by the controller, which calls SweepTopic for what it sees marked.
func (c *Client) DeleteTopic(ctx context.Context, name, id string, by Owner) error {
	marked, err := c.reviseTopic(ctx, name, func(t *Topic) error {
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
			return getErr // mostly that it is not there
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

// SweepTopic finishes a deletion that was begun. It may be repeated, and done by several at once.
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
	if _, err := c.transact(ctx, []clientv3.Cmp{mark}, []clientv3.Op{clientv3.OpDelete(c.topicKey(t.Name))}); err != nil {
		return fmt.Errorf("delete topic %s: %w", t.Name, err)
	}
	return nil // if the mark was not there, somebody else had finished
}

// sweepSome deletes the first keys under a prefix, and says whether that were all of them.
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
