package observe

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/carillon-mq/carillon/broker/coordination"
	"github.com/carillon-mq/carillon/broker/identity"
	"github.com/carillon-mq/carillon/controllers/plan"
)

// probe is the interval in which the operator checks its watch of a Broker's keys.
const probe = 2 * time.Second

// etcdTimeout bounds all requests to one Broker's etcd in one pass: those of the operator's own
// user, and again those of the user root.
const etcdTimeout = 6 * time.Second

// Etcd is a client of one Broker's coordinators.
type Etcd interface {
	Health(ctx context.Context) coordination.Health
	Owner(ctx context.Context) (string, error)
	ClaimOwner(ctx context.Context, identity string) error
	Drain(ctx context.Context, broker coordination.Replica, mode coordination.DrainMode, leased bool) error
	EndDrain(ctx context.Context, brokerID string) error
	// Access, GrantAccess and EnableAccess need a client of coordination.RootUser.
	Access(ctx context.Context, want coordination.Access) (coordination.AccessState, error)
	GrantAccess(ctx context.Context, want coordination.Access) error
	EnableAccess(ctx context.Context, want coordination.Access) error
	Keys
	Close() error
}

// Keys is the part of it that Topics, Subscriptions and Views use.
type Keys interface {
	WatchState(ctx context.Context, changed func(*coordination.State, coordination.Changes)) error

	ReadUsers(ctx context.Context) (*coordination.UserSet, error)
	PutUsers(ctx context.Context, doc *identity.Document) (written int, err error)
	VerifiersFrom(ctx context.Context) (map[string]string, error)
	PutVerifiersFrom(ctx context.Context, before, from map[string]string) error

	CreateTopic(ctx context.Context, name string, spec coordination.TopicSpec, owner coordination.Owner) (*coordination.Topic, error)
	UpdateTopic(ctx context.Context, name string, update coordination.TopicUpdate) (*coordination.Topic, error)
	AdoptTopic(ctx context.Context, name string, by coordination.Owner, spec coordination.TopicSpec) (*coordination.Topic, error)
	OrphanTopic(ctx context.Context, name string, by coordination.Owner) (*coordination.Topic, error)
	DeleteTopic(ctx context.Context, name, id string, by coordination.Owner) error
	GetTopic(ctx context.Context, name string) (*coordination.Topic, error)
	DeclareAttributes(ctx context.Context, topic string, want coordination.Declared) error

	CreateSubscription(ctx context.Context, topic, name string, spec coordination.SubscriptionSpec, owner coordination.Owner) (*coordination.Subscription, error)
	UpdateSubscription(ctx context.Context, topic, name string, update coordination.SubscriptionUpdate) (*coordination.Subscription, error)
	AdoptSubscription(ctx context.Context, topic, name string, by coordination.Owner, spec coordination.SubscriptionSpec) (*coordination.Subscription, error)
	OrphanSubscription(ctx context.Context, topic, name string, by coordination.Owner) (*coordination.Subscription, error)
	DeleteSubscription(ctx context.Context, topic, name string, revision int64, by coordination.Owner) error
	GetSubscription(ctx context.Context, topic, name string) (*coordination.Subscription, error)

	CreateView(ctx context.Context, name string, spec coordination.ViewSpec, owner coordination.Owner) (*coordination.View, error)
	UpdateView(ctx context.Context, name string, update coordination.ViewUpdate) (*coordination.View, error)
	AdoptView(ctx context.Context, name string, by coordination.Owner, spec coordination.ViewSpec) (*coordination.View, error)
	OrphanView(ctx context.Context, name string, by coordination.Owner) (*coordination.View, error)
	DeleteView(ctx context.Context, name string, revision int64, by coordination.Owner) error
	GetView(ctx context.Context, name string) (*coordination.View, error)
}

// OpenEtcd opens a client of the etcd of a Broker ("namespace/name"). The endpoints are in the
// order of the coordinators' ordinals, the certificates PEM encoded.
type OpenEtcd func(cluster string, endpoints []string, ca, cert, key []byte) (Etcd, error)

// DialEtcd is OpenEtcd for a real cluster.
func DialEtcd(cluster string, endpoints []string, ca, cert, key []byte) (Etcd, error) {
	tls, err := coordination.ParseTLS(ca, cert, key)
	if err != nil {
		return nil, err
	}
	// The operator may notice a dead watch later than brokers do.
	return coordination.Open(coordination.Config{Endpoints: endpoints, TLS: tls, Cluster: cluster, Probe: probe})
}

// AskEtcd sets Serving of the coordinators in set, and returns facts about etcd as a whole. If no
// coordinator runs it sends no request.
func AskEtcd(ctx context.Context, etcd Etcd, identity string, set *plan.Set) plan.Etcd {
	running := false
	for _, p := range set.Pods {
		running = running || p.Started
	}
	if !running {
		return plan.Etcd{}
	}
	ctx, cancel := context.WithTimeout(ctx, etcdTimeout)
	defer cancel()
	health := etcd.Health(ctx)
	for i := range set.Pods {
		p := &set.Pods[i]
		if n, ok := Ordinal(p.Name); ok && n < len(health.Endpoints) {
			p.Serving = health.Endpoints[n].Err == nil && !health.Endpoints[n].Learner
		}
	}
	facts := plan.Etcd{Asked: true, NoSpace: health.NoSpace, Corrupt: health.Corrupt}
	if health.Err != nil {
		facts.Trouble = plan.Cause(health.Err)
		return facts
	}
	facts.Answered, facts.Quorum = true, true
	facts.AllStarted = int32(len(health.Members)) >= set.Replicas
	for _, m := range health.Members {
		if m.Name == "" || m.Learner {
			facts.AllStarted = false
		}
	}
	owner, err := etcd.Owner(ctx)
	if err != nil {
		facts.Quorum, facts.Trouble = false, plan.Cause(err)
		return facts
	}
	facts.Owner, facts.OtherOwner = ownership(owner, identity)
	return facts
}

// AskAccess returns facts about the users of etcd, by a client of RootUser.
func AskAccess(ctx context.Context, etcd Etcd, want coordination.Access) plan.Access {
	ctx, cancel := context.WithTimeout(ctx, etcdTimeout)
	defer cancel()
	state, err := etcd.Access(ctx, want)
	if err != nil {
		return plan.Access{Trouble: plan.Cause(err)}
	}
	return plan.Access{Known: true, Enabled: state.Enabled, Lacks: strings.Join(state.Lacks, ", ")}
}

// Identity returns the value of the key "owner" for a Broker.
func Identity(namespace, name, uid string) string {
	return fmt.Sprintf("%s/%s/%s", namespace, name, uid)
}

// ownership compares the owner of the keys with the identity of a Broker. The uid may differ: a
// managed etcd may be on retained volumes of a deleted Broker of the same name, which this one
// takes over.
func ownership(owner, identity string) (plan.Ownership, string) {
	switch name := identity[:strings.LastIndexByte(identity, '/')+1]; {
	case owner == "":
		return plan.OwnerNobody, ""
	case owner == identity || strings.HasPrefix(owner, name):
		return plan.OwnerOurs, ""
	}
	return plan.OwnerOther, owner
}

// Ours reports whether keys with that owner belong to the Broker with that identity.
func Ours(owner, identity string) bool {
	whose, _ := ownership(owner, identity)
	return whose == plan.OwnerOurs
}
