package coordination

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
)

// healthTimeout bounds the question to one endpoint; all are asked at once.
const healthTimeout = 2 * time.Second

// Health is what etcd says of itself.
type Health struct {
	Endpoints []EndpointHealth // in the order of the configuration
	Members   []Member         // as a quorum knows them; nil if there is none
	Leader    string           // name of the member that leads; empty: none is known
	NoSpace   []string         // names of the members that are out of space: nothing can be written
	Corrupt   []string         // names of the members whose data differ from the others'
	Err       error            // why no quorum answered; nil: one did
}

// EndpointHealth is one endpoint's answer.
type EndpointHealth struct {
	Endpoint  string
	Err       error // nil: it answered
	MemberID  uint64
	Version   string
	Leads     bool
	Learner   bool
	Size      int64 // bytes of its database file
	SizeInUse int64 // bytes of that which hold data
	Quota     int64 // bytes at which it stops taking writes
}

// Reachable counts the endpoints that answered.
func (h Health) Reachable() (n int) {
	for _, e := range h.Endpoints {
		if e.Err == nil {
			n++
		}
	}
	return n
}

// Health asks every endpoint and, for what only a quorum knows, the cluster. It never
// fails as a whole: what could not be learned is in the answer.
func (c *Client) Health(ctx context.Context) Health {
	ctx, cancel := context.WithTimeout(ctx, 2*healthTimeout)
	defer cancel()
	endpoints := c.etcd.Endpoints()
	health := Health{Endpoints: make([]EndpointHealth, len(endpoints))}
	var asked sync.WaitGroup
	for i, endpoint := range endpoints {
		asked.Go(func() { health.Endpoints[i] = c.endpointHealth(ctx, endpoint) })
	}
	health.Members, health.Err = c.Members(ctx)
	alarms, err := c.etcd.AlarmList(ctx)
	if err != nil && health.Err == nil {
		health.Err = fmt.Errorf("list alarms: %w", err)
	}
	asked.Wait()

	names := map[uint64]string{}
	for _, m := range health.Members {
		names[m.ID] = m.Name
	}
	nameOf := func(id uint64) string {
		if name := names[id]; name != "" {
			return name
		}
		return fmt.Sprintf("%x", id)
	}
	for _, e := range health.Endpoints {
		if e.Err == nil && e.Leads {
			health.Leader = nameOf(e.MemberID)
		}
	}
	if alarms == nil {
		return health
	}
	for _, alarm := range alarms.Alarms {
		switch alarm.GetAlarm() {
		case etcdserverpb.AlarmType_NOSPACE:
			health.NoSpace = append(health.NoSpace, nameOf(alarm.GetMemberID()))
		case etcdserverpb.AlarmType_CORRUPT:
			health.Corrupt = append(health.Corrupt, nameOf(alarm.GetMemberID()))
		}
	}
	slices.Sort(health.NoSpace)
	slices.Sort(health.Corrupt)
	return health
}

func (c *Client) endpointHealth(ctx context.Context, endpoint string) EndpointHealth {
	ctx, cancel := context.WithTimeout(ctx, healthTimeout)
	defer cancel()
	status, err := c.etcd.Status(ctx, endpoint)
	if err != nil {
		return EndpointHealth{Endpoint: endpoint, Err: fmt.Errorf("ask %s: %w", endpoint, err)}
	}
	return EndpointHealth{
		Endpoint: endpoint, MemberID: status.Header.GetMemberId(), Version: status.Version,
		Leads: status.Leader != 0 && status.Leader == status.Header.GetMemberId(), Learner: status.IsLearner,
		Size: status.DbSize, SizeInUse: status.DbSizeInUse, Quota: status.DbSizeQuota,
	}
}

// Member is one coordinator, as the others know it.
type Member struct {
	ID         uint64
	Name       string // empty: added, but never started
	PeerURLs   []string
	ClientURLs []string // empty: never started
	Learner    bool     // it copies, and does not vote yet
}

// Members asks a quorum who the coordinators are; sorted by name.
func (c *Client) Members(ctx context.Context) ([]Member, error) {
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

// RemoveMember takes a coordinator out of the quorum. That it is not there is no error.
func (c *Client) RemoveMember(ctx context.Context, id uint64) error {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	_, err := c.etcd.MemberRemove(ctx, id)
	if err != nil && !errors.Is(err, rpctypes.ErrMemberNotFound) {
		return fmt.Errorf("remove coordinator %x: %w", id, err)
	}
	return nil
}

// AddLearner announces a coordinator that will copy before it votes.
func (c *Client) AddLearner(ctx context.Context, peerURL string) (Member, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	added, err := c.etcd.MemberAddAsLearner(ctx, []string{peerURL})
	if err != nil {
		return Member{}, fmt.Errorf("add coordinator %s as a learner: %w", peerURL, err)
	}
	return memberOf(added.Member), nil
}
