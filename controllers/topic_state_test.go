package controllers_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/discovery"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/carillon-mq/carillon/api/v1alpha1"
	"github.com/carillon-mq/carillon/broker/coordination"
	"github.com/carillon-mq/carillon/controllers"
	"github.com/carillon-mq/carillon/controllers/observe"
)

// TestOlderManifestKeepsTheSubject: of two manifests with one subject the older is served,
// whichever was first in etcd, unless the younger one has records.
func TestOlderManifestKeepsTheSubject(t *testing.T) {
	w, f, _ := newServingWorld(t, "main-0")
	w.apply("Topic", "first", `{brokerRef: {name: main}, subjects: ["a.>"]}`)
	w.untilTopic("first", "Served")
	w.nextSecond()
	w.apply("Topic", "second", `{brokerRef: {name: main}, subjects: ["a.b", "b.>"]}`)
	w.untilTopicSays("second", "SubjectsTaken", "subject a.b overlaps with a.> of Topic "+w.namespace+"/first, which is older")
	w.wantEvent("SubjectsTaken", "which is older")
	if f.topic("second") != nil {
		t.Error("the younger is in etcd")
	}
	w.patch(&v1alpha1.Topic{}, "first", `{"spec": {"subjects": ["a.c.>"]}}`)
	second := w.untilTopic("second", "Served")
	w.untilTopic("first", "Served")

	// The older one adds a subject: the younger has no records, and gives it up.
	w.patch(&v1alpha1.Topic{}, "first", `{"spec": {"subjects": ["a.>"]}}`)
	w.untilTopic("first", "Served")
	gaveWay := w.untilTopic("second", "SubjectsTaken")
	if gaveWay.Status.ID != second.Status.ID || f.topic("second") == nil {
		t.Errorf("the Topic that gave way went: %+v", gaveWay.Status)
	}
	w.remove(&v1alpha1.Topic{}, "first")
	f.until("the older one to be an orphan", func() bool { return !f.topic("first").Owner.Orphaned.IsZero() })
	w.untilTopicSays("second", "SubjectsTaken", "belongs to the manifest "+w.namespace+"/first, which is gone")
	if err := f.keys.DeleteTopic(t.Context(), "first", "", clientOwner); err != nil {
		t.Fatal(err)
	}
	if back := w.untilTopic("second", "Served"); back.Status.ID != second.Status.ID || len(back.Status.Subjects) != 2 {
		t.Errorf("with its subjects back the Topic is %+v", back.Status)
	}

	// With records it keeps the subject, and the older one reports that.
	f.count("second", counted{messages: 1})
	w.nextSecond()
	w.apply("Topic", "third", `{brokerRef: {name: main}, subjects: ["c.>"]}`)
	w.untilTopic("third", "Served")
	f.count("third", counted{messages: 1})
	w.patch(&v1alpha1.Topic{}, "second", `{"spec": {"subjects": ["a.b", "b.>", "c.d"]}}`)
	w.untilTopicSays("second", "SubjectsTaken", "subject c.d overlaps with c.> of topic third, which belongs to the manifest "+w.namespace+"/third and was there first")
	w.untilTopic("third", "Served")
	if spec := f.topic("second").Spec; len(spec.Subjects) != 2 {
		t.Errorf("what it was refused it has all the same: %v", spec.Subjects)
	}
}

// nextSecond waits for the next second, since creation times have a resolution of one.
func (w *world) nextSecond() {
	w.t.Helper()
	begun := time.Now().Truncate(time.Second)
	eventually.For(w.t, "waiting for the next second", func(context.Context) error {
		if time.Now().Truncate(time.Second).Equal(begun) {
			return fmt.Errorf("it is still %v", begun)
		}
		return nil
	})
}

func TestATopicReportsThatItsBrokerIsAway(t *testing.T) {
	w, f, members := newServingWorld(t, "main-0")
	w.apply("Topic", "orders", `{brokerRef: {name: main}}`)
	w.apply("Subscription", "billing", `{topicRef: {name: orders}}`)
	w.untilTopic("orders", "Served")
	w.untilSubscription("billing", "Served")
	// An operator that is stopped after the status may not have written the event.
	eventually.For(t, "waiting for the event", func(context.Context) error { return w.countEvents("Topic", "Served", 1) })
	members["main-0"].stop()
	w.wantEvent("BrokerAway", "main-0")
	for range 2 {
		w.untilTopicSays("orders", "BrokerAway", "on broker main-0 alone, which is away")
		w.untilSubscription("billing", "BrokerAway")
		// An operator that has never seen that broker knows its name from the status.
		w.restartOperator(func(*controllers.Options) {})
		w.quiet()
	}
	f.start("main-0")
	w.untilTopic("orders", "Served")
	w.untilSubscription("billing", "Served")
	eventually.For(t, "waiting for the events", func(context.Context) error { return w.countEvents("Topic", "Served", 2) })
}

// TestOperatorThatStartsWithoutEtcd: an operator that starts while etcd is unreachable keeps former
// statuses, since brokers go on serving, and reports what it can't do.
func TestOperatorThatStartsWithoutEtcd(t *testing.T) {
	w, f, _ := newServingWorld(t, "main-0")
	w.apply("Topic", "orders", `{brokerRef: {name: main}}`)
	w.apply("Subscription", "billing", `{topicRef: {name: orders}}`)
	w.untilTopic("orders", "Served")
	w.untilSubscription("billing", "Served")
	// Events are written after the status, and not by an operator that was stopped before.
	eventually.For(t, "waiting for the event", func(context.Context) error { return w.countEvents("Subscription", "Served", 1) })
	var away atomic.Bool
	away.Store(true)
	with := w.options.OpenEtcd
	w.restartOperator(func(o *controllers.Options) {
		o.OpenEtcd = func(cluster string, endpoints []string, ca, cert, key []byte) (observe.Etcd, error) {
			etcd, err := with(cluster, endpoints, ca, cert, key)
			return &etcdThatMayBeAway{etcd, &away}, err
		}
	})
	w.until(v1alpha1.ConditionReady, metav1.ConditionFalse, "CoordinationUnavailable")
	w.apply("Topic", "more", `{brokerRef: {name: main}}`)
	w.untilTopicSays("more", "WaitingForBroker", "not ready yet: CoordinationUnavailable")
	w.untilTopic("orders", "Served")
	w.untilSubscription("billing", "Served")
	away.Store(false)
	w.untilTopic("more", "Served")
	if f.topic("more") == nil {
		t.Error("the new Topic is not in etcd")
	}
	if err := w.countEvents("Subscription", "Served", 1); err != nil {
		t.Error(err)
	}
}

// TestOneWayToEtcdForEachBroker: each Broker has one open etcd client, with a certificate of the
// present CA. It is closed with the Broker.
func TestOneWayToEtcdForEachBroker(t *testing.T) {
	w, _, _ := newServingWorld(t, "main-0")
	var mu sync.Mutex
	open := map[*etcdThatIsCounted]string{} // by client: the CA that it trusts
	with := w.options.OpenEtcd
	w.restartOperator(func(o *controllers.Options) {
		o.OpenEtcd = func(cluster string, endpoints []string, ca, cert, key []byte) (observe.Etcd, error) {
			etcd, err := with(cluster, endpoints, ca, cert, key)
			if err != nil {
				return nil, err
			}
			counted := &etcdThatIsCounted{Etcd: etcd}
			counted.closed = func() { mu.Lock(); defer mu.Unlock(); delete(open, counted) }
			mu.Lock()
			defer mu.Unlock()
			open[counted] = string(ca)
			return counted, nil
		}
	})
	only := func(trusts string) {
		t.Helper()
		eventually.For(t, "waiting for one way to etcd", func(context.Context) error {
			mu.Lock()
			defer mu.Unlock()
			for _, ca := range open {
				if len(open) == 1 && strings.Contains(ca, strings.TrimSpace(trusts)) {
					return nil
				}
			}
			return fmt.Errorf("%d are open", len(open))
		})
	}
	authority := &corev1.Secret{}
	if err := w.get("main-ca", authority); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		w.apply("Topic", "t"+fmt.Sprint(time.Now().UnixNano()), `{brokerRef: {name: main}}`)
	}
	only("")
	former, removed := string(authority.Data["etcd-tls.crt"]), types.UID("")
	eventually.For(t, "waiting for another CA", func(context.Context) error {
		if err := w.get("main-ca", authority); err != nil {
			return err
		}
		if string(authority.Data["etcd-tls.crt"]) != former {
			return nil
		}
		// An apply that was under way when the Secret was deleted may restore the former one.
		if authority.UID != removed {
			removed = authority.UID
			w.remove(&corev1.Secret{}, "main-ca")
		}
		return errors.New("it is the former one")
	})
	only(string(authority.Data["etcd-tls.crt"]))
	w.apply("Topic", "orders", `{brokerRef: {name: main}}`)
	w.untilTopic("orders", "Served")

	w.remove(&v1alpha1.Broker{}, "main")
	eventually.For(t, "waiting for the way to etcd to be closed", func(context.Context) error {
		mu.Lock()
		defer mu.Unlock()
		if n := len(open); n > 0 {
			return fmt.Errorf("%d are open", n)
		}
		return nil
	})
}

type etcdThatIsCounted struct {
	observe.Etcd
	closed func()
}

func (e *etcdThatIsCounted) Close() error {
	e.closed()
	return e.Etcd.Close()
}

// etcdThatMayBeAway returns errors while it is away.
type etcdThatMayBeAway struct {
	observe.Etcd
	away *atomic.Bool
}

func (e *etcdThatMayBeAway) Owner(ctx context.Context) (string, error) {
	if e.away.Load() {
		return "", errors.New("get owner: etcd is away")
	}
	return e.Etcd.Owner(ctx)
}

func (e *etcdThatMayBeAway) Health(ctx context.Context) coordination.Health {
	health := e.Etcd.Health(ctx)
	if e.away.Load() {
		health.Err = errors.New("list coordinators: etcd is away")
	}
	return health
}

func TestUnsupportedSpecsAreReported(t *testing.T) {
	w, f, members := newServingWorld(t, "main-0")
	w.apply("Topic", "orders", `{brokerRef: {name: main}}`)
	w.untilTopic("orders", "Served") // so the operator knows the broker and its features
	for name, c := range map[string]struct{ spec, reason, says string }{
		"quorum":  {`{brokerRef: {name: main}, minInSync: 2}`, "Invalid", "raise its spec.replicas, or write minInSync: 1"},
		"parts":   {`{brokerRef: {name: main}, shards: 65}`, "ShardsUnsupported", "apply it with shards: 64"},
		"history": {`{brokerRef: {name: main}, retention: {messagesPerSubject: 2}}`, "LimitUnsupported", "broker main-0 is of a version without limits per subject"},
		"mailed":  {`{brokerRef: {name: main}, schedules: Allowed}`, "SettingUnsupported", "broker main-0 is of a version without schedules"},
		"circle":  {`{brokerRef: {name: main}, republish: {source: "circle.>", destination: "circle.>"}}`, "Invalid", "each message would come back for ever"},
		"doubled": {`{brokerRef: {name: main}, subjects: ["x.>", "x.y"]}`, "Invalid", "overlap"},
	} {
		w.apply("Topic", name, c.spec)
		w.untilTopicSays(name, c.reason, c.says)
		if f.topic(name) != nil {
			t.Errorf("%s is in etcd", name)
		}
	}
	w.apply("Topic", "wide", `{brokerRef: {name: main}, shards: 4, partitionBy: Tokens, partitionTokens: [2]}`)
	w.untilTopic("wide", "Served")
	if wide := f.topic("wide"); wide == nil || wide.Spec.Shards != 4 || wide.Spec.PartitionBy != coordination.ByTokens {
		t.Errorf("of four shards, in etcd there is %+v", wide)
	}
	w.apply("Topic", "alias", `{brokerRef: {name: main}, name: orders}`)
	for name, c := range map[string]struct{ spec, reason string }{
		"pushed":  {`{topicRef: {name: orders}, delivery: {push: {serviceRef: {name: billing}}}}`, "PushUnsupported"},
		"dead":    {`{topicRef: {name: orders}, ack: {maxDeliver: 2}, deadLetter: {topicRef: {name: wide}}}`, "DeadLetterUnsupported"},
		"mirror":  {`{topicRef: {name: orders}, ack: {maxDeliver: 2}, deadLetter: {topicRef: {name: alias}}}`, "Invalid"},
		"chosen":  {`{topicRef: {name: orders}, filter: {where: "json.a == 1"}}`, "FilterUnsupported"},
		"nowhere": {`{topicRef: {name: lost}}`, "TopicMissing"},
		"early":   {`{topicRef: {name: parts}}`, "WaitingForTopic"},
	} {
		w.apply("Subscription", name, c.spec)
		w.untilSubscription(name, c.reason)
	}
	// When the spec asks for something impossible, the Topic stays served as before.
	w.patch(&v1alpha1.Topic{}, "orders", `{"spec": {"minInSync": 2, "compaction": "Latest"}}`)
	w.untilTopicSays("orders", "Invalid", "until then the Topic is served as it was before")
	if orders := f.topic("orders"); orders == nil || orders.Spec.Compaction == coordination.LatestOnly {
		t.Errorf("in etcd there is %+v", orders)
	}
	// Once the broker runs this version, it serves a limit per subject.
	members["main-0"].stop()
	f.features = coordination.Features()
	f.start("main-0")
	w.untilTopic("history", "Served")
	if history := f.topic("history"); history == nil || history.Spec.Stream.MaxPerSubject != 2 {
		t.Errorf("of two messages of each subject, in etcd there is %+v", history)
	}
	w.untilTopic("mailed", "Served")
	if mailed := f.topic("mailed"); mailed == nil || !mailed.Spec.Stream.AllowSchedules {
		t.Errorf("with schedules, in etcd there is %+v", mailed)
	}
	// Sources may lead to a Topic that comes later, and not back.
	w.apply("Topic", "first", `{brokerRef: {name: main}, sources: [{topic: second}]}`)
	w.untilTopic("first", "Served")
	w.apply("Topic", "second", `{brokerRef: {name: main}, sources: [{topic: first}]}`)
	w.untilTopicSays("second", "SourceCycle", "its sources lead back to it")
	w.apply("Topic", "narrow", `{brokerRef: {name: main}, mirror: {topic: wide}}`)
	w.untilTopicSays("narrow", "Invalid", "the mirror has 1 shard, and wide, which it mirrors, has 4")
	w.apply("Topic", "fitting", `{brokerRef: {name: main}, mirror: {topic: wide}, shards: 4, partitionBy: Tokens, partitionTokens: [2]}`)
	w.untilTopic("fitting", "Served")
	w.apply("Topic", "gathered", `{brokerRef: {name: main}, sources: [{topic: wide}], shards: 2}`)
	w.untilTopic("gathered", "Served")
	// And it judges by conditions.
	w.untilSubscription("chosen", "Served")
	if chosen := f.subscription("orders", "chosen"); chosen == nil || chosen.Spec.Where != "json.a == 1" {
		t.Errorf("of a condition, in etcd there is %+v", chosen)
	}
	w.apply("Subscription", "mistaken", `{topicRef: {name: orders}, filter: {where: "json.a =="}}`)
	w.untilSubscription("mistaken", "Invalid")
	// And it pushes.
	w.untilSubscription("pushed", "Served")
	pushed := f.subscription("orders", "pushed")
	if pushed == nil || pushed.Spec.Push == nil || pushed.Spec.Push.URL != "http://billing."+w.namespace+".svc/" || pushed.Spec.Push.Timeout != 10*time.Second {
		t.Errorf("of an endpoint, in etcd there is %+v", pushed)
	}
}

func TestNumbersAndTroubleReachTheStatus(t *testing.T) {
	w, f, members := newServingWorld(t, "main-0")
	w.apply("Topic", "orders", `{brokerRef: {name: main}}`)
	w.apply("Subscription", "billing", `{topicRef: {name: orders}}`)
	w.untilTopic("orders", "Served")
	w.untilSubscription("billing", "Served")
	w.restartOperator(func(o *controllers.Options) { o.PollInterval = 300 * time.Millisecond })
	f.count("orders", counted{messages: 7, bytes: 700, lag: 5})
	eventually.For(t, "waiting for the numbers", func(context.Context) error {
		topic, s := w.untilTopic("orders", "Served").Status, w.untilSubscription("billing", "Served").Status
		if topic.Messages != 7 || topic.Bytes != 700 || s.Lag != 5 || s.Pending != 1 {
			return fmt.Errorf("the Topic has %d messages in %d bytes, the Subscription a lag of %d and %d pending", topic.Messages, topic.Bytes, s.Lag, s.Pending)
		}
		return nil
	})
	// The numbers of several shards are added up.
	w.apply("Topic", "wide", `{brokerRef: {name: main}, shards: 4}`)
	w.untilTopic("wide", "Served")
	f.count("wide", counted{messages: 5, bytes: 50})
	eventually.For(t, "waiting for the numbers of all shards", func(context.Context) error {
		if topic := w.untilTopic("wide", "Served").Status; topic.Messages != 20 || topic.Bytes != 200 {
			return fmt.Errorf("the Topic has %d messages in %d bytes", topic.Messages, topic.Bytes)
		}
		return nil
	})
	// Dead letters that are not stored are a condition and one event, and Ready stays.
	for _, trouble := range []string{"topic orders-dead is full", "topic orders-dead is still full", ""} {
		f.count("orders", counted{messages: 7, bytes: 700, lag: 5, dead: trouble})
		eventually.For(t, "waiting for the condition of dead letters", func(context.Context) error {
			s := w.untilSubscription("billing", "Served").Status
			c := meta.FindStatusCondition(s.Conditions, v1alpha1.ConditionDeadLettersRefused)
			if s.DeadLettered != 2 || (c != nil) != (trouble != "") || c != nil && !strings.Contains(c.Message, trouble) {
				return fmt.Errorf("with %q: %+v", trouble, s)
			}
			return nil
		})
	}
	eventually.For(t, "waiting for the event", func(context.Context) error { return w.countEvents("Subscription", "NotStored", 1) })
	// So is that retention is about to delete what was not acknowledged.
	for _, why := range []string{"deleted in 5m0s", ""} {
		f.count("orders", counted{messages: 7, bytes: 700, lag: 5, endangered: why})
		eventually.For(t, "waiting for the condition of retention", func(context.Context) error {
			s := w.untilSubscription("billing", "Served").Status
			c := meta.FindStatusCondition(s.Conditions, v1alpha1.ConditionFallingBehind)
			if (c != nil) != (why != "") || c != nil && !strings.Contains(c.Message, why) {
				return fmt.Errorf("with %q: %+v", why, s)
			}
			return nil
		})
	}
	eventually.For(t, "waiting for the event", func(context.Context) error { return w.countEvents("Subscription", "DeletedSoon", 1) })
	// So is an endpoint that is not reached.
	for _, why := range []string{"connection refused", ""} {
		f.count("orders", counted{messages: 7, bytes: 700, lag: 5, endpoint: why})
		eventually.For(t, "waiting for the condition of the endpoint", func(context.Context) error {
			s := w.untilSubscription("billing", "Served").Status
			c := meta.FindStatusCondition(s.Conditions, v1alpha1.ConditionEndpointUnreached)
			if (c != nil) != (why != "") || c != nil && (c.Message != why || c.Reason != "Unreachable") {
				return fmt.Errorf("with %q: %+v", why, s)
			}
			return nil
		})
	}
	eventually.For(t, "waiting for the event", func(context.Context) error { return w.countEvents("Subscription", "Unreachable", 1) })
	// Equal numbers in further polls cost no write.
	w.quiet()
	before := len(w.written())
	f.mu.Lock()
	asked := f.asked
	f.mu.Unlock()
	eventually.For(t, "waiting for ten more looks", func(context.Context) error {
		f.mu.Lock()
		defer f.mu.Unlock()
		if f.asked < asked+10 {
			return fmt.Errorf("%d so far", f.asked-asked)
		}
		return nil
	})
	if after := w.written(); len(after) != before {
		t.Errorf("the same numbers cost the writes %v", after[before:])
	}
	f.count("orders", counted{messages: 7, trouble: "disk /data takes no appends since write: no space left on device"})
	w.untilTopicSays("orders", "DiskFull", "broker main-0: disk /data")
	w.wantEvent("DiskFull", "no space left")
	// A restarted operator keeps the reason until it has asked.
	w.restartOperator(func(*controllers.Options) {})
	w.quiet()
	eventually.For(t, "waiting for the events", func(context.Context) error { return w.countEvents("Topic", "DiskFull", 1) })
	// A broker that does not answer changes nothing.
	f.count("orders", counted{messages: 7})
	w.untilTopic("orders", "Served")
	id := members["main-0"].id
	members["main-0"].mu.Lock()
	members["main-0"].id = "somebody else"
	members["main-0"].mu.Unlock()
	w.quiet()
	if topic := w.untilTopic("orders", "Served"); topic.Status.Messages != 7 || topic.Status.Leader.ID != id {
		t.Errorf("with no answer the status became %+v", topic.Status)
	}
}

// TestALeaderInDoubtIsReported: the election of a leader that may lack acknowledged records causes
// one event, also after a restart of the operator.
func TestALeaderInDoubtIsReported(t *testing.T) {
	w, f, members := newServingWorld(t, "main-0")
	w.apply("Topic", "orders", `{brokerRef: {name: main}}`)
	w.untilTopic("orders", "Served")
	f.mu.Lock()
	f.doubt = "LeastLoss"
	f.mu.Unlock()
	members["main-0"].stop()
	w.untilTopic("orders", "BrokerAway")
	f.start("main-0")
	w.untilTopic("orders", "Served")
	w.wantEvent("RecordsMayBeLost", "broker main-0 leads shard 0 from epoch 2 on")
	w.restartOperator(func(*controllers.Options) {})
	w.quiet()
	if err := w.countEvents("Topic", "RecordsMayBeLost", 1); err != nil {
		t.Error(err)
	}
}

// TestATerminatingDefinitionIsNotDefined: a definition that is being deleted is still listed, and
// no object can be created.
func TestATerminatingDefinitionIsNotDefined(t *testing.T) {
	crds := runtime.NewScheme()
	if err := apiextensionsv1.AddToScheme(crds); err != nil {
		t.Fatal(err)
	}
	c, err := client.New(apiServer, client.Options{Scheme: crds})
	if err != nil {
		t.Fatal(err)
	}
	groups, err := discovery.NewDiscoveryClientForConfig(apiServer)
	if err != nil {
		t.Fatal(err)
	}
	gone := observe.Gone{REST: groups.RESTClient()}
	version := schema.GroupVersion{Group: "test.carillon.dev", Version: "v1"}
	defined := func(want bool) {
		t.Helper()
		eventually.For(t, fmt.Sprintf("waiting for defined %v", want), func(ctx context.Context) error {
			if is, err := gone.Defined(ctx, version, "things"); err != nil || is != want {
				return fmt.Errorf("it is %v, %v", is, err)
			}
			return nil
		})
	}
	defined(false)
	any := true
	crd := &apiextensionsv1.CustomResourceDefinition{
		ObjectMeta: metav1.ObjectMeta{Name: "things.test.carillon.dev"},
		Spec: apiextensionsv1.CustomResourceDefinitionSpec{
			Group: version.Group, Scope: apiextensionsv1.NamespaceScoped,
			Names: apiextensionsv1.CustomResourceDefinitionNames{Plural: "things", Kind: "Thing"},
			Versions: []apiextensionsv1.CustomResourceDefinitionVersion{{Name: "v1", Served: true, Storage: true, Schema: &apiextensionsv1.CustomResourceValidation{
				OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{Type: "object", XPreserveUnknownFields: &any},
			}}},
		},
	}
	if err := c.Create(t.Context(), crd); err != nil {
		t.Fatal(err)
	}
	defined(true)
	thing := &unstructured.Unstructured{}
	thing.SetGroupVersionKind(version.WithKind("Thing"))
	thing.SetNamespace(newNamespace(t))
	thing.SetName("held")
	thing.SetFinalizers([]string{"test.carillon.dev/held"})
	eventually.For(t, "making a thing", func(ctx context.Context) error { return c.Create(ctx, thing) })
	if err := c.Delete(t.Context(), crd); err != nil {
		t.Fatal(err)
	}
	defined(false)
	// It is still readable.
	if err := c.Get(t.Context(), client.ObjectKeyFromObject(thing), thing); err != nil {
		t.Errorf("while its definition goes, the thing: %v", err)
	}
	eventually.For(t, "letting the thing go", func(ctx context.Context) error {
		if err := c.Get(ctx, client.ObjectKeyFromObject(thing), thing); err != nil {
			return client.IgnoreNotFound(err)
		}
		thing.SetFinalizers(nil)
		return c.Update(ctx, thing)
	})
}
