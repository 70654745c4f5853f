package coordination

import (
	"context"
	"fmt"
	"strings"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// silenceValue is the report of one broker that hears nothing from another.
type silenceValue struct {
	V int `json:"v"`
	// By is the incarnation of the reporting broker. The lease of the key determines that of the
	// silent one.
	By int64 `json:"by"`
}

const silenceValueVersion = 1

func (c *Client) silencePrefix(id string) string { return c.prefix + "silences/" + id + "/" }

func (c *Client) silenceKey(silent, by string) string { return c.silencePrefix(silent) + by }

// ReportSilent records that broker by hears nothing from broker silent, each in that incarnation,
// and evicts silent once a majority of all members has reported it. An evicted broker that is alive
// registers anew, so a wrong eviction costs an election. A report of an incarnation that has ended
// does nothing. A report ends with the incarnation of either broker, or by WithdrawSilent.
//
// Rejected: waiting for the lease. When a node fails together with the leader of etcd, the next
// leader takes 1.5 to 3 s to be elected, and extends every lease by its full TTL.
func (c *Client) ReportSilent(ctx context.Context, by, silent Replica) (evicted bool, err error) {
	accused, err := c.get(ctx, c.brokerKey(silent.Broker))
	if err != nil {
		return false, err
	}
	if !registers(accused, silent) {
		return false, nil
	}
	value, err := encodeValue("a silence", silenceValue{silenceValueVersion, by.Incarnation})
	if err != nil {
		return false, err
	}
	done, err := c.transact(ctx,
		[]clientv3.Cmp{c.lives(silent), c.lives(by), c.in(by.Generation())},
		[]clientv3.Op{
			clientv3.OpPut(c.silenceKey(silent.Broker, by.Broker), value, clientv3.WithLease(clientv3.LeaseID(accused.GetLease()))),
			clientv3.OpGet(c.silencePrefix(silent.Broker), clientv3.WithPrefix()),
			clientv3.OpGet(c.brokersPrefix(), clientv3.WithPrefix(), clientv3.WithKeysOnly()),
		})
	if err != nil {
		return false, fmt.Errorf("say that broker %s is silent: %w", silent.Broker, err)
	}
	if !done.Succeeded {
		return false, nil // one of them has restarted since
	}
	if !c.agreed(silent.Broker, done.Responses[1].GetResponseRange().GetKvs(), done.Responses[2].GetResponseRange().GetKvs()) {
		return false, nil
	}
	return true, c.Evict(ctx, silent)
}

// agreed reports whether more than half of the members have reported the broker as silent. With two
// members neither can evict the other, since each may be the one that is cut off.
func (c *Client) agreed(silent string, said, members []*mvccpb.KeyValue) bool {
	created := make(map[string]int64, len(members))
	for _, m := range members {
		created[c.brokerID(m.GetKey())] = m.GetCreateRevision()
	}
	accusers := 0
	for _, kv := range said {
		var value silenceValue
		by := strings.TrimPrefix(string(kv.GetKey()), c.silencePrefix(silent))
		if decodeValue(string(kv.GetKey()), kv.GetValue(), silenceValueVersion, &value, &value.V) == nil && value.By != 0 && created[by] == revisionOf(value.By) {
			accusers++
		}
	}
	return 2*accusers > len(members)
}

// WithdrawSilent removes the report of broker by about heard.
func (c *Client) WithdrawSilent(ctx context.Context, by, heard Replica) error {
	if _, err := c.etcd.Delete(ctx, c.silenceKey(heard.Broker, by.Broker)); err != nil {
		return fmt.Errorf("withdraw the report that broker %s is silent: %w", heard.Broker, err)
	}
	return nil
}
