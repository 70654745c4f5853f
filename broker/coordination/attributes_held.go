package coordination

import (
	"context"
	"fmt"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/carillon-mq/carillon/broker/attribute"
)

// Registered is how a broker is registered now.
type Registered struct {
	Broker      string
	Incarnation int64 // 0: not at all
	Generation  int64 // of etcd
}

// DeleteHeld deletes the attributes of up to attribute.MaxChanges subjects that are bound to one of
// several holders of a broker, unless they have changed meanwhile. It returns how many it deleted,
// and how many it found changed. when, if not nil, must still be so: otherwise it deletes nothing,
// and returns a *StaleError.
func (a *Attributes) DeleteHeld(ctx context.Context, of []attribute.Holder, when *Registered) (deleted, changed int, err error) {
	var held []attribute.Entry
	for _, h := range of {
		if held = append(held, a.store.HeldBy(h, attribute.MaxChanges-len(held))...); len(held) == attribute.MaxChanges {
			break
		}
	}
	if len(held) == 0 {
		return 0, 0, nil
	}
	var conditions []clientv3.Cmp
	if when != nil {
		conditions = []clientv3.Cmp{a.c.in(when.Generation)}
		if when.Incarnation == 0 {
			conditions = append(conditions, clientv3.Compare(clientv3.CreateRevision(a.c.brokerKey(when.Broker)), "=", 0))
		} else {
			conditions = append(conditions, a.c.lives(Replica{when.Broker, when.Incarnation}))
		}
	}
	ops := make([]clientv3.Op, len(held))
	for i, e := range held {
		key := a.key(e.Subject)
		ops[i] = clientv3.OpTxn([]clientv3.Cmp{clientv3.Compare(clientv3.ModRevision(key), "=", e.Revision)},
			[]clientv3.Op{clientv3.OpDelete(key)}, []clientv3.Op{clientv3.OpGet(key)})
	}
	done, err := a.c.transact(ctx, conditions, ops)
	if err != nil {
		return 0, 0, fmt.Errorf("delete the attributes of %d subjects that connections of broker %s held: %w", len(held), of[0].Broker, err)
	}
	if !done.Succeeded {
		return 0, 0, &StaleError{"the registration of broker " + of[0].Broker}
	}
	at := done.Header.GetRevision()
	for i, e := range held {
		each := done.Responses[i].GetResponseTxn()
		switch {
		case each.GetSucceeded():
			a.store.DeleteAhead(e.Subject, at, true)
			deleted++
			continue
		case len(each.GetResponses()[0].GetResponseRange().GetKvs()) == 0:
			a.store.DeleteAhead(e.Subject, at, false)
		default:
			if current, err := a.decode(each.GetResponses()[0].GetResponseRange().GetKvs()[0]); err == nil {
				a.store.PutAhead(current)
			}
		}
		changed++
	}
	return deleted, changed, nil
}
