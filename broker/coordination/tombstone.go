package coordination

import (
	"context"
	"fmt"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// A tombstone says that the Topic of an id was deleted. A broker that was away at the deletion
// deletes its logs by it. Without one, they may be those of a Topic that etcd has lost.
//
//  1. The transaction that deletes a Topic's key writes its tombstone. So etcd has the one or the
//     other for an id, and a deletion that was not completed has no tombstone.
//  2. Ids are never reused (C2). So a tombstone is true in every later etcd, also in one that was
//     restored from a backup.
//  3. The newest maxTombstones are kept, and up to trimmedKeys older ones. The logs of Topics that
//     were deleted earlier are set aside when their broker returns.
//  4. Earlier versions ignore these keys, and write none when they delete a Topic.
//
// Rejected: a tombstone for each replica, which its broker removes when the logs are gone. It
// leaves fewer keys, needs a protocol, and misses replicas that were moved while their broker was
// away.
const (
	// maxTombstones is the number of tombstones that are kept. Each has about 150 bytes.
	maxTombstones = 10_000
	// trimmedKeys is the number of tombstones that one deletion removes, within etcd's limit of 128
	// operations of a transaction. To find the oldest, etcd reads and sorts all. So one deletion in
	// trimmedKeys does that.
	trimmedKeys = 100
)

type tombstoneValue struct {
	V       int       `json:"v"`
	Topic   string    `json:"topic"` // its name, for people
	Deleted time.Time `json:"deleted"`
}

const tombstoneValueVersion = 1

func (c *Client) allTombstones() string { return c.prefix + "tombstones/" }

func (c *Client) tombstoneKey(topicID string) string { return c.allTombstones() + topicID }

// bury returns the operation that writes the tombstone of a Topic.
func (c *Client) bury(t *Topic) (clientv3.Op, error) {
	value, err := encodeValue("the tombstone of topic "+t.Name, tombstoneValue{tombstoneValueVersion, t.Name, now()})
	return clientv3.OpPut(c.tombstoneKey(t.ID), value), err
}

// trimTombstones deletes the oldest trimmedKeys tombstones if there are that many more than are
// kept. Concurrent calls remove the same ones, and may leave a few more.
func (c *Client) trimTombstones(ctx context.Context) error {
	reading, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	all := c.allTombstones()
	counted, err := c.etcd.Get(reading, all, clientv3.WithPrefix(), clientv3.WithCountOnly())
	if err != nil {
		return fmt.Errorf("count %s: %w", all, err)
	}
	most := int64(c.tombstones) + trimmedKeys
	if counted.Count < most {
		return nil
	}
	oldest, err := c.etcd.Get(reading, all, clientv3.WithPrefix(), clientv3.WithKeysOnly(),
		clientv3.WithSort(clientv3.SortByCreateRevision, clientv3.SortAscend), clientv3.WithLimit(trimmedKeys))
	if err != nil {
		return fmt.Errorf("get %s: %w", all, err)
	}
	if oldest.Count < most { // a concurrent call has removed the older ones
		return nil
	}
	var ops []clientv3.Op
	for _, kv := range oldest.Kvs {
		ops = append(ops, clientv3.OpDelete(string(kv.GetKey())))
	}
	if _, err := c.transact(ctx, nil, ops); err != nil {
		return fmt.Errorf("delete old tombstones: %w", err)
	}
	return nil
}

// TopicDeleted reports whether the Topic of an id has a tombstone. It waits until etcd answers; the
// error is that of ctx.
func (c *Client) TopicDeleted(ctx context.Context, id string) (bool, error) {
	var pause backoff
	for {
		got, err := c.transact(ctx, nil, []clientv3.Op{clientv3.OpGet(c.tombstoneKey(id))})
		if err == nil {
			return c.proves(readResult(got, 0)), nil
		}
		if ctx.Err() == nil {
			c.log.Warn("could not read whether a Topic was deleted; trying again", "id", id, "error", err)
		}
		if !pause.wait(ctx) {
			return false, ctx.Err()
		}
	}
}

// proves reports whether a key is a tombstone that this version understands.
func (c *Client) proves(kv *mvccpb.KeyValue) bool {
	if kv == nil {
		return false
	}
	var value tombstoneValue
	err := decodeValue(string(kv.GetKey()), kv.GetValue(), tombstoneValueVersion, &value, &value.V)
	if err != nil {
		c.log.Warn("a tombstone is unreadable; the logs of its Topic are set aside", "error", err)
	}
	return err == nil
}
