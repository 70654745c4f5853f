package coordination

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"sync"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// leased are the values that hang on the leases of this process's brokers, by id and key. A broker that
// registers anew puts them with its own key, so there is no moment in which it is there without them.
type leased struct {
	mu     sync.Mutex
	values map[string]map[string]string
}

func (l *leased) of(id string) map[string]string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return maps.Clone(l.values[id])
}

func (l *leased) forget(id string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.values, id)
}

func (l *leased) keep(id, key, value string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.values == nil {
		l.values = map[string]map[string]string{}
	}
	if l.values[id] == nil {
		l.values[id] = map[string]string{}
	}
	l.values[id][key] = value
}

// putLeased puts a key on the lease of the broker's registration, if that is still of this life; with
// incarnation 0 on that of the first one to come. What stands there already is not written again.
func (c *Client) putLeased(ctx context.Context, broker Replica, key, value string) error {
	c.leased.keep(broker.Broker, key, value) // first: a registration that comes meanwhile has it
	if broker.Incarnation == 0 {
		return nil
	}
	registered, err := c.get(ctx, c.brokerKey(broker.Broker))
	if err != nil {
		return err
	}
	if registered == nil || registered.GetCreateRevision() != broker.Incarnation {
		return &NotRegisteredError{broker}
	}
	found, err := c.get(ctx, key)
	if err != nil {
		return err
	}
	if found != nil && found.GetLease() == registered.GetLease() && string(found.GetValue()) == value {
		return nil
	}
	done, err := c.transact(ctx,
		[]clientv3.Cmp{c.lives(broker)},
		[]clientv3.Op{clientv3.OpPut(key, value, clientv3.WithLease(clientv3.LeaseID(registered.GetLease())))})
	if err != nil {
		return fmt.Errorf("put %s: %w", key, err)
	}
	if !done.Succeeded {
		return &NotRegisteredError{broker}
	}
	return nil
}

// Evict ends that life of a broker for the cluster: its registration, and its office and whatever else
// hangs on its lease. Who saw it die need not wait for the lease then. One that lives after all registers
// anew, as a later incarnation. That it is gone already, or in another life, is no error.
func (c *Client) Evict(ctx context.Context, broker Replica) error {
	key := c.brokerKey(broker.Broker)
	found, err := c.get(ctx, key)
	if err != nil {
		return err
	}
	if found == nil || found.GetCreateRevision() != broker.Incarnation {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	if lease := found.GetLease(); lease != 0 {
		// A lease is of one registration, so another that has come meanwhile is not touched.
		if _, err := c.etcd.Revoke(ctx, clientv3.LeaseID(lease)); err != nil && !errors.Is(err, rpctypes.ErrLeaseNotFound) {
			return fmt.Errorf("evict broker %s (incarnation %d): %w", broker.Broker, broker.Incarnation, err)
		}
		return nil
	}
	if _, err := c.transact(ctx, []clientv3.Cmp{c.lives(broker)}, []clientv3.Op{clientv3.OpDelete(key)}); err != nil {
		return fmt.Errorf("evict broker %s (incarnation %d): %w", broker.Broker, broker.Incarnation, err)
	}
	return nil
}
