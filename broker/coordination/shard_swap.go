package coordination

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// swaps are the changes of in-sync sets that wait for their turn. Like the syncs of a disk they go together: while one
// transaction is under way, the next ones gather. When a broker with thousands of shards comes back, etcd has
// hundreds of transactions to write and not tens of thousands.
type swaps struct {
	turn chan struct{} // holds one token; who has it carries out what waits

	mu    sync.Mutex
	queue []*swap
}

// swap is one change.
type swap struct {
	self   Replica
	before *Shard
	after  Shard
	value  string
	joins  []Replica

	done chan struct{} // closed when err, or the revision of after, is there
	err  error
}

func newSwaps() *swaps {
	s := &swaps{turn: make(chan struct{}, 1)}
	s.turn <- struct{}{}
	return s
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
	w := c.swaps
	w.mu.Lock()
	w.queue = append(w.queue, s)
	w.mu.Unlock()
	for {
		select {
		case <-s.done:
			if s.err != nil {
				return nil, s.err
			}
			return &s.after, nil
		case <-w.turn:
			c.swapSome(ctx)
			w.turn <- struct{}{}
		case <-ctx.Done():
			w.mu.Lock()
			w.queue = slices.DeleteFunc(w.queue, func(other *swap) bool { return other == s })
			w.mu.Unlock()
			return nil, fmt.Errorf("swap the in-sync set of %s: %w", before, ctx.Err()) // it may have been done
		}
	}
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
	w := c.swaps
	when := map[string]clientv3.Cmp{}
	var together []*swap
	w.mu.Lock()
	for _, s := range w.queue {
		needs := c.swapCompares(s)
		if len(when)+len(needs) > maxCompares || len(together) == MaxShardWrites {
			break
		}
		if _, twice := when[c.shardKey(s.before.Topic, s.before.Number)]; twice {
			break // one transaction can't write a key twice
		}
		maps.Copy(when, needs)
		together = append(together, s)
	}
	w.queue = slices.Delete(w.queue, 0, len(together))
	w.mu.Unlock()
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
