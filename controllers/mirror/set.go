package mirror

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/carillon-mq/carillon/api/v1alpha1"
	"github.com/carillon-mq/carillon/controllers/plan"
)

// The index fields of manifests in the cache.
const (
	FieldBroker = "spec.brokerRef.name"
	FieldTopic  = "spec.topicRef.name"
)

// listTimeout bounds a listing, which the cache answers from memory.
const listTimeout = 10 * time.Second

// brokerDelay gathers changes of shards into one pass over the Broker: the death of one broker may
// change thousands of shards.
const brokerDelay = time.Second

// Set holds the mirrors of all Brokers, and triggers passes over the manifests that their changes
// affect.
type Set struct {
	Topics        Feed
	Subscriptions Feed
	Views         Feed
	Brokers       Feed
	Users         Feed

	cache    client.Reader
	log      *slog.Logger
	interval time.Duration

	ctx  context.Context
	stop context.CancelFunc

	mu      sync.Mutex
	closed  bool
	mirrors map[types.NamespacedName]*entry
	waiting map[types.NamespacedName]bool
}

// entry is a mirror and the key of its settings.
type entry struct {
	*Mirror
	key string // of the settings it was opened with; another key requires another mirror
	due time.Time
}

// NewSet returns a set without mirrors. cache has the index fields above; interval is that of polls
// of the brokers.
func NewSet(cache client.Reader, log *slog.Logger, interval time.Duration) *Set {
	ctx, stop := context.WithCancel(context.Background())
	return &Set{Brokers: Feed{Delay: brokerDelay}, cache: cache, log: log, interval: interval, ctx: ctx, stop: stop, mirrors: map[types.NamespacedName]*entry{}, waiting: map[types.NamespacedName]bool{}}
}

// Start waits until ctx ends, and then closes all mirrors.
func (s *Set) Start(ctx context.Context) error {
	<-ctx.Done()
	s.stop()
	s.mu.Lock()
	s.closed = true
	left := s.mirrors
	s.mirrors = map[types.NamespacedName]*entry{}
	s.mu.Unlock()
	for _, e := range left {
		e.close()
	}
	return nil
}

// NeedLeaderElection returns true: only the acting operator follows etcd.
func (s *Set) NeedLeaderElection() bool { return true }

// Of returns the mirror of a Broker; nil: none.
func (s *Set) Of(broker types.NamespacedName) *Mirror {
	s.mu.Lock()
	defer s.mu.Unlock()
	if e := s.mirrors[broker]; e != nil {
		return e.Mirror
	}
	return nil
}

// In returns the mirrors of all Brokers of a namespace that know the content of etcd.
func (s *Set) In(namespace string) (mirrors []*Mirror) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for broker, e := range s.mirrors {
		if broker.Namespace == namespace && e.State() != nil {
			mirrors = append(mirrors, e.Mirror)
		}
	}
	return mirrors
}

// Link returns facts about the Broker that a manifest refers to, and its mirror. broker is nil if
// it does not exist or is being deleted.
func (s *Set) Link(name types.NamespacedName, broker *v1alpha1.Broker) (plan.Link, *Mirror) {
	link := plan.Link{Broker: name.Name, Exists: broker != nil}
	if broker == nil {
		return link, nil
	}
	if broker.Spec.Replicas != nil {
		link.Wanted = int(*broker.Spec.Replicas)
	}
	if ready := meta.FindStatusCondition(broker.Status.Conditions, v1alpha1.ConditionReady); ready != nil {
		link.Ready, link.Why = ready.Status == metav1.ConditionTrue, ready.Reason
	}
	m := s.Of(name)
	if m == nil || m.UID != broker.UID {
		return link, nil
	}
	if state := m.State(); state != nil {
		link.Known, link.Joined = true, len(state.Brokers)
		return link, m
	}
	if link.Ready {
		link.Why = m.Trouble()
	}
	return link, nil
}

// Holds reports whether a status stays unchanged until etcd can be read: it is of this generation
// and of the same Broker. So an operator that starts while etcd is unreachable does not report
// served Topics as not ready.
func Holds(conditions []metav1.Condition, generation int64, link plan.Link, broker *v1alpha1.Broker) bool {
	ready := meta.FindStatusCondition(conditions, v1alpha1.ConditionReady)
	if link.Known || broker == nil || ready == nil || ready.ObservedGeneration != generation || ready.LastTransitionTime.Before(&broker.CreationTimestamp) {
		return false
	}
	switch plan.Reason(ready.Reason) {
	case plan.WaitingForBroker, plan.CoordinationUnavailable, plan.TopicMissing, plan.WaitingForTopic, plan.Placing:
		return false // the reason of a waiting manifest is current
	}
	return true
}

func (s *Set) teller() teller {
	return teller{
		topic:        s.Topics.Add,
		broker:       s.Brokers.Add,
		users:        s.Users.Add,
		subscription: s.Subscriptions.Add,
		view:         s.Views.Add,
		referring: func(ctx context.Context, broker types.NamespacedName) {
			s.eachTopic(ctx, broker, func(t *v1alpha1.Topic) {
				s.Topics.Add(client.ObjectKeyFromObject(t))
				s.TellReaders(ctx, client.ObjectKeyFromObject(t))
			})
		},
		waiting: s.TellWaiting,
		readers: s.TellReaders,
	}
}

// Await records whether a manifest of a Topic waits for a name or a subject that somebody else has,
// or may be about to. It is called before the attempt, so that a name or subject that becomes
// available after it triggers a pass.
func (s *Set) Await(manifest types.NamespacedName, waits bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if waits {
		s.waiting[manifest] = true
	} else {
		delete(s.waiting, manifest)
	}
}

// TellWaiting triggers passes over those manifests of a namespace.
func (s *Set) TellWaiting(namespace string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for manifest := range s.waiting {
		if manifest.Namespace == namespace {
			s.Topics.Add(manifest)
		}
	}
}

// eachTopic calls each for the Topics that refer to a Broker.
func (s *Set) eachTopic(ctx context.Context, broker types.NamespacedName, each func(*v1alpha1.Topic)) {
	ctx, cancel := context.WithTimeout(ctx, listTimeout)
	defer cancel()
	topics := &v1alpha1.TopicList{}
	if err := s.cache.List(ctx, topics, client.InNamespace(broker.Namespace), client.MatchingFields{FieldBroker: broker.Name}); err != nil {
		s.log.Warn("Listing the Topics of a Broker failed", "broker", broker, "error", err)
		return
	}
	for i := range topics.Items {
		each(&topics.Items[i])
	}
}

// TellReaders triggers passes over the Subscriptions and Views that refer to a Topic.
func (s *Set) TellReaders(ctx context.Context, topic types.NamespacedName) {
	ctx, cancel := context.WithTimeout(ctx, listTimeout)
	defer cancel()
	subscriptions := &v1alpha1.SubscriptionList{}
	if err := s.cache.List(ctx, subscriptions, client.InNamespace(topic.Namespace), client.MatchingFields{FieldTopic: topic.Name}); err != nil {
		s.log.Warn("Listing the Subscriptions of a Topic failed", "topic", topic, "error", err)
		return
	}
	for i := range subscriptions.Items {
		s.Subscriptions.Add(client.ObjectKeyFromObject(&subscriptions.Items[i]))
	}
	views := &v1alpha1.ViewList{}
	if err := s.cache.List(ctx, views, client.InNamespace(topic.Namespace), client.MatchingFields{FieldTopic: topic.Name}); err != nil {
		s.log.Warn("Listing the Views of a Topic failed", "topic", topic, "error", err)
		return
	}
	for i := range views.Items {
		s.Views.Add(client.ObjectKeyFromObject(&views.Items[i]))
	}
}
