package coordination

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/carillon-mq/carillon/broker/identity"
)

const (
	// userOps bounds the operations of one transaction; etcd takes 128.
	userOps = 100
	// userBytes bounds the values of one transaction, besides the settings.
	userBytes = maxUserValue
)

// ReadUsers returns the users that are kept, also of a set that was written in part; nil: none was
// ever written.
func (c *Client) ReadUsers(ctx context.Context) (*UserSet, error) {
	keys, err := c.readUsers(ctx)
	if err != nil || keys.settings == nil {
		return nil, err
	}
	return keys.set(), nil
}

func (c *Client) readUsers(ctx context.Context) (*userKeys, error) {
	keys := &userKeys{users: map[string]userKey{}}
	var unreadable error
	_, err := c.pages(ctx, c.usersKey(), func(kv *mvccpb.KeyValue) {
		switch rest := strings.TrimPrefix(string(kv.GetKey()), c.usersKey()); {
		case rest == "":
			unreadable = keys.putSettings(kv)
		case strings.HasPrefix(rest, "/"):
			keys.users[string(kv.GetKey())] = c.decodeUser(kv)
		}
	})
	if err == nil {
		err = unreadable
	}
	if err != nil {
		return nil, fmt.Errorf("read the users: %w", err)
	}
	return keys, nil
}

// PutUsers replaces the users by those of a document, which must be right as a whole, and returns
// how many users it wrote and deleted. It writes differences only, and nothing for an equal set. If
// it fails between two transactions, the brokers keep the set before, and calling it again goes on.
// If another call comes in between, the error is a *StaleError.
func (c *Client) PutUsers(ctx context.Context, doc *identity.Document) (written int, err error) {
	const what = "the users"
	if _, err := doc.Table(); err != nil {
		return 0, &InvalidError{what, err.Error()}
	}
	wanted := make(map[string]string, len(doc.Users))
	size := 0
	for i := range doc.Users {
		u := &doc.Users[i]
		value, err := encodeUser(u)
		if err != nil {
			return 0, &InvalidError{what, (&identity.UserError{User: u.Name, Err: err}).Error()}
		}
		size += len(value)
		wanted[c.userKey(u.Name)] = value
	}
	if size > identity.MaxDocument {
		return 0, &InvalidError{what, fmt.Sprintf("%d bytes; at most %d can be kept (write fewer users, or fewer patterns)", size, identity.MaxDocument)}
	}
	before, err := c.readUsers(ctx)
	if err != nil {
		return 0, err
	}
	after := usersValue{Users: len(wanted), Default: doc.Default, Anonymous: doc.Anonymous}
	if before.settings != nil {
		after.Generation = before.settings.Generation
	}
	same, err := encodeUsers(after)
	if err != nil {
		return 0, &InvalidError{what, err.Error()}
	}
	changes := c.userChanges(before, wanted)
	if len(changes) == 0 && before.settings != nil {
		if was, err := encodeUsers(*before.settings); err == nil && was == same {
			return 0, nil
		}
	}
	after.Generation++
	return len(changes), c.writeUsers(ctx, before.revision, after, batchesOf(changes))
}

// userChanges returns the operations that lead to the wanted values, in the order of their keys.
func (c *Client) userChanges(before *userKeys, wanted map[string]string) (ops []clientv3.Op) {
	for _, key := range slices.Sorted(maps.Keys(before.users)) {
		if _, ok := wanted[key]; !ok {
			ops = append(ops, clientv3.OpDelete(key))
		}
	}
	for _, key := range slices.Sorted(maps.Keys(wanted)) {
		if before.users[key].text != wanted[key] {
			ops = append(ops, clientv3.OpPut(key, wanted[key]))
		}
	}
	return ops
}

// batchesOf splits operations by the limits of a transaction. There is always one batch.
func batchesOf(ops []clientv3.Op) (batches [][]clientv3.Op) {
	first, size := 0, 0
	for i, op := range ops {
		n := len(op.KeyBytes()) + len(op.ValueBytes())
		if i-first == userOps || i > first && size+n > userBytes {
			batches, first, size = append(batches, ops[first:i]), i, 0
		}
		size += n
	}
	return append(batches, ops[first:])
}

// writeUsers carries out one transaction for each batch, the last one with the settings. The
// settings are at a revision; 0: there are none.
func (c *Client) writeUsers(ctx context.Context, revision int64, after usersValue, batches [][]clientv3.Op) error {
	for i, ops := range batches {
		last := i == len(batches)-1
		if first := i == 0; first || last {
			settings := after
			settings.Partial = !last
			value, err := encodeUsers(settings)
			if err != nil {
				return err
			}
			ops = append(slices.Clone(ops), clientv3.OpPut(c.usersKey(), value))
		}
		done, err := c.transact(ctx, []clientv3.Cmp{clientv3.Compare(clientv3.ModRevision(c.usersKey()), "=", revision)}, ops)
		if err != nil {
			return fmt.Errorf("put the users: %w", err)
		}
		if !done.Succeeded {
			return &StaleError{"the set of users"}
		}
		if i == 0 {
			revision = done.Header.GetRevision()
		}
	}
	return nil
}

// DeleteUsers deletes all users. Afterwards nobody may connect to brokers that follow them.
func (c *Client) DeleteUsers(ctx context.Context) error {
	_, err := c.transact(ctx, nil, []clientv3.Op{clientv3.OpDelete(c.usersKey()), clientv3.OpDelete(c.usersKey()+"/", clientv3.WithPrefix())})
	if err != nil {
		return fmt.Errorf("delete the users: %w", err)
	}
	return nil
}
