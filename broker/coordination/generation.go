package coordination

import (
	"context"
	"fmt"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// A generation is the time between two restores of etcd from a backup. The key generation holds its
// number; without the key it is 0. The broker that notices a restore raises it (history), and the
// key says that nothing written before is the truth any more:
//
//	G1  An incarnation is generation << 44 | create revision. A restored etcd grants the same
//	    revisions again, and no incarnation twice.
//	G2  A registration of an earlier generation is none. Its broker registers again.
//	G3  Each transaction that compares a registration compares the generation, too.
//	G4  A shard of an earlier generation has no leader, and its in-sync set is not believed.
//	G5  A generation settles for as long as a lease lasts. The key settling is on a lease of its
//	    own: it is written with the generation, and again before a registration of an earlier
//	    generation is removed. So a broker that is alive is registered in this generation, or
//	    still in an earlier one, or the generation settles, unless it takes longer than a lease
//	    to reach etcd. Then it counts as away, as at any other time.
const revisionBits = 44

// incarnation returns the incarnation of a registration with that create revision.
func incarnation(generation, revision int64) int64 { return generation<<revisionBits | revision }

// GenerationOf returns the generation of an incarnation.
func GenerationOf(incarnation int64) int64 { return incarnation >> revisionBits }

// revisionOf returns the create revision of an incarnation's key.
func revisionOf(incarnation int64) int64 { return incarnation & (1<<revisionBits - 1) }

// Generation returns the generation of the registration.
func (r Replica) Generation() int64 { return GenerationOf(r.Incarnation) }

type generationValue struct {
	V          int   `json:"v"`
	Generation int64 `json:"generation"`
}

const generationValueVersion = 1

// maxGeneration is the last number that an incarnation has room for.
const maxGeneration = 1<<(63-revisionBits) - 1

func (c *Client) generationKey() string { return c.prefix + "generation" }
func (c *Client) settlingKey() string   { return c.prefix + "settling" }

// encodeGeneration returns the value of the key. It depends on the number only, since transactions
// compare it.
func encodeGeneration(generation int64) string {
	return fmt.Sprintf(`{"v":%d,"generation":%d}`, generationValueVersion, generation)
}

// decodeGeneration returns the number; 0 of no key.
func decodeGeneration(kv *mvccpb.KeyValue) (int64, error) {
	if kv == nil {
		return 0, nil
	}
	var value generationValue
	if err := decodeValue("the generation", kv.GetValue(), generationValueVersion, &value, &value.V); err != nil {
		return 0, err
	}
	if value.Generation < 1 || value.Generation > maxGeneration {
		return 0, fmt.Errorf("decode %s: %d is no generation (write 1 to %d)", kv.GetKey(), value.Generation, int64(maxGeneration))
	}
	return value.Generation, nil
}

// settle has a generation settle for as long as a lease lasts, from now on.
func (c *Client) settle(ctx context.Context, generation int64) error {
	lease, err := c.grant(ctx)
	if err != nil {
		return err
	}
	done, err := c.transact(ctx, []clientv3.Cmp{c.in(generation)}, []clientv3.Op{c.settling(generation, lease)})
	if err != nil {
		return fmt.Errorf("put %s: %w", c.settlingKey(), err)
	}
	if !done.Succeeded {
		return fmt.Errorf("put %s: etcd is not in generation %d any more (look again)", c.settlingKey(), generation)
	}
	return nil
}

func (c *Client) settling(generation int64, lease clientv3.LeaseID) clientv3.Op {
	return clientv3.OpPut(c.settlingKey(), encodeGeneration(generation), clientv3.WithLease(lease))
}

// in compares that etcd is in a generation.
func (c *Client) in(generation int64) clientv3.Cmp {
	if generation == 0 {
		return clientv3.Compare(clientv3.CreateRevision(c.generationKey()), "=", 0)
	}
	return clientv3.Compare(clientv3.Value(c.generationKey()), "=", encodeGeneration(generation))
}

// lives compares that the broker is registered in that incarnation. A transaction with it also
// compares the generation (in).
func (c *Client) lives(m Replica) clientv3.Cmp {
	return clientv3.Compare(clientv3.CreateRevision(c.brokerKey(m.Broker)), "=", revisionOf(m.Incarnation))
}

// registers reports whether a key is the registration of a broker in an incarnation.
func registers(kv *mvccpb.KeyValue, broker Replica) bool {
	return kv != nil && kv.GetCreateRevision() == revisionOf(broker.Incarnation)
}
