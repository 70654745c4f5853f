package coordination

import (
	"context"
	"fmt"
	"maps"
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

// swapCompares is what must hold for one, by the key that each looks at and, of a broker, the life.
func (c *Client) swapCompares(s *swap) map[string]clientv3.Cmp {
	key := c.shardKey(s.before.Topic, s.before.Number)
	when := map[string]clientv3.Cmp{key: clientv3.Compare(clientv3.ModRevision(key), "=", s.before.Revision)}
	for _, m := range slices.Concat(s.joins, []Replica{s.self}) {
		when[fmt.Sprint(c.brokerKey(m.Broker), m.Incarnation)] = c.lives(m)
	}
	return when
}

// swapSome carries out the first of those that wait, as many as fit one transaction.
func (c *Client) swapSome(ctx context.Context) {
	when := map[string]clientv3.Cmp{}
	together := c.swaps.take(func(s *swap) (want, stop bool) {
		needs := c.swapCompares(s)
		if len(when)+len(needs) > maxCompares {
			return false, true
		}
		if _, twice := when[c.shardKey(s.before.Topic, s.before.Number)]; twice {
			return false, true // one transaction can't write a key twice
		}
		maps.Copy(when, needs)
		return true, false
	})
	if len(together) > 0 {
		c.swapAll(ctx, together)
	}
}

// swapAll carries them out in one transaction; if one of them is stale, in more.
func (c *Client) swapAll(ctx context.Context, these []*swap) {
	when := map[string]clientv3.Cmp{}
	var then []clientv3.Op
	for _, s := range these {
		maps.Copy(when, c.swapCompares(s))
		then = append(then, clientv3.OpPut(c.shardKey(s.before.Topic, s.before.Number), s.value))
	}
	done, err := c.transact(ctx, slices.Collect(maps.Values(when)), then)
	switch n := len(these); {
	case err != nil && ctx.Err() != nil: // it was another's time that ran out
		c.swaps.putBack(these)
		return
	case err == nil && !done.Succeeded && n > 1:
		c.swapAll(ctx, these[:n/2])
		c.swapAll(ctx, these[n/2:])
		return
	case err == nil && !done.Succeeded:
		err = &StaleError{these[0].before.String()}
	case err != nil:
		err = fmt.Errorf("swap the in-sync set of %d shards, %s among them: %w", n, these[0].before, err)
	}
	for _, s := range these {
		if s.err = err; err == nil {
			s.after.Revision = done.Header.GetRevision()
		}
		close(s.done)
	}
}
