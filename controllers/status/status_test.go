package status

import (
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/carillon-mq/carillon/api/v1alpha1"
	"github.com/carillon-mq/carillon/controllers/plan"
)

func brokerOf() *v1alpha1.Broker {
	broker := &v1alpha1.Broker{}
	broker.Namespace, broker.Name, broker.Generation = "default", "main", 4
	return broker
}

// say returns the conditions in short: "Ready=False:RollingPod".
func say(conditions []metav1.Condition) string {
	var words []string
	for _, kind := range []string{"Ready", "Reconciling", "Stalled", "UnderReplicated", "EtcdRestored", "RestartPending", "RetentionPaused", "DurabilityReduced", "UncleanElection", "AttributesRefused", "UsersInvalid", "CertificateExpiring", "Open"} {
		if c := meta.FindStatusCondition(conditions, kind); c != nil {
			words = append(words, kind+"="+string(c.Status)+":"+c.Reason)
		}
	}
	return strings.Join(words, " ")
}

func TestConditionsFollowTheOutcome(t *testing.T) {
	down := plan.Facts{WantBrokers: 2, Shards: plan.Shards{Known: true, Demanding: []string{"orders"}}, Brokers: plan.Set{Exists: true, Replicas: 3, Name: "main"}}
	held := plan.Facts{Brokers: plan.Set{Settled: true, Pods: []plan.Pod{{Name: "main-0", Ready: true, Outdated: true, Held: true, Why: "a restart"}}}}
	for what, c := range map[string]struct {
		outcome Outcome
		want    string
	}{
		"well":    {Outcome{Action: plan.Action{Kind: plan.None, Reason: plan.AllReady}}, "Ready=True:AllReady Open=True:NoAuth"},
		"at work": {Outcome{Action: plan.Action{Kind: plan.ReplacePod, Reason: plan.Rolling}}, "Ready=False:RollingPod Reconciling=True:RollingPod Open=True:NoAuth"},
		"stalled": {Outcome{Action: plan.Action{Kind: plan.Stall, Reason: plan.NameTaken}, Facts: plan.Facts{Taken: "Service main"}}, "Ready=False:NameTaken Stalled=True:NameTaken Open=True:NoAuth"},
		"fewer, while a pod is replaced": {Outcome{Action: plan.Action{Kind: plan.ReplacePod, Reason: plan.Repairing}, Facts: down},
			"Ready=False:ScaleDownBlocked Stalled=True:ScaleDownBlocked Open=True:NoAuth"},
		"refused by the storage": {Outcome{Action: plan.Action{Kind: plan.None, Reason: plan.AllReady}, Stall: &plan.Action{Kind: plan.Stall, Reason: plan.VolumeNotExpandable}},
			"Ready=False:VolumeNotExpandable Stalled=True:VolumeNotExpandable Open=True:NoAuth"},
		"on request": {Outcome{Action: plan.Action{Kind: plan.None, Reason: plan.AllReady}, Facts: held}, "Ready=True:AllReady RestartPending=True:UpdateOnRequest Open=True:NoAuth"},
	} {
		broker := brokerOf()
		got := Broker(broker, c.outcome)
		if words := say(got.Conditions); words != c.want {
			t.Errorf("%s: %s, want %s", what, words, c.want)
		}
		for _, condition := range got.Conditions {
			if condition.ObservedGeneration != 4 {
				t.Errorf("%s: %s observed generation %d, want 4", what, condition.Type, condition.ObservedGeneration)
			}
		}
		if got.ObservedGeneration != 4 {
			t.Errorf("%s: observedGeneration is %d", what, got.ObservedGeneration)
		}
		// The same outcome at a later time gives an equal status, so that nothing is written.
		broker.Status = got
		for i := range broker.Status.Conditions {
			broker.Status.Conditions[i].LastTransitionTime = metav1.NewTime(time.Now().Add(-time.Hour))
		}
		if again := Broker(broker, c.outcome); !equality.Semantic.DeepEqual(again, broker.Status) {
			t.Errorf("%s: said again, it became %+v", what, again)
		}
	}
}

func TestConditionsThatNoLongerHoldGo(t *testing.T) {
	broker := brokerOf()
	broker.Status = Broker(broker, Outcome{Action: plan.Action{Kind: plan.Stall, Reason: plan.NameTaken}, Facts: plan.Facts{Taken: "Service main"}})
	broker.Spec.Auth = &v1alpha1.AuthSpec{}
	if got := say(Broker(broker, Outcome{Action: plan.Action{Kind: plan.None, Reason: plan.AllReady}}).Conditions); got != "Ready=True:AllReady" {
		t.Errorf("%s, want Ready alone", got)
	}
}

// TestTheEndOfACertificateIsShownAsFarAsItIsKnown: a pass that failed before it looked changes
// nothing.
func TestTheEndOfACertificateIsShownAsFarAsItIsKnown(t *testing.T) {
	broker, now := brokerOf(), time.Now()
	broker.Spec.Auth = &v1alpha1.AuthSpec{}
	ends := func(after time.Duration) plan.ClientCertificates {
		return plan.ClientCertificates{Known: true, All: []plan.ClientCertificate{
			{What: "the one in Secret theirs", NotBefore: now.Add(-1000 * time.Hour), NotAfter: now.Add(after)}}}
	}
	for _, c := range []struct {
		what        string
		certificate plan.ClientCertificates
		want        string
	}{
		{"not known", plan.ClientCertificates{}, "Ready=True:AllReady"},
		{"soon", ends(time.Hour), "Ready=True:AllReady CertificateExpiring=True:CertificateExpiresSoon"},
		{"over", ends(-time.Hour), "Ready=True:AllReady CertificateExpiring=True:CertificateExpired"},
		{"not known again", plan.ClientCertificates{}, "Ready=True:AllReady CertificateExpiring=True:CertificateExpired"},
		{"renewed", ends(2000 * time.Hour), "Ready=True:AllReady"},
	} {
		outcome := Outcome{Action: plan.Action{Kind: plan.None, Reason: plan.AllReady}, Facts: plan.Facts{ClientCertificates: c.certificate}, Now: now}
		broker.Status = Broker(broker, outcome)
		if words := say(broker.Status.Conditions); words != c.want {
			t.Errorf("%s: %s, want %s", c.what, words, c.want)
		}
		outcome.Now = now.Add(time.Minute)
		if again := Broker(broker, outcome); !equality.Semantic.DeepEqual(again, broker.Status) {
			t.Errorf("%s: said again, it became %+v", c.what, again)
		}
	}
}

// TestUsersAreShownAsFarAsTheyAreKnown: what is not known since the operator's start stays as it
// was, and goes when the Broker has no such users any more.
func TestUsersAreShownAsFarAsTheyAreKnown(t *testing.T) {
	broker := brokerOf()
	broker.Spec.Auth = &v1alpha1.AuthSpec{Users: &v1alpha1.UsersSpec{}}
	for _, c := range []struct {
		what  string
		users plan.Users
		want  string
		count int32
	}{
		{"at first", plan.Users{}, "Ready=True:AllReady", -1},
		{"wrong and not written", plan.Users{Invalid: "a"}, "Ready=True:AllReady UsersInvalid=True:UsersInvalid", -1},
		{"written", plan.Users{Written: true, Count: 3, Invalid: "b"}, "Ready=True:AllReady UsersInvalid=True:UsersInvalid", 3},
		{"not known again", plan.Users{}, "Ready=True:AllReady UsersInvalid=True:UsersInvalid", 3},
		{"right", plan.Users{Written: true}, "Ready=True:AllReady", 0},
	} {
		broker.Status = Broker(broker, Outcome{Action: plan.Action{Kind: plan.None, Reason: plan.AllReady}, Facts: plan.Facts{Users: c.users}})
		count := int32(-1)
		if n := broker.Status.Users; n != nil {
			count = *n
		}
		if got := say(broker.Status.Conditions); got != c.want || count != c.count {
			t.Errorf("%s: %s and %d users, want %s and %d", c.what, got, count, c.want, c.count)
		}
	}
	broker.Spec.Auth = nil
	if got := Broker(broker, Outcome{Action: plan.Action{Kind: plan.None, Reason: plan.AllReady}}); got.Users != nil {
		t.Errorf("without users, there are %d", *got.Users)
	}
}

// TestARestoreIsReportedUntilAllCopiesAreCompared: the condition is present while copies are
// compared. The time and the number of restores stay in the status.
func TestARestoreIsReportedUntilAllCopiesAreCompared(t *testing.T) {
	broker, now := brokerOf(), time.Date(2026, 3, 1, 12, 0, 0, 5, time.UTC)
	broker.Spec.Auth = &v1alpha1.AuthSpec{}
	pass := func(shards plan.Shards) (restored bool) {
		now = now.Add(time.Minute)
		o := Outcome{Action: plan.Action{Kind: plan.None, Reason: plan.AllReady}, Facts: plan.Facts{Shards: shards}, Now: now}
		restored = Restored(broker, o)
		broker.Status = Broker(broker, o)
		return restored
	}
	expect := func(what string, restored, want bool, conditions string, generation int64, at time.Time) {
		t.Helper()
		c := broker.Status.Coordination
		if words := say(broker.Status.Conditions); restored != want || words != conditions {
			t.Errorf("%s: restored %t, %s; want %t, %s", what, restored, words, want, conditions)
		}
		if c.EtcdGeneration == nil || *c.EtcdGeneration != generation {
			t.Errorf("%s: generation %v, want %d", what, c.EtcdGeneration, generation)
		}
		if at.IsZero() != (c.RestoredAt == nil) || c.RestoredAt != nil && !c.RestoredAt.Time.Equal(at) {
			t.Errorf("%s: restored at %v, want %v", what, c.RestoredAt, at)
		}
	}
	if pass(plan.Shards{}); broker.Status.Coordination.EtcdGeneration != nil {
		t.Error("etcd was not read, and its generation is said")
	}
	expect("a Broker whose etcd was restored before there was a status", pass(plan.Shards{Known: true, Total: 2, Generation: 1}), false, "Ready=True:AllReady", 1, time.Time{})
	comparing := plan.Shards{Known: true, Total: 2, Generation: 2, Uncompared: 1, UncomparedExample: "orders"}
	restored := pass(comparing)
	at := now.Truncate(time.Second)
	expect("etcd is restored", restored, true, "Ready=True:AllReady EtcdRestored=True:ComparingCopies", 2, at)
	expect("the same again", pass(comparing), false, "Ready=True:AllReady EtcdRestored=True:ComparingCopies", 2, at)
	if c := meta.FindStatusCondition(broker.Status.Conditions, "EtcdRestored"); c == nil || !strings.Contains(c.Message, "1 of 2 shards") || !strings.Contains(c.Message, "orders") {
		t.Errorf("it says %+v", c)
	}
	expect("etcd is away", pass(plan.Shards{}), false, "Ready=True:AllReady EtcdRestored=True:ComparingCopies", 2, at)
	expect("all is compared", pass(plan.Shards{Known: true, Total: 2, Generation: 2}), false, "Ready=True:AllReady", 2, at)
	expect("etcd shows the backup before the generation is raised", pass(plan.Shards{Known: true, Total: 2}), false, "Ready=True:AllReady", 2, at)
}

// TestTheEndpointBecomesTLSWhenAllPodsHaveIt: clients that read it reach every pod, also while some
// are replaced, or wait for a person.
func TestTheEndpointBecomesTLSWhenAllPodsHaveIt(t *testing.T) {
	const plain, secure = "nats://main.default.svc:4222", "tls://main.default.svc:4222"
	well := Outcome{Action: plan.Action{Kind: plan.None, Reason: plan.AllReady}}
	rolling := Outcome{Action: plan.Action{Kind: plan.ReplacePod, Reason: plan.Rolling}}
	held := well
	held.Facts.Brokers = plan.Set{Settled: true, Pods: []plan.Pod{{Name: "main-0", Ready: true, Outdated: true, Held: true, Why: "flag --client-tls is new"}}}
	required := &v1alpha1.ClientTLSSpec{Mode: v1alpha1.TLSRequired}
	broker := brokerOf()
	for _, step := range []struct {
		what    string
		tls     *v1alpha1.ClientTLSSpec
		outcome Outcome
		want    string
	}{
		{"without TLS", nil, well, plain},
		{"the set is written", required, Outcome{Action: plan.Action{Kind: plan.Wait, Reason: plan.Applying}}, plain},
		{"pods wait for a person", required, held, plain},
		{"pods are replaced", required, rolling, plain},
		{"all pods have TLS", required, well, secure},
		{"pods are replaced for something else", required, rolling, secure},
		{"TLS goes", nil, rolling, plain},
	} {
		broker.Spec.TLS = step.tls
		broker.Status = Broker(broker, step.outcome)
		if got := broker.Status.Endpoint; got != step.want {
			t.Errorf("%s: the endpoint is %s, want %s", step.what, got, step.want)
		}
	}
	made := brokerOf()
	made.Spec.TLS = required
	if got := Broker(made, rolling).Endpoint; got != secure {
		t.Errorf("the endpoint of a new Broker is %s, want %s", got, secure)
	}
}

// TestClientCertificatesCloseABroker: whoever has none is refused, so a Broker that asks for them
// is not open, with or without a user; TLS alone refuses nobody.
func TestClientCertificatesCloseABroker(t *testing.T) {
	well := Outcome{Action: plan.Action{Kind: plan.None, Reason: plan.AllReady}}
	broker := brokerOf()
	broker.Spec.TLS = &v1alpha1.ClientTLSSpec{Mode: v1alpha1.TLSRequired}
	status := Broker(broker, well)
	open := meta.FindStatusCondition(status.Conditions, v1alpha1.ConditionOpen)
	if status.Endpoint != "tls://main.default.svc:4222" || open == nil || !strings.Contains(open.Message, status.Endpoint) {
		t.Errorf("with TLS the endpoint is %s, and Open says %+v", status.Endpoint, open)
	}
	broker.Spec.TLS.ClientCertificates = &v1alpha1.ClientCertificatesSpec{}
	if got := say(Broker(broker, well).Conditions); got != "Ready=True:AllReady" {
		t.Errorf("with client certificates: %s, want Ready alone", got)
	}
}
