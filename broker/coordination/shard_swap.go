package coordination

import (
	"context"
	"fmt"
	"slices"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// swap is one change of a shard by a broker that is not the controller. Swaps that come together
// share a transaction: when a broker with thousands of shards comes back, etcd writes hundreds of
// transactions and not tens of thousands.
type swap struct {
	self   Replica
	before *Shard
	after  Shard
	value  string
	joins  []Replica // compared to be registered, beside self

	done chan struct{} // closed when err, or the revision of after, is there
	err  error
}

// SwapInSync changes who is in sync; only the shard's leader calls it, and nothing else of the
// shard is its to change. It is refused with a *StaleError if the shard, or the leader's own
// registration, is no longer what the leader had seen, or if a broker that joins is in another life
// by now. Calls at the same time share transactions; whether one is refused doesn't depend on the
// others.
func (c *Client) SwapInSync(ctx context.Context, self Replica, before *Shard, inSync []Replica) (*Shard, error) {
	if before.Leader != self.Broker || before.Revision == 0 {
		return nil, &InvalidError{before.String(), fmt.Sprintf("broker %s does not lead it (only its leader changes who is in sync)", self.Broker)}
	}
	s := &swap{self: self, before: before, after: *before}
	s.after.InSync = inSync
	for _, m := range inSync {
		if m != self && !slices.Contains(before.InSync, m) {
			s.joins = append(s.joins, m)
		}
	}
	return c.swap(ctx, s)
}

// Vouch writes the incarnation of self into its own entry of the in-sync set: this life has opened
// its copy and vouches for it. If the shard names self its leader, that was an earlier life, and
// the shard has no leader afterwards; unless leads says that this very process leads the shard's
// epoch. It is refused like SwapInSync, and with an *InvalidError if self has no entry.
func (c *Client) Vouch(ctx context.Context, self Replica, before *Shard, leads bool) (*Shard, error) {
	return c.swapEntry(ctx, self, before, self.Incarnation, !leads)
}

// Withdraw writes incarnation 0 into the own entry of self: the broker stays a member of the last
// in-sync set, and can't be elected. If self is the shard's leader the shard has none afterwards.
// It is refused like Vouch.
func (c *Client) Withdraw(ctx context.Context, self Replica, before *Shard) (*Shard, error) {
	return c.swapEntry(ctx, self, before, 0, true)
}

// Resign takes self out as the shard's leader, so that the next one leads under a later epoch. The
// entry of self stays as it is. It is refused like Vouch, and with an *InvalidError if another
// broker leads.
func (c *Client) Resign(ctx context.Context, self Replica, before *Shard) (*Shard, error) {
	own, _ := before.Member(self.Broker)
	if before.Leader != self.Broker {
		return nil, &InvalidError{before.String(), fmt.Sprintf("broker %s does not lead it", self.Broker)}
	}
	return c.swapEntry(ctx, self, before, own.Incarnation, true)
}

// swapEntry changes the own entry of self. If unled, self is the leader no more.
func (c *Client) swapEntry(ctx context.Context, self Replica, before *Shard, incarnation int64, unled bool) (*Shard, error) {
	at := slices.IndexFunc(before.InSync, func(m Replica) bool { return m.Broker == self.Broker })
	if at < 0 || before.Revision == 0 {
		return nil, &InvalidError{before.String(), fmt.Sprintf("broker %s is not in its in-sync set (a broker changes its own entry only)", self.Broker)}
	}
	s := &swap{self: self, before: before, after: *before}
	s.after.InSync = slices.Clone(before.InSync)
	s.after.InSync[at].Incarnation = incarnation
	if unled && s.after.Leader == self.Broker {
		s.after.Leader = ""
	}
	return c.swap(ctx, s)
}

// swap carries one out, together with others.
func (c *Client) swap(ctx context.Context, s *swap) (*Shard, error) {
	var err error
	if s.value, err = s.after.encode(); err != nil {
		return nil, err
	}
	s.done = make(chan struct{})
	if err := c.swaps.do(ctx, s, s.done, c.swapSome); err != nil {
		return nil, fmt.Errorf("swap the in-sync set of %s: %w", s.before, err)
	}
	if s.err != nil {
		return nil, s.err
	}
	return &s.after, nil
}

// swapSome carries out the first of those that wait. Each is a transaction within one transaction,
// so that it is refused alone.
func (c *Client) swapSome(ctx context.Context) {
	keys := map[string]bool{}
	these := c.swaps.dequeue(func(s *swap) (want, stop bool) {
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
