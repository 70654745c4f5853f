package coordination

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/carillon-mq/carillon/broker/subject"
)

// claims knows which Topic keeps which subjects.
//
// Who claims what stands in the Topics themselves; the key subjects is the gate before them.
// Whoever adds a claim writes the gate in the same transaction, and compares that it is as
// it was when the claims were read. So of two that add claims at the same time one fails,
// reads what the other wrote, and decides anew. (A list of all claims in that key would be
// simpler to read, but every Topic would write the claims of all of them: 100 MB for the
// first 1,000.)
//
// What was read is kept, and a failed transaction answers with what was written since. That
// misses deletions, which can only make a claim void: one that is in the way is looked at
// again. A deletion therefore needs no gate.
type claims struct {
	turn chan struct{} // holds one token; who has it has what follows

	loaded bool
	gate   int64 // mod revision of the gate; 0: there is none yet
	read   int64 // revision up to which all writes of Topics are known
	topics map[string]claim
}

type claim struct {
	subjects []string
	owner    Owner
}

func newClaims() *claims {
	c := &claims{turn: make(chan struct{}, 1), topics: map[string]claim{}}
	c.turn <- struct{}{}
	return c
}

const (
	// claimAttempts is how often a transaction may find that another came first: each time
	// one of them has succeeded, and those of one process go one after the other.
	claimAttempts = 64
	// claimPause is the longest pause between two of them.
	claimPause = 100 * time.Millisecond
)

type subjectsValue struct {
	V int `json:"v"`
}

const subjectsValueVersion = 1

func (c *Client) subjectsKey() string { return c.prefix + "subjects" }

// errTopicMoved says that the Topic's key is not at the revision that the transaction compared.
var errTopicMoved = errors.New("the topic's key has changed")

// putClaiming writes a Topic whose subjects are new, if its key is still at t.Revision (0:
// absent), and returns the new revision. If it isn't, the error is errTopicMoved, with the key as it
// is found, or nil. If another Topic keeps one of the subjects, it is an *OverlapError.
func (c *Client) putClaiming(ctx context.Context, t *Topic) (revision int64, found *mvccpb.KeyValue, err error) {
	value, err := t.encode()
	if err != nil {
		return 0, nil, err
	}
	gate, err := encodeValue("the claims of subjects", subjectsValue{subjectsValueVersion})
	if err != nil {
		return 0, nil, err
	}
	select {
	case <-c.claims.turn:
		defer func() { c.claims.turn <- struct{}{} }()
	case <-ctx.Done():
		return 0, nil, fmt.Errorf("put topic %s: waiting for others that are being made: %w", t.Name, ctx.Err())
	}
	for attempt := range claimAttempts {
		if err := c.checkClaims(ctx, t); err != nil {
			return 0, nil, err
		}
		done, err := c.transact(ctx,
			[]clientv3.Cmp{
				clientv3.Compare(clientv3.ModRevision(c.subjectsKey()), "=", c.claims.gate),
				clientv3.Compare(clientv3.ModRevision(c.topicKey(t.Name)), "=", t.Revision),
			},
			[]clientv3.Op{clientv3.OpPut(c.subjectsKey(), gate), clientv3.OpPut(c.topicKey(t.Name), value)},
			clientv3.OpGet(c.subjectsKey()),
			clientv3.OpGet(c.topicKey(t.Name)),
			clientv3.OpGet(c.topicsPrefix(), clientv3.WithPrefix(), clientv3.WithMinModRev(c.claims.read+1)),
		)
		if err != nil {
			return 0, nil, fmt.Errorf("put topic %s: %w", t.Name, err)
		}
		if done.Succeeded {
			c.claims.gate, c.claims.read = done.Header.GetRevision(), done.Header.GetRevision()
			c.claims.topics[t.Name] = claim{t.Spec.Subjects, t.Owner}
			return done.Header.GetRevision(), nil, nil
		}
		c.claims.gate, c.claims.read = answered(done, 0).GetModRevision(), done.Header.GetRevision()
		for _, kv := range done.Responses[2].GetResponseRange().GetKvs() {
			c.learn(kv)
		}
		if found := answered(done, 1); found.GetModRevision() != t.Revision {
			return 0, found, errTopicMoved
		}
		if !pauseUpTo(ctx, min(time.Duration(attempt+1)*2*time.Millisecond, claimPause)) {
			return 0, nil, fmt.Errorf("put topic %s: %w", t.Name, ctx.Err())
		}
	}
	return 0, nil, fmt.Errorf("put topic %s: others came first %d times (try again)", t.Name, claimAttempts)
}

// checkClaims says, by an *OverlapError, whether another Topic is known to keep one of t's subjects.
func (c *Client) checkClaims(ctx context.Context, t *Topic) error {
	if err := c.loadClaims(ctx); err != nil {
		return err
	}
	for {
		overlap := c.claims.overlap(t)
		if overlap == nil {
			return nil
		}
		got, err := c.get(ctx, c.topicKey(overlap.Other))
		if err != nil {
			return err
		}
		delete(c.claims.topics, overlap.Other)
		if got == nil {
			continue
		}
		c.learn(got)
		if again := c.claims.overlap(t); again != nil && again.Other == overlap.Other {
			return again
		}
	}
}

// overlap finds the first Topic by name that is in t's way.
func (c *claims) overlap(t *Topic) *OverlapError {
	var first *OverlapError
	for name, other := range c.topics {
		if name == t.Name || first != nil && first.Other < name {
			continue
		}
		for _, a := range t.Spec.Subjects {
			for _, b := range other.subjects {
				if subject.Overlap(a, b) {
					first = &OverlapError{Topic: t.Name, Subject: a, Other: name, Claimed: b, Owner: other.owner}
				}
			}
		}
	}
	return first
}

func (c *Client) loadClaims(ctx context.Context) error {
	if c.claims.loaded {
		return nil
	}
	// The gate is read first: what is claimed afterwards moves it.
	gate, err := c.get(ctx, c.subjectsKey())
	if err != nil {
		return err
	}
	revision, err := c.pages(ctx, c.topicsPrefix(), c.learn)
	if err != nil {
		return err
	}
	c.claims.loaded, c.claims.gate, c.claims.read = true, gate.GetModRevision(), revision
	return nil
}

func (c *Client) learn(kv *mvccpb.KeyValue) {
	// What a later version wrote may be unreadable as a whole, and its subjects still be claimed.
	var value struct {
		Spec struct {
			Subjects []string `json:"subjects"`
		} `json:"spec"`
		Owner Owner `json:"owner"`
	}
	name := strings.TrimPrefix(string(kv.GetKey()), c.topicsPrefix())
	if err := json.Unmarshal(kv.GetValue(), &value); err != nil {
		c.log.Warn("a topic is unreadable; nothing protects its subjects", "topic", name, "error", err)
	}
	c.claims.topics[name] = claim{value.Spec.Subjects, value.Owner}
}

// get reads one key; nil: there is none.
func (c *Client) get(ctx context.Context, key string) (*mvccpb.KeyValue, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	got, err := c.etcd.Get(ctx, key)
	if err != nil {
		return nil, fmt.Errorf("get %s: %w", key, err)
	}
	if len(got.Kvs) == 0 {
		return nil, nil
	}
	return got.Kvs[0], nil
}

// transact commits one transaction. When the comparisons fail it answers with what otherwise reads.
func (c *Client) transact(ctx context.Context, when []clientv3.Cmp, then []clientv3.Op, otherwise ...clientv3.Op) (*clientv3.TxnResponse, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	return c.etcd.Txn(ctx).If(when...).Then(then...).Else(otherwise...).Commit()
}

// answered is the key that the i-th reading of a transaction found; nil: there is none.
func answered(done *clientv3.TxnResponse, i int) *mvccpb.KeyValue {
	if kvs := done.Responses[i].GetResponseRange().GetKvs(); len(kvs) > 0 {
		return kvs[0]
	}
	return nil
}

// pauseUpTo waits for a random part of the time, and says false if the context ended.
func pauseUpTo(ctx context.Context, longest time.Duration) bool {
	timer := time.NewTimer(rand.N(longest))
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
