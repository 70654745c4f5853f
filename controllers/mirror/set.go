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

// The fields that manifests are found by, in the cache.
const (
	FieldBroker = "spec.brokerRef.name"
	FieldTopic  = "spec.topicRef.name"
)

// listTimeout bounds a listing, which the cache answers from memory.
const listTimeout = 10 * time.Second

// brokerDelay gathers changes of shards into one pass over the Broker: the death of one broker can
// change thousands.
const brokerDelay = time.Second

// Set is the mirrors of all Brokers, and the way from what they see to the manifests.
type Set struct {
	Topics        Feed
	Subscriptions Feed
	Brokers       Feed

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

// entry is a mirror with what it was opened with.
type entry struct {
	*Mirror
	key string // of what it was opened with; another one asks for another mirror
	due time.Time
}

// NewSet makes a set without mirrors. cache finds manifests by the fields above; interval is how
// often brokers are asked for their numbers.
func NewSet(cache client.Reader, log *slog.Logger, interval time.Duration) *Set {
	ctx, stop := context.WithCancel(context.Background())
	return &Set{Brokers: Feed{Delay: brokerDelay}, cache: cache, log: log, interval: interval, ctx: ctx, stop: stop, mirrors: map[types.NamespacedName]*entry{}, waiting: map[types.NamespacedName]bool{}}
}

// Start lets the mirrors be until ctx ends, and then ends them all.
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

// NeedLeaderElection: only who acts follows.
func (s *Set) NeedLeaderElection() bool { return true }

// Of is the mirror of a Broker; nil: there is none.
func (s *Set) Of(broker types.NamespacedName) *Mirror {
	s.mu.Lock()
	defer s.mu.Unlock()
	if e := s.mirrors[broker]; e != nil {
		return e.Mirror
	}
	return nil
}

// In are the mirrors of all Brokers of a namespace that know what etcd holds.
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

// Link says how far the way to a Broker's coordination goes. broker is nil if there is no such
// Broker, or it is being deleted.
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

// Holds says that a status is to stay as it is: what was found out about this generation, while the
// same Broker was there, is the last that is known until etcd can be read again. An operator that
// starts while etcd is away is no reason to call anything unwell that brokers go on serving.
func Holds(conditions []metav1.Condition, generation int64, link plan.Link, broker *v1alpha1.Broker) bool {
	ready := meta.FindStatusCondition(conditions, v1alpha1.ConditionReady)
	if link.Known || broker == nil || ready == nil || ready.ObservedGeneration != generation || ready.LastTransitionTime.Before(&broker.CreationTimestamp) {
		return false
	}
	switch plan.Reason(ready.Reason) {
	case plan.WaitingForBroker, plan.CoordinationUnavailable, plan.TopicMissing, plan.WaitingForTopic, plan.Placing:
		return false // what these wait for is what is said of them
	}
	return true
}

func (s *Set) teller() teller {
	return teller{
		topic:        s.Topics.Add,
		broker:       s.Brokers.Add,
		subscription: s.Subscriptions.Add,
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

// Await notes that a manifest of a Topic waits for a name or a subject that is somebody else's, or
// may be about to, or does not. It is noted before the attempt, so that whatever is let go after
// that is told.
func (s *Set) Await(manifest types.NamespacedName, waits bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if waits {
		s.waiting[manifest] = true
	} else {
		delete(s.waiting, manifest)
	}
}

// TellWaiting tells those manifests of a namespace.
func (s *Set) TellWaiting(namespace string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for manifest := range s.waiting {
		if manifest.Namespace == namespace {
			s.Topics.Add(manifest)
		}
	}
}

// eachTopic walks over the Topics that refer to a Broker.
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

// TellReaders tells the Subscriptions that refer to a Topic.
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
}
