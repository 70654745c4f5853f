package coordination

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"
)

// slowEtcd grants every lease and accepts every transaction, after a while.
type slowEtcd struct {
	etcdserverpb.KVClient
	etcdserverpb.LeaseClient
	each time.Duration
}

const slowRevision = 7 // of slowEtcd

func (s slowEtcd) wait(ctx context.Context) error {
	timer := time.NewTimer(s.each)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		return nil
	}
}

func (s slowEtcd) Txn(ctx context.Context, r *etcdserverpb.TxnRequest, _ ...grpc.CallOption) (*etcdserverpb.TxnResponse, error) {
	done := &etcdserverpb.TxnResponse{Header: &etcdserverpb.ResponseHeader{Revision: slowRevision}, Succeeded: true}
	for _, op := range r.GetSuccess() {
		one := &etcdserverpb.ResponseOp{Response: &etcdserverpb.ResponseOp_ResponsePut{ResponsePut: &etcdserverpb.PutResponse{}}}
		if op.GetRequestRange() != nil {
			one.Response = &etcdserverpb.ResponseOp_ResponseRange{ResponseRange: &etcdserverpb.RangeResponse{}}
		}
		done.Responses = append(done.Responses, one)
	}
	return done, s.wait(ctx)
}

func (s slowEtcd) LeaseGrant(ctx context.Context, r *etcdserverpb.LeaseGrantRequest, _ ...grpc.CallOption) (*etcdserverpb.LeaseGrantResponse, error) {
	return &etcdserverpb.LeaseGrantResponse{ID: 1, TTL: r.GetTTL()}, s.wait(ctx)
}

func (s slowEtcd) LeaseRevoke(ctx context.Context, _ *etcdserverpb.LeaseRevokeRequest, _ ...grpc.CallOption) (*etcdserverpb.LeaseRevokeResponse, error) {
	return &etcdserverpb.LeaseRevokeResponse{}, s.wait(ctx)
}

// TestASlowEtcdDelaysARegistration: each request takes most of its time limit. A common deadline
// would end each attempt before its last request, and no broker would ever register.
func TestASlowEtcdDelaysARegistration(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		etcd := slowEtcd{each: requestTimeout * 3 / 4}
		c, err := Open(Config{Cluster: "default/main", LeaseTTL: testTTL, Remote: &Remote{KV: etcd, Lease: etcd}})
		if err != nil {
			t.Fatal(err)
		}
		ctx, leave := context.WithCancel(t.Context())
		joined := make(chan int64, 1)
		var running sync.WaitGroup
		running.Go(func() { _ = c.Join(ctx, broker("a"), func(incarnation int64) { joined <- incarnation }) })
		began := time.Now()
		if got := <-joined; got != slowRevision {
			t.Errorf("registered in incarnation %d, want %d", got, slowRevision)
		}
		// The comparison with what was seen, the lease, the key.
		if took := time.Since(began); took != 3*etcd.each {
			t.Errorf("registered after %v, want three requests of %v each", took, etcd.each)
		}
		leave()
		running.Wait()
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
}
