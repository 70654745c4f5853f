package coordination

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/carillon-mq/carillon/broker/subject"
	"github.com/carillon-mq/carillon/broker/work"
)

// claims is the index of the subjects that Topics claim.
//
// The claims are in the Topics' keys. The key "subjects" is their gate: a transaction that adds a
// claim also writes the gate, and compares that it has not changed since the claims were read. So
// of two concurrent transactions one fails, reads what the other one wrote, and tries again. A list
// of all claims in that key would be simpler, but every Topic would write the claims of all: 100 MB
// for the first 1,000.
//
// The claims that were read are cached, and a failed transaction returns what was written since.
// Deletions are missed, which can only make a claim obsolete: a claim in the way is read again. So
// a deletion needs no gate.
//
// Only the holder of the turn to put Topics uses claims.
type claims struct {
	yieldUntil time.Time // until then, other brokers may write first
	loaded     bool
	gate       int64 // mod revision of the gate; 0: none yet
	read       int64 // revision up to which all writes of Topics are known
	topics     map[string]claim
	// first holds the names of Topics by the first token of a subject; "*": those whose subject
	// begins with a wildcard.
	first map[string]map[string]bool
}

type claim struct {
	subjects []string
	owner    Owner
}

func newClaims() *claims {
	return &claims{topics: map[string]claim{}, first: map[string]map[string]bool{}}
}

const (
	// claimAttempts bounds how often a transaction may lose against another broker's. It is tried
	// again at once, since the cache is up to date then. The winner pauses, up to claimYield times
	// the duration of its transaction; otherwise the broker closest to etcd would create all
	// Topics, and the others none.
	claimAttempts = 64
	claimYield    = 4
	// maxPuts and maxPutBytes bound the Topics in one transaction, within etcd's limits.
	maxPuts     = 40
	maxPutBytes = 512 << 10
)

type subjectsValue struct {
	V int `json:"v"`
}

const subjectsValueVersion = 1

func (c *Client) subjectsKey() string { return c.prefix + "subjects" }

// errTopicMoved reports that the Topic's key is not at the revision that was compared.
var errTopicMoved = errors.New("the topic's key has changed")

// topicPut is a Topic to be written with its claims. Concurrent puts share transactions: each must
// compare the gate, so without that all brokers together would create only as many Topics per
// second as etcd makes syncs.
type topicPut struct {
	t        *Topic
	value    string
	attempts int
	sent     bool // a transaction with it was sent, and may have been carried out

	done     chan struct{} // closed when the result is set
	revision int64
	found    *mvccpb.KeyValue
	err      error
}

func (p *topicPut) end(revision int64, found *mvccpb.KeyValue, err error) {
	p.revision, p.found, p.err = revision, found, err
	close(p.done)
}

// prepare readies it for a transaction. Each transaction that creates a Topic has an id of its own:
// the Topic of an earlier one may have been made and deleted meanwhile, and has a tombstone then.
func (p *topicPut) prepare() (err error) {
	if p.sent && p.t.Revision == 0 {
		p.t.ID = newID()
		p.value, err = p.t.encode()
	}
	p.sent = true
	return err
}

// putClaiming writes a Topic with new subjects, if its key is still at t.Revision (0: absent), and
// returns the new revision. An absent Topic may get another t.ID. If the key has changed, the error
// is errTopicMoved, with the current key or nil. If another Topic claims one of the subjects, it is
// an *OverlapError. If by is a client and there is no room, it is a *FullError.
func (c *Client) putClaiming(ctx context.Context, t *Topic, by Owner) (revision int64, found *mvccpb.KeyValue, err error) {
	value, written, err := c.encodeWithRoom(ctx, t, by)
	if err != nil {
		return 0, nil, err
	}
	defer func() { written(revision) }()
	p := &topicPut{t: t, value: value, done: make(chan struct{})}
	if err := c.puts.do(ctx, p, p.done, c.putSome); err != nil {
		return 0, nil, fmt.Errorf("put topic %s: %w", t.Name, err)
	}
	return p.revision, p.found, p.err
}

// putSome writes the first of the waiting Topics. ctx belongs to one of them and bounds this
// attempt only.
func (c *Client) putSome(ctx context.Context) {
	if !work.Sleep(ctx, time.Until(c.claims.yieldUntil)) {
		return
	}
	n, bytes := 0, 0
	these := c.puts.dequeue(func(p *topicPut) (want, stop bool) {
		if n == maxPuts || n > 0 && bytes+len(p.value) > maxPutBytes {
			return false, true
		}
		n, bytes = n+1, bytes+len(p.value)
		return true, false
	})
	var together, later []*topicPut
	for _, p := range these {
		switch err := c.checkClaims(ctx, p.t); {
		case err != nil && ctx.Err() != nil:
			later = append(later, p) // the next holder of the turn checks it
		case err != nil:
			p.end(0, nil, err)
		case slices.ContainsFunc(together, func(other *topicPut) bool { return other.t.Name == p.t.Name || overlap(other.t, p.t) }):
			later = append(later, p) // after the result of the other is known
		default:
			together = append(together, p)
		}
	}
	if len(together) > 0 {
		later = append(c.putThese(ctx, together), later...)
	}
	c.puts.putBack(later)
}

func overlap(a, b *Topic) bool {
	return slices.ContainsFunc(a.Spec.Subjects, func(x string) bool {
		return slices.ContainsFunc(b.Spec.Subjects, func(y string) bool { return subject.Overlap(x, y) })
	})
}

// putThese writes Topics in one transaction, and returns those to try again.
func (c *Client) putThese(ctx context.Context, these []*topicPut) (again []*topicPut) {
	fail := func(err error) []*topicPut {
		for _, p := range these {
			p.end(0, nil, fmt.Errorf("put topic %s: %w", p.t.Name, err))
		}
		return nil
	}
	gate, err := encodeValue("the claims of subjects", subjectsValue{subjectsValueVersion})
	if err != nil {
		return fail(err)
	}
	when := []clientv3.Cmp{clientv3.Compare(clientv3.ModRevision(c.subjectsKey()), "=", c.claims.gate)}
	then := []clientv3.Op{clientv3.OpPut(c.subjectsKey(), gate)}
	otherwise := []clientv3.Op{
		clientv3.OpGet(c.subjectsKey()),
		clientv3.OpGet(c.topicsPrefix(), clientv3.WithPrefix(), clientv3.WithMinModRev(c.claims.read+1)),
	}
	for _, p := range these {
		if err := p.prepare(); err != nil {
			return fail(err)
		}
		key := c.topicKey(p.t.Name)
		when = append(when, clientv3.Compare(clientv3.ModRevision(key), "=", p.t.Revision))
		then = append(then, clientv3.OpPut(key, p.value))
		otherwise = append(otherwise, clientv3.OpGet(key))
	}
	began := time.Now()
	done, err := c.transact(ctx, when, then, otherwise...)
	if err != nil && ctx.Err() != nil {
		return these // another call's ctx ended; the next attempt finds what was written and not deleted
	}
	if err != nil {
		return fail(err)
	}
	revision := done.Header.GetRevision()
	if done.Succeeded {
		c.claims.gate, c.claims.read = revision, revision
		took := time.Since(began)
		c.claims.yieldUntil = time.Now().Add(rand.N(claimYield*took + 1))
		for _, p := range these {
			c.claims.set(p.t.Name, claim{p.t.Spec.Subjects, p.t.Owner})
			p.end(revision, nil, nil)
		}
		return nil
	}
	c.claims.gate, c.claims.read = readResult(done, 0).GetModRevision(), revision
	for _, kv := range done.Responses[1].GetResponseRange().GetKvs() {
		c.learn(kv)
	}
	for i, p := range these {
		p.attempts++
		switch found := readResult(done, 2+i); {
		case found.GetModRevision() != p.t.Revision:
			p.end(0, found, errTopicMoved)
		case p.attempts == claimAttempts:
			p.end(0, nil, fmt.Errorf("put topic %s: others came first %d times (try again)", p.t.Name, claimAttempts))
		default:
			again = append(again, p)
		}
	}
	return again
}

// checkClaims returns an *OverlapError if another Topic is known to claim one of t's subjects.
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
		c.claims.drop(overlap.Other)
		if got == nil {
			continue
		}
		c.learn(got)
		if again := c.claims.overlap(t); again != nil && again.Other == overlap.Other {
			return again
		}
	}
}

// overlap returns the first Topic by name whose subjects overlap t's. It compares only Topics that
// share a first token with t.
func (c *claims) overlap(t *Topic) *OverlapError {
	var first *OverlapError
	look := func(name string) {
		if name == t.Name || first != nil && first.Other <= name {
			return
		}
		other := c.topics[name]
		for _, a := range t.Spec.Subjects {
			for _, b := range other.subjects {
				if subject.Overlap(a, b) {
					first = &OverlapError{Topic: t.Name, Subject: a, Other: name, Claimed: b, Owner: other.owner}
				}
			}
		}
	}
	for _, s := range t.Spec.Subjects {
		token := firstToken(s)
		if token == anyToken {
			for name := range c.topics {
				look(name)
			}
			return first
		}
		for name := range c.first[token] {
			look(name)
		}
	}
	for name := range c.first[anyToken] {
		look(name)
	}
	return first
}

// anyToken represents a wildcard as first token.
const anyToken = "*"

func firstToken(s string) string {
	token, _, _ := strings.Cut(s, ".")
	if token == ">" {
		return anyToken
	}
	return token
}

func (c *claims) set(name string, of claim) {
	c.drop(name)
	c.topics[name] = of
	for _, s := range of.subjects {
		token := firstToken(s)
		if c.first[token] == nil {
			c.first[token] = map[string]bool{}
		}
		c.first[token][name] = true
	}
}

func (c *claims) drop(name string) {
	for _, s := range c.topics[name].subjects {
		token := firstToken(s)
		if delete(c.first[token], name); len(c.first[token]) == 0 {
			delete(c.first, token)
		}
	}
	delete(c.topics, name)
}

func (c *Client) loadClaims(ctx context.Context) error {
	if c.claims.loaded {
		return nil
	}
	// The gate is read first: a later claim changes it.
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
	// A value of a later version may be unreadable as a whole, and still claims its subjects.
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
	c.claims.set(name, claim{value.Spec.Subjects, value.Owner})
}

// get reads one key; nil: it does not exist.
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

// transact commits one transaction. If a comparison fails, the response has the results of
// otherwise.
func (c *Client) transact(ctx context.Context, when []clientv3.Cmp, then []clientv3.Op, otherwise ...clientv3.Op) (*clientv3.TxnResponse, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	return c.etcd.Txn(ctx).If(when...).Then(then...).Else(otherwise...).Commit()
}

// writtenAt returns the revision of a transaction that was carried out; 0: it was not, or nobody
// knows.
func writtenAt(done *clientv3.TxnResponse, err error) int64 {
	if err != nil || !done.Succeeded {
		return 0
	}
	return done.Header.GetRevision()
}

// readResult returns the key that the i-th read of a transaction found, or nil.
func readResult(done *clientv3.TxnResponse, i int) *mvccpb.KeyValue {
	if kvs := done.Responses[i].GetResponseRange().GetKvs(); len(kvs) > 0 {
		return kvs[0]
	}
	return nil
}
