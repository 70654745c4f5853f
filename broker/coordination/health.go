package coordination

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
)

// healthTimeout bounds the request to one endpoint. All endpoints are asked concurrently.
const healthTimeout = 2 * time.Second

// Health is the state of etcd.
type Health struct {
	Endpoints []EndpointHealth // in the order of the configuration
	Members   []Member         // as a quorum knows them; nil without a quorum
	Leader    string           // name of the leading member; empty: unknown
	NoSpace   []string         // names of members that are out of space; etcd refuses writes
	Corrupt   []string         // names of members whose data differ from the others'
	Err       error            // why no quorum answered; nil: one did
}

// EndpointHealth is the answer of one endpoint.
type EndpointHealth struct {
	Endpoint  string
	Err       error // nil: it answered
	MemberID  uint64
	Version   string
	Leads     bool
	Learner   bool
	Size      int64 // bytes of its database file
	SizeInUse int64 // bytes of it in use
	Quota     int64 // bytes at which it refuses writes
}

// Health asks every endpoint and the quorum. Errors are in the result.
func (c *Coordinators) Health(ctx context.Context) Health {
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

func (c *Coordinators) endpointHealth(ctx context.Context, endpoint string) EndpointHealth {
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
