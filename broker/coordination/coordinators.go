package coordination

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/carillon-mq/carillon/broker/env"
)

// Coordinators is a client of the etcd members themselves, whatever they store.
type Coordinators struct {
	etcd   *clientv3.Client
	remote *Remote // nil: etcd has a connection
}

// Remote is etcd's services without a connection: a model of etcd, in a simulation.
type Remote struct {
	KV    etcdserverpb.KVClient
	Lease etcdserverpb.LeaseClient
	Watch etcdserverpb.WatchClient
}

// openRemote returns Coordinators that use a Remote for keys, leases and watches. It has no
// members.
func openRemote(remote *Remote) *Coordinators {
	etcd := clientv3.NewCtxClient(context.Background())
	etcd.KV = clientv3.NewKVFromKVClient(remote.KV, etcd)
	etcd.Lease = clientv3.NewLeaseFromLeaseClient(remote.Lease, etcd, time.Second)
	etcd.Watcher = clientv3.NewWatchFromWatchClient(oneStream{remote.Watch}, etcd)
	return &Coordinators{etcd: etcd, remote: remote}
}

// leases returns the lease service of the next endpoint in turn.
func (c *Coordinators) leases() etcdserverpb.LeaseClient {
	if c.remote != nil {
		return c.remote.Lease
	}
	return etcdserverpb.NewLeaseClient(c.etcd.ActiveConnection())
}

// oneStream is a watch service whose streams end for good: clientv3 would resume an interrupted
// watch unseen, also in an etcd that was restored from a backup meanwhile.
type oneStream struct{ etcdserverpb.WatchClient }

func (o oneStream) Watch(ctx context.Context, opts ...grpc.CallOption) (grpc.BidiStreamingClient[etcdserverpb.WatchRequest, etcdserverpb.WatchResponse], error) {
	stream, err := o.WatchClient.Watch(ctx, opts...)
	if err != nil {
		return nil, ending(err)
	}
	return endingStream{stream}, nil
}

// endingStream is a stream of oneStream.
type endingStream struct {
	grpc.BidiStreamingClient[etcdserverpb.WatchRequest, etcdserverpb.WatchResponse]
}

func (s endingStream) Recv() (*etcdserverpb.WatchResponse, error) {
	r, err := s.BidiStreamingClient.Recv()
	return r, ending(err)
}

// ending returns an error after which clientv3 doesn't try again.
func ending(err error) error {
	if code := status.Code(err); err == nil || code != codes.Unavailable && code != codes.Internal {
		return err
	}
	return status.Error(codes.Aborted, status.Convert(err).Message())
}

// OpenCoordinators returns a client. It does not wait for etcd.
func OpenCoordinators(endpoints []string, tls *env.TLS) (*Coordinators, error) {
	etcd, err := dial(endpoints, tls)
	if err != nil {
		return nil, err
	}
	etcd.Watcher = clientv3.NewWatchFromWatchClient(oneStream{etcdserverpb.NewWatchClient(etcd.ActiveConnection())}, etcd)
	return &Coordinators{etcd: etcd}, nil
}

// Close closes the connections. Requests under way fail; the caller ends them before.
func (c *Coordinators) Close() error {
	if err := c.etcd.Close(); err != nil && !errors.Is(err, context.Canceled) {
		return fmt.Errorf("close the etcd client: %w", err)
	}
	return nil
}

// Member is one coordinator, as the others know it.
type Member struct {
	ID         uint64
	Name       string // empty: added and never started
	PeerURLs   []string
	ClientURLs []string // empty: never started
	Learner    bool     // receives the data and does not vote yet
}

// Members returns the coordinators, as a quorum knows them, sorted by name.
func (c *Coordinators) Members(ctx context.Context) ([]Member, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	list, err := c.etcd.MemberList(ctx)
	if err != nil {
		return nil, fmt.Errorf("list coordinators: %w", err)
	}
	members := make([]Member, 0, len(list.Members))
	for _, m := range list.Members {
		members = append(members, memberOf(m))
	}
	slices.SortFunc(members, func(a, b Member) int { return strings.Compare(a.Name, b.Name) })
	return members, nil
}

func memberOf(m *etcdserverpb.Member) Member {
	return Member{ID: m.GetID(), Name: m.GetName(), PeerURLs: m.GetPeerURLs(), ClientURLs: m.GetClientURLs(), Learner: m.GetIsLearner()}
}

// RemoveMember removes a coordinator from the quorum. A missing one is no error.
func (c *Coordinators) RemoveMember(ctx context.Context, id uint64) error {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	_, err := c.etcd.MemberRemove(ctx, id)
	if err != nil && !errors.Is(err, rpctypes.ErrMemberNotFound) {
		return fmt.Errorf("remove coordinator %x: %w", id, err)
	}
	return nil
}

// PromoteMember lets a learner vote. Only the leader can tell whether it has caught up.
func (c *Coordinators) PromoteMember(ctx context.Context, id uint64) error {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	if _, err := c.etcd.MemberPromote(ctx, id); err != nil {
		return fmt.Errorf("promote coordinator %x: %w", id, err)
	}
	return nil
}

// AddLearner adds a coordinator that receives the data before it votes.
func (c *Coordinators) AddLearner(ctx context.Context, peerURL string) (Member, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	added, err := c.etcd.MemberAddAsLearner(ctx, []string{peerURL})
	if err != nil {
		return Member{}, fmt.Errorf("add coordinator %s as a learner: %w", peerURL, err)
	}
	return memberOf(added.Member), nil
}
