package status

import (
	"fmt"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/carillon-mq/carillon/api/v1alpha1"
	"github.com/carillon-mq/carillon/controllers/build"
	"github.com/carillon-mq/carillon/controllers/plan"
)

// Outcome is the result of a pass over a Broker.
type Outcome struct {
	Facts  plan.Facts
	Action plan.Action
	// Stall is set if the action failed in a way that requires a person.
	Stall *plan.Action
	// Image, Profile and Restart are those in force.
	Image   string
	Profile v1alpha1.Profile
	Restart string
	// Waiting describes the wanted settings that are not in force; empty: none.
	Waiting string
	// Now is the time of the pass.
	Now time.Time
}

// Broker returns the status of a Broker after a pass.
func Broker(broker *v1alpha1.Broker, o Outcome) v1alpha1.BrokerStatus {
	names := build.NamesOf(broker)
	f := o.Facts
	waiting := pending(f, o.Waiting)
	endpoint := served(broker, waiting == "" && o.Action.Kind == plan.None)
	status := v1alpha1.BrokerStatus{
		ObservedGeneration: broker.Generation,
		Endpoint:           endpoint,
		Replicas:           int32(len(f.Brokers.Pods)),
		ReadyReplicas:      f.Brokers.ReadyPods(),
		Selector:           names.BrokerSelector(),
		Coordination: v1alpha1.CoordinationStatus{
			Replicas:      int32(len(f.Coordinators.Pods)),
			ReadyReplicas: f.Coordinators.ReadyPods(),
		},
		Profile: o.Profile,
		Image:   o.Image,
		Restart: o.Restart,
	}
	conditions := edit(broker.Status.Conditions, broker.Generation)
	stall, stalled := plan.Stalled(f)
	if o.Stall != nil {
		stall, stalled = *o.Stall, true
	}
	cause := o.Action
	if stalled {
		cause = stall
	}
	conditions.set(v1alpha1.ConditionReady, !stalled && o.Action.Kind == plan.None, string(cause.Reason), cause.Message)
	conditions.only(!stalled && o.Action.Kind != plan.None, v1alpha1.ConditionReconciling, string(cause.Reason), cause.Message)
	conditions.only(stalled, v1alpha1.ConditionStalled, string(cause.Reason), cause.Message)

	// Unknown counts stay as they were.
	status.Shards = broker.Status.Shards
	status.Coordination.EtcdGeneration, status.Coordination.RestoredAt = broker.Status.Coordination.EtcdGeneration, broker.Status.Coordination.RestoredAt
	if s := f.Shards; s.Known {
		if Restored(broker, o) {
			status.Coordination.RestoredAt = &metav1.Time{Time: o.Now.Truncate(time.Second)}
		}
		if known := status.Coordination.EtcdGeneration; known == nil || *known < s.Generation {
			generation := s.Generation
			status.Coordination.EtcdGeneration = &generation
		}
		comparing := plan.Comparison(s)
		conditions.only(comparing != "", v1alpha1.ConditionEtcdRestored, string(plan.ComparingCopies), comparing)
		status.Shards = v1alpha1.ShardsStatus{Total: int32(s.Total), UnderReplicated: int32(s.UnderReplicated), Leaderless: int32(s.Leaderless)}
		reason, message := plan.Shortage(s)
		conditions.only(reason != "", v1alpha1.ConditionUnderReplicated, string(reason), message)
	}

	if f.Access.Known {
		why := plan.Unrestricted(f)
		conditions.only(why != "", v1alpha1.ConditionEtcdUnrestricted, ReasonUsersNotEnabled,
			"any certificate that the CA of etcd signed, such as a broker's, may do everything in etcd: "+why)
	}

	switch users := f.Users; {
	case broker.Spec.Auth == nil || broker.Spec.Auth.Users == nil:
		conditions.only(false, v1alpha1.ConditionUsersInvalid, "", "")
	default:
		status.Users = broker.Status.Users
		if users.Written {
			count := int32(users.Count)
			status.Users = &count
		}
		if users != (plan.Users{}) {
			conditions.only(users.Invalid != "", v1alpha1.ConditionUsersInvalid, string(plan.UsersInvalid), users.Invalid)
		}
	}

	if c := f.ClientCertificates; c.Known {
		reason, message := plan.Expiry(c, o.Now)
		conditions.only(reason != "", v1alpha1.ConditionCertificateExpiring, string(reason), message)
	}

	conditions.only(waiting != "", v1alpha1.ConditionRestartPending, ReasonOnRequest, waiting)
	known := broker.Spec.Auth != nil || broker.Spec.TLS != nil && broker.Spec.TLS.ClientCertificates != nil
	conditions.only(!known, v1alpha1.ConditionOpen, ReasonNoAuth,
		fmt.Sprintf("whoever reaches %s may publish and subscribe; write spec.auth to change that", endpoint))
	status.Conditions = conditions.conditions
	return status
}

// served returns the URL for clients. When TLS becomes required, the URL stays nats:// until all
// pods have it: a client of nats:// uses TLS where the broker requires it, and reaches all of them.
func served(broker *v1alpha1.Broker, rolled bool) string {
	former, wanted := broker.Status.Endpoint, build.Endpoint(broker)
	if former != "" && !rolled && strings.HasPrefix(wanted, "tls:") {
		return former
	}
	return wanted
}

// Restored reports whether etcd was restored from a backup since the last status. Without a former
// generation in the status it is false.
func Restored(broker *v1alpha1.Broker, o Outcome) bool {
	before := broker.Status.Coordination.EtcdGeneration
	return o.Facts.Shards.Known && before != nil && *before < o.Facts.Shards.Generation
}

// pending describes what waits for a request of the user, with spec.update OnRequest.
func pending(f plan.Facts, waiting string) string {
	pods, why := int32(0), waiting
	for _, set := range []plan.Set{f.Coordinators, f.Brokers} {
		n, podWhy := set.Pending()
		pods += n
		if why == "" {
			why = podWhy
		}
	}
	switch {
	case why == "":
		return ""
	case pods == 0:
		pods = int32(len(f.Coordinators.Pods) + len(f.Brokers.Pods))
	}
	return fmt.Sprintf("%d pods wait to be replaced (%s); set the annotation %s to a new value to let it happen", pods, why, v1alpha1.AnnotationRestart)
}
