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

// leasedValues holds the values attached to the leases of this process's brokers, by id and key. A
// new registration puts them in the same transaction, so a broker is never registered without them.
// The later parts of a report are not among them, since they don't fit into one transaction.
type leasedValues struct {
	mu      sync.Mutex
	values  map[string]map[string]string
	reports map[string]int // by id: how many parts of a report there may be in etcd
}

func (l *leasedValues) of(id string) map[string]string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return maps.Clone(l.values[id])
}

func (l *leasedValues) forget(id string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.values, id)
	delete(l.reports, id)
}

func (l *leasedValues) keep(id, key, value string) {
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

// reportParts returns how many parts the report of a broker may have in etcd: at least n from now
// on.
func (l *leasedValues) reportParts(id string, n int) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.reports == nil {
		l.reports = map[string]int{}
	}
	l.reports[id] = max(l.reports[id], n)
	return l.reports[id]
}

// reportPartsLeft notes that the other parts were deleted.
func (l *leasedValues) reportPartsLeft(id string, n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.reports[id] = n
}

// putLeased attaches a key to the lease of the broker's registration, if that is still of this
// incarnation; with incarnation 0, to the lease of the next registration. Later registrations have
// it, too. An equal value is not written again.
func (c *Client) putLeased(ctx context.Context, broker Replica, key, value string) error {
	c.leased.keep(broker.Broker, key, value) // first, so that a concurrent registration includes it
	if broker.Incarnation == 0 {
		return nil
	}
	return c.putInLease(ctx, broker, key, value)
}

// putInLease is putLeased for this registration only.
func (c *Client) putInLease(ctx context.Context, broker Replica, key, value string) error {
	registered, err := c.get(ctx, c.brokerKey(broker.Broker))
	if err != nil {
		return err
	}
	if !registers(registered, broker) {
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
		[]clientv3.Cmp{c.lives(broker), c.in(broker.Generation())},
		[]clientv3.Op{clientv3.OpPut(key, value, clientv3.WithLease(clientv3.LeaseID(registered.GetLease())))})
	if err != nil {
		return fmt.Errorf("put %s: %w", key, err)
	}
	if !done.Succeeded {
		return &NotRegisteredError{broker}
	}
	return nil
}

// deleteLeased deletes a key that putInLease wrote for this registration.
func (c *Client) deleteLeased(ctx context.Context, broker Replica, key string) error {
	done, err := c.transact(ctx, []clientv3.Cmp{c.lives(broker), c.in(broker.Generation())}, []clientv3.Op{clientv3.OpDelete(key)})
	if err != nil {
		return fmt.Errorf("delete %s: %w", key, err)
	}
	if !done.Succeeded {
		return &NotRegisteredError{broker}
	}
	return nil
}

// Evict ends that incarnation of a broker for the cluster: its registration, its term as controller
// and everything else attached to its lease, so that the cluster need not wait for the lease to
// expire. A broker that is alive registers again in a later incarnation. It is no error if that
// incarnation has ended.
func (c *Client) Evict(ctx context.Context, broker Replica) error {
	key := c.brokerKey(broker.Broker)
	found, err := c.get(ctx, key)
	if err != nil {
		return err
	}
	if !registers(found, broker) {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	if lease := found.GetLease(); lease != 0 {
		// A lease is of one registration, so a later registration is not affected.
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
