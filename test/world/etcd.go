package world

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// etcd is a model of an etcd cluster at the level of its services: revisions, transactions with
// comparisons, leases, watches. Only the world's goroutine uses its keys.
type etcd struct {
	w *world
	etcdState
	streams         []*watchStream
	down            bool // without a quorum
	lossRate        int  // percent of the answers that are lost after their request was carried out
	failNextJoin    bool // the next swap that adds a member to an in-sync set fails as joined says
	loseAnswer      bool // the answer under way is lost
	undoNextRemoval bool // the next removal of a replica is undone as removed says
	backup          *etcdState
	granted         int64 // leases, whose ids etcd never grants again
}

// etcdState is the content of a backup.
type etcdState struct {
	revision int64
	keys     map[string][]version // oldest first
	leases   map[int64]*lease
}

// version is a key as of a revision; kv is nil after a deletion.
type version struct {
	revision int64
	kv       *mvccpb.KeyValue
}

type lease struct {
	id       int64
	ttl      time.Duration
	deadline time.Duration
}

func newEtcd(w *world) *etcd {
	return &etcd{w: w, etcdState: etcdState{revision: 1, keys: map[string][]version{}, leases: map[int64]*lease{}}}
}

func (e *etcd) header() *etcdserverpb.ResponseHeader {
	return &etcdserverpb.ResponseHeader{Revision: e.revision}
}

// get returns a key as of a revision, or nil.
func (e *etcd) get(key string, revision int64) *mvccpb.KeyValue {
	versions := e.keys[key]
	for i := len(versions) - 1; i >= 0; i-- {
		if versions[i].revision <= revision {
			return versions[i].kv
		}
	}
	return nil
}

// keyOf returns the key of the world's cluster with this name, for example "generation".
func keyOf(name string) string { return "/carillon/" + clusterName + "/" + name }

// read decodes the value that a broker wrote to a key of the world's cluster. A missing key leaves
// value unchanged.
func (e *etcd) read(name string, value any) {
	if kv := e.get(keyOf(name), e.revision); kv != nil {
		_ = json.Unmarshal(kv.GetValue(), value) // a broker wrote it
	}
}

// within returns the keys of a range, sorted.
func (e *etcd) within(key, end []byte) []string {
	if len(end) == 0 {
		if _, ok := e.keys[string(key)]; ok {
			return []string{string(key)}
		}
		return nil
	}
	var out []string
	for _, k := range slices.Sorted(maps.Keys(e.keys)) {
		if k >= string(key) && (string(end) == "\x00" || k < string(end)) {
			out = append(out, k)
		}
	}
	return out
}

// clone returns a copy that the caller may keep.
func clone(kv *mvccpb.KeyValue) *mvccpb.KeyValue {
	return &mvccpb.KeyValue{Key: kv.GetKey(), Value: kv.GetValue(), Lease: kv.GetLease(),
		CreateRevision: kv.GetCreateRevision(), ModRevision: kv.GetModRevision(), Version: kv.GetVersion()}
}

func (e *etcd) rangeOf(r *etcdserverpb.RangeRequest) *etcdserverpb.RangeResponse {
	at := r.GetRevision()
	if at == 0 {
		at = e.revision
	}
	out := &etcdserverpb.RangeResponse{Header: e.header()}
	for _, key := range e.within(r.GetKey(), r.GetRangeEnd()) {
		kv := e.get(key, at)
		if kv == nil || kv.GetModRevision() < r.GetMinModRevision() {
			continue
		}
		out.Count++
		switch {
		case r.GetCountOnly():
		case r.GetLimit() > 0 && int64(len(out.Kvs)) >= r.GetLimit():
			out.More = true
		default:
			c := clone(kv)
			if r.GetKeysOnly() {
				c.Value = nil
			}
			out.Kvs = append(out.Kvs, c)
		}
	}
	return out
}

// commit is one transaction in progress. All its changes have one revision.
type commit struct {
	e      *etcd
	by     *life // nil: an operator of the cluster
	events []*mvccpb.Event
}

func (c *commit) revision() int64 { return c.e.revision + 1 }

func (c *commit) put(r *etcdserverpb.PutRequest) (*etcdserverpb.PutResponse, error) {
	if id := r.GetLease(); id != 0 && c.e.leases[id] == nil {
		return nil, rpctypes.ErrGRPCLeaseNotFound
	}
	key := string(r.GetKey())
	kv := &mvccpb.KeyValue{Key: []byte(key), Value: slices.Clone(r.GetValue()), Lease: r.GetLease(), CreateRevision: c.revision(), ModRevision: c.revision(), Version: 1}
	if before := c.e.get(key, c.revision()); before != nil {
		kv.CreateRevision, kv.Version = before.GetCreateRevision(), before.GetVersion()+1
	}
	c.change(key, kv)
	return &etcdserverpb.PutResponse{}, nil
}

func (c *commit) remove(key string) {
	if c.e.get(key, c.revision()) != nil {
		c.change(key, nil)
	}
}

func (c *commit) change(key string, kv *mvccpb.KeyValue) {
	c.e.keys[key] = append(c.e.keys[key], version{c.revision(), kv})
	event := &mvccpb.Event{Type: mvccpb.Event_PUT, Kv: kv}
	if kv == nil {
		event = &mvccpb.Event{Type: mvccpb.Event_DELETE, Kv: &mvccpb.KeyValue{Key: []byte(key), ModRevision: c.revision()}}
	}
	c.events = append(c.events, event)
}

// done publishes the changes.
func (c *commit) done() {
	if len(c.events) == 0 {
		return
	}
	c.e.revision++
	for _, event := range c.events {
		c.e.w.notef("  etcd %d %s %s %s", c.e.revision, event.GetType(), event.GetKv().GetKey(), event.GetKv().GetValue())
	}
	for _, s := range c.e.streams {
		s.changed(c.events)
	}
	c.e.w.judge.committed(c)
}

func (e *etcd) holds(c *etcdserverpb.Compare) bool {
	kv := e.get(string(c.GetKey()), e.revision)
	if kv == nil {
		kv = &mvccpb.KeyValue{}
	}
	var have, want int64
	switch c.GetTarget() {
	case etcdserverpb.Compare_CREATE:
		have, want = kv.GetCreateRevision(), c.GetCreateRevision()
	case etcdserverpb.Compare_MOD:
		have, want = kv.GetModRevision(), c.GetModRevision()
	case etcdserverpb.Compare_VERSION:
		have, want = kv.GetVersion(), c.GetVersion()
	case etcdserverpb.Compare_LEASE:
		have, want = kv.GetLease(), c.GetLease()
	default:
		equal := string(kv.GetValue()) == string(c.GetValue())
		return equal == (c.GetResult() == etcdserverpb.Compare_EQUAL)
	}
	switch c.GetResult() {
	case etcdserverpb.Compare_EQUAL:
		return have == want
	case etcdserverpb.Compare_NOT_EQUAL:
		return have != want
	case etcdserverpb.Compare_GREATER:
		return have > want
	}
	return have < want
}

func (c *commit) txn(r *etcdserverpb.TxnRequest) (*etcdserverpb.TxnResponse, error) {
	out := &etcdserverpb.TxnResponse{Header: c.e.header(), Succeeded: true}
	for _, compare := range r.GetCompare() {
		out.Succeeded = out.Succeeded && c.e.holds(compare)
	}
	ops := r.GetSuccess()
	if !out.Succeeded {
		ops = r.GetFailure()
	}
	for _, op := range ops {
		var answer etcdserverpb.ResponseOp
		switch {
		case op.GetRequestRange() != nil:
			answer.Response = &etcdserverpb.ResponseOp_ResponseRange{ResponseRange: c.e.rangeWithin(c, op.GetRequestRange())}
		case op.GetRequestPut() != nil:
			put, err := c.put(op.GetRequestPut())
			if err != nil {
				return nil, err
			}
			answer.Response = &etcdserverpb.ResponseOp_ResponsePut{ResponsePut: put}
		case op.GetRequestDeleteRange() != nil:
			answer.Response = &etcdserverpb.ResponseOp_ResponseDeleteRange{ResponseDeleteRange: c.removeRange(op.GetRequestDeleteRange())}
		case op.GetRequestTxn() != nil:
			inner, err := c.txn(op.GetRequestTxn())
			if err != nil {
				return nil, err
			}
			answer.Response = &etcdserverpb.ResponseOp_ResponseTxn{ResponseTxn: inner}
		}
		out.Responses = append(out.Responses, &answer)
	}
	return out, nil
}

// rangeWithin reads a range as the transaction has changed it so far.
func (e *etcd) rangeWithin(c *commit, r *etcdserverpb.RangeRequest) *etcdserverpb.RangeResponse {
	if len(c.events) == 0 || r.GetRevision() != 0 {
		return e.rangeOf(r)
	}
	e.revision++
	defer func() { e.revision-- }()
	return e.rangeOf(r)
}

func (c *commit) removeRange(r *etcdserverpb.DeleteRangeRequest) *etcdserverpb.DeleteRangeResponse {
	out := &etcdserverpb.DeleteRangeResponse{}
	for _, key := range c.e.within(r.GetKey(), r.GetRangeEnd()) {
		if c.e.get(key, c.e.revision) != nil {
			out.Deleted++
			c.remove(key)
		}
	}
	return out
}

func (e *etcd) revoke(id int64) bool {
	if e.leases[id] == nil {
		return false
	}
	delete(e.leases, id)
	c := &commit{e: e}
	for _, key := range slices.Sorted(maps.Keys(e.keys)) {
		if kv := e.get(key, e.revision); kv != nil && kv.GetLease() == id {
			c.remove(key)
		}
	}
	c.done()
	return true
}

func (e *etcd) grant(ttl int64) *lease {
	e.granted++
	l := &lease{id: e.granted, ttl: time.Duration(ttl) * time.Second}
	e.leases[l.id] = l
	e.renew(l)
	return l
}

func (e *etcd) renew(l *lease) {
	l.deadline = e.w.now() + l.ttl
	e.w.after(l.ttl, fmt.Sprintf("lease %d", l.id), func() { e.expire(l) })
}

func (e *etcd) expire(l *lease) {
	if e.leases[l.id] == l && !e.down && l.deadline <= e.w.now() {
		e.revoke(l.id)
	}
}

// setDown takes the quorum away, or restores it: then a new leader extends every lease to its full
// time.
func (e *etcd) setDown(down bool) {
	e.down = down
	if down {
		e.cutStreams(50)
		return
	}
	for _, id := range slices.Sorted(maps.Keys(e.leases)) {
		e.renew(e.leases[id])
	}
}

func (e *etcd) cutStreams(percent int) {
	for _, s := range slices.Clone(e.streams) {
		if e.w.chance(percent) {
			s.end(status.Error(codes.Unavailable, "etcdserver: no leader"))
		}
	}
}

// save makes a backup. restore replaces the state by it, as etcdutl snapshot restore does: later
// changes vanish.
func (e *etcd) save() {
	s := e.etcdState
	s.keys, s.leases = make(map[string][]version, len(e.keys)), make(map[int64]*lease, len(e.leases))
	for key, versions := range e.keys {
		s.keys[key] = slices.Clone(versions)
	}
	for id, l := range e.leases {
		copied := *l
		s.leases[id] = &copied
	}
	e.backup = &s
}

// saveAt makes a backup as of a former revision. It leaves out leases that have ended since,
// because no process would renew them.
func (e *etcd) saveAt(revision int64) {
	e.save()
	e.backup.revision = revision
	clear(e.backup.leases)
	for key, versions := range e.backup.keys {
		versions = slices.DeleteFunc(versions, func(v version) bool { return v.revision > revision })
		e.backup.keys[key] = versions
		if len(versions) == 0 {
			delete(e.backup.keys, key)
		} else if kv := versions[len(versions)-1].kv; kv != nil && e.leases[kv.GetLease()] != nil {
			copied := *e.leases[kv.GetLease()]
			e.backup.leases[copied.id] = &copied
		} else if kv != nil && kv.GetLease() != 0 {
			delete(e.backup.keys, key)
		}
	}
}

func (e *etcd) restore() {
	if e.backup == nil {
		return
	}
	e.etcdState, e.backup = *e.backup, nil
	e.cutStreams(100)
	for _, id := range slices.Sorted(maps.Keys(e.leases)) {
		e.renew(e.leases[id])
	}
	e.w.cameBack()
}

// write puts a key, as an operator of the cluster does; an empty value deletes it.
func (e *etcd) write(key, value string) { e.writeAll(map[string]string{key: value}) }

// writeAll is write for several keys in one transaction.
func (e *etcd) writeAll(values map[string]string) {
	c := &commit{e: e}
	for _, key := range slices.Sorted(maps.Keys(values)) {
		if values[key] == "" {
			c.remove(key)
		} else {
			_, _ = c.put(&etcdserverpb.PutRequest{Key: []byte(key), Value: []byte(values[key])}) // without a lease it can't fail
		}
	}
	c.done()
}

// remove deletes keys of the world's cluster, as an operator does. A name that ends with a slash
// stands for all keys below it.
func (e *etcd) remove(names ...string) {
	c := &commit{e: e}
	for _, name := range names {
		for _, key := range slices.Sorted(maps.Keys(e.keys)) {
			if key == keyOf(name) || strings.HasSuffix(name, "/") && strings.HasPrefix(key, keyOf(name)) {
				c.remove(key)
			}
		}
	}
	c.done()
}

// access is one process's connection to etcd.
type access struct {
	e *etcd
	l *life
}

// ask sends a request to etcd, carries it out, and returns the answer. Either direction may be cut,
// etcd may be down, and an answer may be lost. A request may outlive its sender.
func ask[R any](a *access, ctx context.Context, what string, carryOut func() (R, error)) (answer R, err error) {
	type result struct {
		answer R
		err    error
	}
	e, w, me := a.e, a.e.w, a.l.m.id
	n := w.network
	done := make(chan result, 1)
	var arrive func()
	arrive = func() {
		over := ctx.Err() != nil || a.l.dead.Load()
		if over && w.chance(50) {
			return
		}
		if e.down || n.isCut(me, etcdName) {
			if !over {
				w.after(resend, fmt.Sprintf("etcd < %s %s again", me, what), arrive)
			}
			return
		}
		var r result
		r.answer, r.err = carryOut()
		if e.loseAnswer { // the connection breaks, and the process notices at once
			e.loseAnswer = false
			w.after(n.latency(etcdName, me), fmt.Sprintf("etcd > %s %s is lost", me, what), func() {
				done <- result{err: status.Error(codes.Unavailable, "the connection was lost")}
			})
			return
		}
		if e.lossRate > 0 && w.chance(e.lossRate) {
			r = result{err: status.Error(codes.Unavailable, "the connection was lost")}
		}
		var back func()
		back = func() {
			if n.isCut(etcdName, me) {
				if ctx.Err() == nil && !a.l.dead.Load() {
					w.after(resend, fmt.Sprintf("etcd > %s %s again", me, what), back)
				}
				return
			}
			done <- r
		}
		w.after(n.latency(etcdName, me), fmt.Sprintf("etcd > %s %s", me, what), back)
	}
	w.after(n.latency(me, etcdName), fmt.Sprintf("etcd < %s %s", me, what), arrive)
	select {
	case r := <-done:
		return r.answer, r.err
	case <-ctx.Done():
		return answer, status.FromContextError(ctx.Err()).Err()
	case <-a.l.gone:
		return answer, status.Error(codes.Unavailable, errDead.Error())
	}
}

// kvAccess, leaseAccess and watchAccess are etcd's services, with the calls that brokers use.
type (
	kvAccess struct {
		etcdserverpb.KVClient
		access
	}
	leaseAccess struct {
		etcdserverpb.LeaseClient
		access
	}
	watchAccess struct {
		etcdserverpb.WatchClient
		access
	}
)

func (a *kvAccess) Range(ctx context.Context, r *etcdserverpb.RangeRequest, _ ...grpc.CallOption) (*etcdserverpb.RangeResponse, error) {
	return ask(&a.access, ctx, "range "+string(r.GetKey()), func() (*etcdserverpb.RangeResponse, error) {
		if r.GetRevision() > a.e.revision {
			return nil, rpctypes.ErrGRPCFutureRev
		}
		return a.e.rangeOf(r), nil
	})
}

func (a *kvAccess) Put(ctx context.Context, r *etcdserverpb.PutRequest, _ ...grpc.CallOption) (*etcdserverpb.PutResponse, error) {
	return ask(&a.access, ctx, "put "+string(r.GetKey()), func() (*etcdserverpb.PutResponse, error) {
		c := &commit{e: a.e, by: a.l}
		out, err := c.put(r)
		if err != nil {
			return nil, err
		}
		c.done()
		out.Header = a.e.header()
		return out, nil
	})
}

func (a *kvAccess) DeleteRange(ctx context.Context, r *etcdserverpb.DeleteRangeRequest, _ ...grpc.CallOption) (*etcdserverpb.DeleteRangeResponse, error) {
	return ask(&a.access, ctx, "delete "+string(r.GetKey()), func() (*etcdserverpb.DeleteRangeResponse, error) {
		c := &commit{e: a.e, by: a.l}
		out := c.removeRange(r)
		c.done()
		out.Header = a.e.header()
		return out, nil
	})
}

func (a *kvAccess) Txn(ctx context.Context, r *etcdserverpb.TxnRequest, _ ...grpc.CallOption) (*etcdserverpb.TxnResponse, error) {
	return ask(&a.access, ctx, "txn", func() (*etcdserverpb.TxnResponse, error) {
		c := &commit{e: a.e, by: a.l}
		if err := a.e.known(r); err != nil {
			return nil, err
		}
		out, err := c.txn(r)
		if err != nil {
			return nil, err
		}
		a.e.removed(c)
		c.done()
		a.e.joined(c)
		out.Header = a.e.header()
		return out, nil
	})
}

// known checks leases and revisions before any change, since a transaction is atomic.
func (e *etcd) known(r *etcdserverpb.TxnRequest) error {
	for _, op := range r.GetSuccess() {
		if read := op.GetRequestRange(); read != nil && read.GetRevision() > e.revision {
			return rpctypes.ErrGRPCFutureRev
		}
		if put := op.GetRequestPut(); put != nil && put.GetLease() != 0 && e.leases[put.GetLease()] == nil {
			return rpctypes.ErrGRPCLeaseNotFound
		}
	}
	return nil
}

func (a *leaseAccess) LeaseGrant(ctx context.Context, r *etcdserverpb.LeaseGrantRequest, _ ...grpc.CallOption) (*etcdserverpb.LeaseGrantResponse, error) {
	return ask(&a.access, ctx, "grant", func() (*etcdserverpb.LeaseGrantResponse, error) {
		return &etcdserverpb.LeaseGrantResponse{Header: a.e.header(), ID: a.e.grant(r.GetTTL()).id, TTL: r.GetTTL()}, nil
	})
}

func (a *leaseAccess) LeaseRevoke(ctx context.Context, r *etcdserverpb.LeaseRevokeRequest, _ ...grpc.CallOption) (*etcdserverpb.LeaseRevokeResponse, error) {
	return ask(&a.access, ctx, "revoke", func() (*etcdserverpb.LeaseRevokeResponse, error) {
		if !a.e.revoke(r.GetID()) {
			return nil, rpctypes.ErrGRPCLeaseNotFound
		}
		return &etcdserverpb.LeaseRevokeResponse{Header: a.e.header()}, nil
	})
}

func (a *leaseAccess) LeaseKeepAlive(ctx context.Context, _ ...grpc.CallOption) (grpc.BidiStreamingClient[etcdserverpb.LeaseKeepAliveRequest, etcdserverpb.LeaseKeepAliveResponse], error) {
	return &keepAlive{a: &a.access, ctx: ctx}, nil
}

// keepAlive renews a lease once, as brokers use it: one request, one answer.
type keepAlive struct {
	grpc.ClientStream
	a   *access
	ctx context.Context
	id  int64
}

func (k *keepAlive) Send(r *etcdserverpb.LeaseKeepAliveRequest) error {
	k.id = r.GetID()
	return nil
}

func (k *keepAlive) Recv() (*etcdserverpb.LeaseKeepAliveResponse, error) {
	return ask(k.a, k.ctx, "beat", func() (*etcdserverpb.LeaseKeepAliveResponse, error) {
		out := &etcdserverpb.LeaseKeepAliveResponse{Header: k.a.e.header(), ID: k.id}
		if l := k.a.e.leases[k.id]; l != nil {
			k.a.e.renew(l)
			out.TTL = int64(l.ttl / time.Second)
		}
		return out, nil
	})
}

func (k *keepAlive) CloseSend() error { return nil }

func (a *watchAccess) Watch(ctx context.Context, _ ...grpc.CallOption) (grpc.BidiStreamingClient[etcdserverpb.WatchRequest, etcdserverpb.WatchResponse], error) {
	if a.l.dead.Load() {
		return nil, status.Error(codes.Unavailable, errDead.Error())
	}
	s := &watchStream{access: a.access, ctx: ctx, wake: make(chan struct{}, 1)}
	a.e.w.after(a.e.w.network.latency(a.l.m.id, etcdName), "etcd < "+a.l.m.id+" stream", func() {
		if a.e.down || a.e.w.network.isCut(a.l.m.id, etcdName) {
			s.end(status.Error(codes.Unavailable, "no connection"))
			return
		}
		a.e.streams = append(a.e.streams, s)
		s.open = true
		for _, r := range s.early {
			s.handle(r)
		}
	})
	return s, nil
}

// watchStream carries the watches of one process. Its fields belong to the world's goroutine,
// except the inbox.
type watchStream struct {
	grpc.ClientStream
	access
	ctx     context.Context
	open    bool
	early   []*etcdserverpb.WatchRequest
	watches []watch
	made    int64
	out     []*etcdserverpb.WatchResponse // on their way, in order
	sending bool

	inbox []*etcdserverpb.WatchResponse
	err   error
	wake  chan struct{}
}

type watch struct {
	id       int64
	key, end string
	from     int64
}

func (s *watchStream) Send(r *etcdserverpb.WatchRequest) error {
	w := s.e.w
	w.after(w.network.latency(s.l.m.id, etcdName), "etcd < "+s.l.m.id+" watch", func() {
		if !s.open {
			s.early = append(s.early, r)
			return
		}
		if !s.e.down && !w.network.isCut(s.l.m.id, etcdName) {
			s.handle(r)
		}
	})
	return nil
}

func (s *watchStream) handle(r *etcdserverpb.WatchRequest) {
	switch {
	case r.GetCreateRequest() != nil:
		c := r.GetCreateRequest()
		s.made++
		one := watch{id: s.made, key: string(c.GetKey()), end: string(c.GetRangeEnd()), from: c.GetStartRevision()}
		if one.from == 0 {
			one.from = s.e.revision + 1
		}
		s.watches = append(s.watches, one)
		s.send(&etcdserverpb.WatchResponse{Header: s.e.header(), WatchId: one.id, Created: true})
		s.past(one)
	case r.GetCancelRequest() != nil:
		id := r.GetCancelRequest().GetWatchId()
		s.watches = slices.DeleteFunc(s.watches, func(o watch) bool { return o.id == id })
		s.send(&etcdserverpb.WatchResponse{Header: s.e.header(), WatchId: id, Canceled: true})
	case r.GetProgressRequest() != nil:
		s.send(&etcdserverpb.WatchResponse{Header: s.e.header(), WatchId: -1})
	}
}

// past sends the events since a watch's first revision.
func (s *watchStream) past(one watch) {
	var events []*mvccpb.Event
	for _, key := range s.e.within([]byte(one.key), []byte(one.end)) {
		for _, v := range s.e.keys[key] {
			if v.revision >= one.from {
				if v.kv != nil {
					events = append(events, &mvccpb.Event{Type: mvccpb.Event_PUT, Kv: v.kv})
				} else {
					events = append(events, &mvccpb.Event{Type: mvccpb.Event_DELETE, Kv: &mvccpb.KeyValue{Key: []byte(key), ModRevision: v.revision}})
				}
			}
		}
	}
	slices.SortStableFunc(events, func(a, b *mvccpb.Event) int { return int(a.GetKv().GetModRevision() - b.GetKv().GetModRevision()) })
	if len(events) > 0 {
		s.send(&etcdserverpb.WatchResponse{Header: s.e.header(), WatchId: one.id, Events: cloneEvents(events)})
	}
}

func cloneEvents(events []*mvccpb.Event) []*mvccpb.Event {
	out := make([]*mvccpb.Event, 0, len(events))
	for _, event := range events {
		out = append(out, &mvccpb.Event{Type: event.GetType(), Kv: clone(event.GetKv())})
	}
	return out
}

func (s *watchStream) changed(events []*mvccpb.Event) {
	for _, one := range s.watches {
		var mine []*mvccpb.Event
		for _, event := range events {
			if key := string(event.GetKv().GetKey()); key == one.key || key >= one.key && key < one.end {
				mine = append(mine, event)
			}
		}
		if len(mine) > 0 {
			s.send(&etcdserverpb.WatchResponse{Header: s.e.header(), WatchId: one.id, Events: cloneEvents(mine)})
		}
	}
}

func (s *watchStream) send(r *etcdserverpb.WatchResponse) {
	s.out = append(s.out, r)
	if !s.sending {
		s.sending = true
		s.later()
	}
}

func (s *watchStream) later() {
	m := s.l.m
	m.w.after(m.w.network.latency(etcdName, m.id)+m.lateWatch, "etcd > "+m.id+" watch", s.deliver)
}

// deliver sends the oldest waiting event, and perhaps some more, so that processes see different
// revisions.
func (s *watchStream) deliver() {
	m := s.l.m
	s.sending = false
	if len(s.out) == 0 || s.l.dead.Load() || s.ctx.Err() != nil {
		return
	}
	if s.e.down || m.w.network.isCut(etcdName, m.id) {
		s.sending = true
		m.w.after(resend, "etcd > "+m.id+" watch again", s.deliver)
		return
	}
	n := 1 + m.w.rng.IntN(len(s.out))
	s.inbox = append(s.inbox, s.out[:n]...)
	s.out = s.out[n:]
	s.signal()
	if len(s.out) > 0 {
		s.sending = true
		s.later()
	}
}

func (s *watchStream) end(err error) {
	s.err = err
	s.e.streams = slices.DeleteFunc(s.e.streams, func(o *watchStream) bool { return o == s })
	s.signal()
}

func (s *watchStream) signal() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

func (s *watchStream) Recv() (*etcdserverpb.WatchResponse, error) {
	for {
		if len(s.inbox) > 0 {
			r := s.inbox[0]
			s.inbox = s.inbox[1:]
			return r, nil
		}
		if s.err != nil {
			return nil, s.err
		}
		select {
		case <-s.wake:
		case <-s.ctx.Done():
			return nil, status.FromContextError(s.ctx.Err()).Err()
		case <-s.l.gone:
			return nil, io.EOF
		}
	}
}

func (s *watchStream) CloseSend() error { return nil }

func (s *watchStream) Context() context.Context { return s.ctx }
