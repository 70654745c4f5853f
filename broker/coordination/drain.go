package coordination

import (
	"context"
	"fmt"
	"strings"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// DrainMode is what a broker is drained of.
type DrainMode string

// The drain modes. The empty one is none.
const (
	// DrainLeadership moves leaderships away and keeps replicas, for a broker that returns.
	DrainLeadership DrainMode = "Leadership"
	// DrainAll moves leaderships and replicas away, for a broker that does not return.
	DrainAll DrainMode = "All"
)

// stronger returns the mode that moves more.
func (m DrainMode) stronger(other DrainMode) DrainMode {
	if m == DrainAll || other == "" {
		return m
	}
	return other
}

type drainValue struct {
	V    int       `json:"v"`
	Mode DrainMode `json:"mode"`
}

const drainValueVersion = 1

// leasedDrain is the suffix of the key of a drain that ends with the broker's incarnation. It is a
// key of its own, so that a broker that stops does not delete an administrator's drain.
const leasedDrain = "/leased"

func (c *Client) drainKey(id string) string { return c.prefix + "drains/" + id }

// Drain asks the controller to drain a broker. A leased drain ends with that incarnation of the
// broker; it is for a broker that stops. Another one stands until EndDrain, also for a broker that
// is away, in every incarnation. It may be repeated and changed.
func (c *Client) Drain(ctx context.Context, broker Replica, mode DrainMode, leased bool) error {
	what := "draining broker " + broker.Broker
	if why := validBrokerID(broker.Broker); why != "" {
		return &InvalidError{what, why}
	}
	if mode != DrainLeadership && mode != DrainAll {
		return &InvalidError{what, fmt.Sprintf("mode %q (write %s or %s)", mode, DrainLeadership, DrainAll)}
	}
	value, err := encodeValue(what, drainValue{drainValueVersion, mode})
	if err != nil {
		return err
	}
	key := c.drainKey(broker.Broker)
	if leased {
		return c.putLeased(ctx, broker, key+leasedDrain, value)
	}
	found, err := c.get(ctx, key)
	if err != nil || found != nil && string(found.GetValue()) == value {
		return err
	}
	if _, err := c.transact(ctx, nil, []clientv3.Op{clientv3.OpPut(key, value)}); err != nil {
		return fmt.Errorf("put %s: %w", key, err)
	}
	return nil
}

// EndDrain ends a drain. Leased drains, of a broker that stops, remain. A missing one is no error.
func (c *Client) EndDrain(ctx context.Context, brokerID string) error {
	if why := validBrokerID(brokerID); why != "" {
		return &InvalidError{"draining broker " + brokerID, why}
	}
	key := c.drainKey(brokerID)
	if _, err := c.transact(ctx, nil, []clientv3.Op{clientv3.OpDelete(key)}); err != nil {
		return fmt.Errorf("delete %s: %w", key, err)
	}
	return nil
}

func decodeDrain(kv *mvccpb.KeyValue) (DrainMode, error) {
	var value drainValue
	if err := decodeValue(string(kv.GetKey()), kv.GetValue(), drainValueVersion, &value, &value.V); err != nil {
		return "", err
	}
	if value.Mode != DrainLeadership && value.Mode != DrainAll {
		return "", fmt.Errorf("decode %s: mode %q is unknown here (upgrade this program)", kv.GetKey(), value.Mode)
	}
	return value.Mode, nil
}

// Drain returns the drain mode of a broker, or "". The broker need not be a member.
func (s *State) Drain(brokerID string) DrainMode {
	return s.drains[brokerID].stronger(s.drains[brokerID+leasedDrain])
}

// Drains returns all drained brokers, by id.
func (s *State) Drains() map[string]DrainMode {
	drains := make(map[string]DrainMode, len(s.drains))
	for key := range s.drains {
		id := strings.TrimSuffix(key, leasedDrain)
		drains[id] = s.Drain(id)
	}
	return drains
}
