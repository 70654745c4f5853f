package coordination

import (
	"context"
	"fmt"
	"slices"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// swap is one change of a shard by a broker that is not the controller. Concurrent swaps share
// transactions: when a broker with thousands of shards returns, etcd writes hundreds of
// transactions and not tens of thousands.
type swap struct {
	self   Replica
	before *Shard
	after  Shard
	value  string
	joins  []Replica // must be registered, in addition to self

	done chan struct{} // closed when the result is set
	err  error
}

// SwapInSync replaces the in-sync set. Only the shard's leader calls it. It returns a *StaleError
// if the shard or the leader's registration has changed since the leader read it, or if a broker
// that joins has restarted since. Concurrent calls share transactions; each succeeds or fails
// independently of the others.
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

// Vouch writes the incarnation of self into its entry of the in-sync set: this incarnation has
// opened its copy and vouches for it. If the shard names self as leader, that was an earlier
// incarnation, and the shard has no leader afterwards, unless leads says that this process leads
// the shard's epoch. reach is how far the copy goes, which elections compare. Errors are those of
// SwapInSync, and an *InvalidError if self has no entry.
func (c *Client) Vouch(ctx context.Context, self Replica, before *Shard, reach Reach, leads bool) (*Shard, error) {
	after := before.WithEntry(self, !leads)
	if !leads {
		after.Returned = append(withoutReturn(before.Returned, self), Return{self, reach})
	}
	return c.swapEntry(ctx, self, before, after)
}

// Withdraw writes incarnation 0 into the entry of self: the broker stays a member of the last
// in-sync set and cannot be elected. If self is the leader, the shard has no leader afterwards.
// Errors are those of Vouch.
func (c *Client) Withdraw(ctx context.Context, self Replica, before *Shard) (*Shard, error) {
	return c.swapEntry(ctx, self, before, before.WithEntry(Replica{self.Broker, 0}, true))
}

// Resign removes self as leader, so that the next leader has a later epoch. The entry of self
// stays, and elections prefer every other member: the log of self failed. Errors are those of
// Vouch, and an *InvalidError if another broker leads.
func (c *Client) Resign(ctx context.Context, self Replica, before *Shard) (*Shard, error) {
	own, _ := before.Member(self.Broker)
	if before.Leader != self.Broker {
		return nil, &InvalidError{before.String(), fmt.Sprintf("broker %s does not lead it", self.Broker)}
	}
	after := before.WithEntry(own, true)
	after.Returned = append(withoutReturn(before.Returned, own), Return{Replica: own})
	return c.swapEntry(ctx, self, before, after)
}

// withoutReturn returns a copy of all without what a member said.
func withoutReturn(all []Return, member Replica) []Return {
	return slices.DeleteFunc(slices.Clone(all), func(r Return) bool { return r.Replica == member })
}

// swapEntry carries out a change of the entry of self.
func (c *Client) swapEntry(ctx context.Context, self Replica, before *Shard, after Shard) (*Shard, error) {
	if _, in := before.Member(self.Broker); !in || before.Revision == 0 {
		return nil, &InvalidError{before.String(), fmt.Sprintf("broker %s is not in its in-sync set (a broker changes its own entry only)", self.Broker)}
	}
	return c.swap(ctx, &swap{self: self, before: before, after: after})
}

// swap carries out s, together with others.
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

// swapSome carries out the first queued swaps, up to one of another incarnation. Each is a
// transaction nested in one transaction, so that it fails alone. The outer one compares what
// concerns all of them: the incarnation, and its generation.
func (c *Client) swapSome(ctx context.Context) {
	var self Replica
	keys := map[string]bool{}
	these := c.swaps.dequeue(func(s *swap) (want, stop bool) {
		key := c.shardKey(s.before.Topic, s.before.Number)
		if len(keys) == 0 {
			self = s.self
		}
		// A transaction can't write a key twice.
		if len(keys) == MaxShardWrites || keys[key] || s.self != self {
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
		when := []clientv3.Cmp{clientv3.Compare(clientv3.ModRevision(key), "=", s.before.Revision)}
		for _, m := range s.joins {
			when = append(when, c.lives(m))
		}
		each = append(each, clientv3.OpTxn(when, []clientv3.Op{clientv3.OpPut(key, s.value)}, nil))
	}
	done, err := c.transact(ctx, []clientv3.Cmp{c.lives(self), c.in(self.Generation())}, each)
	if err != nil && ctx.Err() != nil { // another call's ctx ended
		c.swaps.putBack(these)
		return
	}
	for i, s := range these {
		switch {
		case err != nil:
			s.err = fmt.Errorf("swap the in-sync set of %d shards, %s among them: %w", len(these), these[0].before, err)
		case !done.Succeeded || !done.Responses[i].GetResponseTxn().GetSucceeded():
			s.err = &StaleError{s.before.String()}
		default:
			s.after.Revision = done.Header.GetRevision()
		}
		close(s.done)
	}
}
