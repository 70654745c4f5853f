package build

import (
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/runtime"

	metav1ac "k8s.io/client-go/applyconfigurations/meta/v1"

	"github.com/carillon-mq/carillon/api/v1alpha1"
)

// AuthForm is how clients prove who they are.
type AuthForm string

// The forms of auth.
const (
	AuthNone         AuthForm = ""
	AuthUserPassword AuthForm = "UserPassword"
	AuthToken        AuthForm = "Token"
)

// Keys of the Secret that spec.auth.secretRef names.
const (
	KeyUsername = "username"
	KeyPassword = "password"
	KeyToken    = "token"
)

// Auth is what the pods take from the Secret that spec.auth names.
type Auth struct {
	Form   AuthForm
	Secret string
	// Fingerprint changes with the content, so that pods are replaced; it reveals nothing of it.
	Fingerprint string
}

// Cluster is everything that the objects of one Broker are made from.
type Cluster struct {
	Broker *v1alpha1.Broker
	// Image, Profile and Restart are those in force, which may not be the latest asked for.
	Image   string
	Profile v1alpha1.Profile
	Restart string
	// Replicas of the brokers, which may be more than asked for.
	Replicas int32
	// Retiring says that brokers are being taken away, whose volumes go with them if the Broker's
	// own would.
	Retiring bool
	// Disruptable says that one broker may be evicted.
	Disruptable bool
	// The sizes in the claim templates, which may be less than asked for.
	BrokerVolume      resource.Quantity
	CoordinatorVolume resource.Quantity
	Auth              Auth
	// Trust stands for the CAs that are trusted. etcd reads its own certificate again when that
	// changes, but not these, so the coordinators are rolled when a CA is added.
	Trust string
	// PullSecrets are the names of Secrets with which the image is pulled.
	PullSecrets []string
}

// CoordinatorReplicas is the number of coordinators.
func (c Cluster) CoordinatorReplicas() int32 { return c.Broker.Spec.Coordination.Managed.Replicas }

// Names are the names of the objects.
func (c Cluster) Names() Names { return NamesOf(c.Broker) }

// Coordinators are the objects that coordination consists of, in the order in which they are to be
// made.
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

// Brokers are the objects that the brokers consist of, in the order in which they are to be made.
func (c Cluster) Brokers() []runtime.ApplyConfiguration {
	objects := []runtime.ApplyConfiguration{
		c.serviceAccount(c.Names().BrokerAccount(), ComponentBroker),
		c.brokersService(),
		c.clientService(),
	}
	// With one broker a budget would only stand in the way of draining its node.
	if c.Replicas > 1 {
		evictable := int32(0)
		if c.Disruptable {
			evictable = 1
		}
		objects = append(objects, c.disruptionBudget(c.Names().Brokers(), ComponentBroker, evictable))
	}
	return append(objects, c.BrokerSet())
}

// owner makes Kubernetes remove an object with its Broker.
func owner(broker *v1alpha1.Broker) *metav1ac.OwnerReferenceApplyConfiguration {
	return metav1ac.OwnerReference().
		WithAPIVersion(v1alpha1.GroupVersion.String()).
		WithKind("Broker").
		WithName(broker.Name).
		WithUID(broker.UID).
		WithController(true).
		WithBlockOwnerDeletion(true)
}
