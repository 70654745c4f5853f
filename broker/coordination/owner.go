package coordination

import (
	"context"
	"encoding/json"
	"fmt"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// ConflictError reports that the keys belong to another owner.
type ConflictError struct {
	Key   string
	Owner string // the identity of the owner
}

func (e *ConflictError) Error() string {
	return fmt.Sprintf("%s in etcd belongs to %s (use another etcd or another name, or delete that owner and its keys)", e.Key, e.Owner)
}

type ownerValue struct {
	V        int    `json:"v"`
	Identity string `json:"identity"`
}

const ownerValueVersion = 1

func (c *Client) ownerKey() string { return c.prefix + "owner" }

// Owner returns the identity that owns the keys, or "".
func (c *Client) Owner(ctx context.Context) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	got, err := c.etcd.Get(ctx, c.ownerKey())
	if err != nil {
		return "", fmt.Errorf("get %s: %w", c.ownerKey(), err)
	}
	if len(got.Kvs) == 0 {
		return "", nil
	}
	return decodeOwner(c.ownerKey(), got.Kvs[0].Value)
}

// ClaimOwner makes identity the owner of the keys, if they have none. It may be repeated. If there
// is another owner, the error is a *ConflictError.
func (c *Client) ClaimOwner(ctx context.Context, identity string) error {
	if identity == "" {
		return fmt.Errorf("claim %s: the identity is empty", c.ownerKey())
	}
	value, err := json.Marshal(ownerValue{ownerValueVersion, identity})
	if err != nil {
		return fmt.Errorf("claim %s: %w", c.ownerKey(), err)
	}
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	done, err := c.etcd.Txn(ctx).
		If(clientv3.Compare(clientv3.CreateRevision(c.ownerKey()), "=", 0)).
		Then(clientv3.OpPut(c.ownerKey(), string(value))).
		Else(clientv3.OpGet(c.ownerKey())).
		Commit()
	if err != nil {
		return fmt.Errorf("claim %s: %w", c.ownerKey(), err)
	}
	if done.Succeeded {
		return nil
	}
	kvs := done.Responses[0].GetResponseRange().GetKvs()
	if len(kvs) == 0 {
		return fmt.Errorf("claim %s: it was given up at the same time (try again)", c.ownerKey())
	}
	owner, err := decodeOwner(c.ownerKey(), kvs[0].GetValue())
	if err != nil {
		return err
	}
	if owner != identity {
		return &ConflictError{Key: c.prefix, Owner: owner}
	}
	return nil
}

func decodeOwner(key string, data []byte) (string, error) {
	var value ownerValue
	if err := json.Unmarshal(data, &value); err != nil {
		return "", fmt.Errorf("decode %s: %w", key, err)
	}
	if value.V != ownerValueVersion || value.Identity == "" {
		return "", fmt.Errorf("decode %s: version %d of the value is unknown here (upgrade this program)", key, value.V)
	}
	return value.Identity, nil
}
