package coordination

import (
	"context"
	"fmt"
	"slices"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// swap is one change. When a broker with thousands of shards comes back, they share transactions: etcd has hundreds to write
// then and not tens of thousands.
type swap struct {
	self   Replica
	before *Shard
	after  Shard
	value  string
	joins  []Replica

	done chan struct{} // closed when err, or the revision of after, is there
	err  error
}

// SwapInSync is how a leader changes who is in sync; nothing else of the shard is its to
// change. It is refused with a *StaleError if the shard, or the leader's own registration, is
// no longer what the leader had seen, or if a broker that joins is in another life by now.
// Calls at the same time share transactions; whether one is refused doesn't depend on the others.
func (c *Client) SwapInSync(ctx context.Context, self Replica, before *Shard, inSync []Replica) (*Shard, error) {
	if before.Leader != self.Broker || before.Revision == 0 {
		return nil, &InvalidError{before.String(), fmt.Sprintf("broker %s does not lead it (only its leader changes who is in sync)", self.Broker)}
	}
	s := &swap{self: self, before: before, after: *before, done: make(chan struct{})}
	s.after.InSync = inSync
	var err error
	if s.value, err = s.after.encode(); err != nil {
		return nil, err
	}
	for _, m := range inSync {
		if m != self && !slices.Contains(before.InSync, m) {
			s.joins = append(s.joins, m)
		}
	}
	if err := c.swaps.do(ctx, s, s.done, c.swapSome); err != nil {
		return nil, fmt.Errorf("swap the in-sync set of %s: %w", before, err)
	}
	if s.err != nil {
		return nil, s.err
	}
	return &s.after, nil
}

// swapSome carries out the first of those that wait. Each is a transaction within one transaction, so that it is refused alone.
func (c *Client) swapSome(ctx context.Context) {
	keys := map[string]bool{}
	these := c.swaps.take(func(s *swap) (want, stop bool) {
		key := c.shardKey(s.before.Topic, s.before.Number)
		if len(keys) == MaxShardWrites || keys[key] { // one transaction can't write a key twice
			return false, true
		}
		keys[key] = true
		return true, false
	})
	if len(these) == 0 {
		return
	}
	each := make([]clientv3.Op, 0, len(these))
	for _, s := range these {
		key := c.shardKey(s.before.Topic, s.before.Number)
		when := []clientv3.Cmp{clientv3.Compare(clientv3.ModRevision(key), "=", s.before.Revision), c.lives(s.self)}
		for _, m := range s.joins {
			when = append(when, c.lives(m))
		}
		each = append(each, clientv3.OpTxn(when, []clientv3.Op{clientv3.OpPut(key, s.value)}, nil))
	}
	done, err := c.transact(ctx, nil, each)
	if err != nil && ctx.Err() != nil { // it was another's time that ran out
		c.swaps.putBack(these)
		return
	}
	for i, s := range these {
		switch {
		case err != nil:
			s.err = fmt.Errorf("swap the in-sync set of %d shards, %s among them: %w", len(these), these[0].before, err)
		case !done.Responses[i].GetResponseTxn().GetSucceeded():
			s.err = &StaleError{s.before.String()}
		default:
			s.after.Revision = done.Header.GetRevision()
		}
		close(s.done)
	}
}
