package coordination

import (
	"context"
	"encoding/json"
	"fmt"
	"hash/fnv"
	"maps"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// The keys below verifiers/ have what the operator knows of where the verifiers of users come from,
// in pieces of users by a hash of their names. So a changed password of 10,000 writes 2 KiB. Each
// write goes to all brokers, which watch all keys and ignore these. Those of earlier versions do
// so, too: a field of a user that they don't know would be a mistake.
type verifiersValue struct {
	V    int               `json:"v"`
	From map[string]string `json:"from"` // by user
}

const verifiersValueVersion = 1

func (c *Client) verifiersPrefix() string { return c.prefix + "verifiers/" }

// verifiersKey returns the key of the piece with a user.
func (c *Client) verifiersKey(user string) string {
	sum := fnv.New32a()
	_, _ = sum.Write([]byte(user)) // never fails
	return fmt.Sprintf("%s%02x", c.verifiersPrefix(), byte(sum.Sum32()))
}

// VerifiersFrom returns what PutVerifiersFrom wrote last, without the pieces that are not
// understood.
func (c *Client) VerifiersFrom(ctx context.Context) (map[string]string, error) {
	done, err := c.transact(ctx, nil, []clientv3.Op{clientv3.OpGet(c.verifiersPrefix(), clientv3.WithPrefix())})
	if err != nil {
		return nil, fmt.Errorf("read where the verifiers of users come from: %w", err)
	}
	from := map[string]string{}
	for _, kv := range done.Responses[0].GetResponseRange().Kvs {
		var value verifiersValue
		if decodeValue("the verifiers", kv.GetValue(), verifiersValueVersion, &value, &value.V) == nil {
			maps.Copy(from, value.From) // the others are compared again
		}
	}
	return from, nil
}

// PutVerifiersFrom writes where the verifiers of users come from, in the caller's words. before is
// what etcd has: only the pieces that differ are written. If it fails, some may be written.
func (c *Client) PutVerifiersFrom(ctx context.Context, before, from map[string]string) error {
	changed := map[string]map[string]string{} // pieces, by key
	note := func(one, other map[string]string) {
		for user, is := range one {
			if was, ok := other[user]; !ok || was != is {
				changed[c.verifiersKey(user)] = map[string]string{}
			}
		}
	}
	note(before, from)
	note(from, before)
	for user, is := range from {
		if piece := changed[c.verifiersKey(user)]; piece != nil {
			piece[user] = is
		}
	}
	var ops []clientv3.Op
	for key, piece := range changed {
		if len(piece) == 0 {
			ops = append(ops, clientv3.OpDelete(key))
			continue
		}
		data, err := json.Marshal(verifiersValue{verifiersValueVersion, piece})
		if err != nil {
			return err
		}
		ops = append(ops, clientv3.OpPut(key, string(data)))
	}
	for _, batch := range batchesOf(ops) {
		if _, err := c.transact(ctx, nil, batch); err != nil {
			return fmt.Errorf("write where the verifiers of users come from: %w", err)
		}
	}
	return nil
}
