package build

import (
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/runtime"

	metav1ac "k8s.io/client-go/applyconfigurations/meta/v1"

	"github.com/carillon-mq/carillon/api/v1alpha1"
)

// AuthForm is the form in which clients authenticate.
type AuthForm string

// The forms of authentication.
const (
	AuthNone         AuthForm = ""
	AuthUserPassword AuthForm = "UserPassword"
	AuthToken        AuthForm = "Token"
	// AuthUsers: the operator writes the users to etcd.
	AuthUsers AuthForm = "Users"
)

// Keys of the Secret that spec.auth.secretRef names.
const (
	KeyUsername = "username"
	KeyPassword = "password"
	KeyToken    = "token"
)

// Auth describes the Secret that spec.auth names, as the pods use it.
type Auth struct {
	Form   AuthForm
	Secret string
	// Fingerprint changes with the Secret's content, so that pods are replaced, and reveals none of
	// it.
	Fingerprint string
}

// Cluster is the input from which the objects of one Broker are built.
type Cluster struct {
	Broker *v1alpha1.Broker
	// Image, Profile and Restart are those in force. With update OnRequest they may differ from the
	// spec.
	Image   string
	Profile v1alpha1.Profile
	Restart string
	// Replicas is the number of brokers. It may exceed spec.replicas.
	Replicas int32
	// Retiring reports that brokers are being removed, with their volumes if the deletion policy
	// deletes volumes.
	Retiring bool
	// Disruptable reports that one broker may be evicted.
	Disruptable bool
	// The sizes in the claim templates, which may be smaller than in the spec.
	BrokerVolume      resource.Quantity
	CoordinatorVolume resource.Quantity
	Auth              Auth
	// Trust identifies the CAs that coordinators trust. etcd reads its own certificate again, but
	// not its CAs, so the coordinators are replaced when a CA is added or goes.
	Trust string
	// SharedRoot reports that one CA signs for links, etcd's clients and its members, as in earlier
	// versions, and that the pods' image may be one of those: it knows one folder of certificates.
	SharedRoot bool
	// PullSecrets are the names of Secrets to pull the image with.
	PullSecrets []string
}

// CoordinatorReplicas returns the number of coordinators.
func (c Cluster) CoordinatorReplicas() int32 { return c.Broker.Spec.Coordination.Managed.Replicas }

// Names returns the names of the objects.
func (c Cluster) Names() Names { return NamesOf(c.Broker) }

// Coordinators returns the objects of the coordinators, in the order in which they are applied.
func (c Cluster) Coordinators() []runtime.ApplyConfiguration {
	objects := []runtime.ApplyConfiguration{
		c.serviceAccount(c.Names().Coordinators(), ComponentCoordinator),
		c.coordinatorsService(),
	}
	if n := c.CoordinatorReplicas(); n > 1 {
		objects = append(objects, c.disruptionBudget(c.Names().Coordinators(), ComponentCoordinator, 1))
	}
	return append(objects, c.coordinatorSet())
}

// Brokers returns the objects of the brokers, in the order in which they are applied.
func (c Cluster) Brokers() []runtime.ApplyConfiguration {
	objects := []runtime.ApplyConfiguration{
		c.serviceAccount(c.Names().BrokerAccount(), ComponentBroker),
		c.brokersService(),
		c.clientService(),
	}
	// With one broker a budget would only prevent draining its node.
	if c.Replicas > 1 {
		evictable := int32(0)
		if c.Disruptable {
			evictable = 1
		}
		objects = append(objects, c.disruptionBudget(c.Names().Brokers(), ComponentBroker, evictable))
	}
	return append(objects, c.BrokerSet())
}

// owner returns the ownerReference by which Kubernetes deletes an object with its Broker.
func owner(broker *v1alpha1.Broker) *metav1ac.OwnerReferenceApplyConfiguration {
	return metav1ac.OwnerReference().
		WithAPIVersion(v1alpha1.GroupVersion.String()).
		WithKind("Broker").
		WithName(broker.Name).
		WithUID(broker.UID).
		WithController(true).
		WithBlockOwnerDeletion(true)
}
