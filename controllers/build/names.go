package build

import (
	"fmt"
	"strings"

	"github.com/carillon-mq/carillon/api/v1alpha1"
)

// runAs is the user and the group of all processes, those of the image.
const runAs = 65532

// FieldOwner is the field manager of all objects that the operator applies.
const FieldOwner = "carillon-operator"

// Labels of every object of the operator.
const (
	LabelManagedBy = "app.kubernetes.io/managed-by"
	LabelInstance  = "app.kubernetes.io/instance"
	LabelComponent = "app.kubernetes.io/component"
	labelName      = "app.kubernetes.io/name"

	ManagedBy            = "carillon"
	ComponentBroker      = "broker"
	ComponentCoordinator = "coordinator"
)

const (
	annotationAuth  = v1alpha1.Group + "/auth"  // changes with what the auth Secret holds
	annotationTrust = v1alpha1.Group + "/trust" // changes with the CAs that coordinators trust
	zoneLabel       = "topology.kubernetes.io/zone"
	hostLabel       = "kubernetes.io/hostname"

	dataVolume = "data"
	tlsVolume  = "tls" // of links for brokers, of etcd's clients for coordinators
	etcdVolume = "etcd-tls"
	peerVolume = "peer-tls"
	pushVolume = "push"
	dataDir    = "/data"
	tlsDir     = "/etc/carillon/tls"
	etcdDir    = "/etc/carillon/etcd-tls"
	peerDir    = "/etc/carillon/peer-tls"
	pushDir    = "/etc/carillon/push"
	// KeyBootstrapped is a key of the coordinators' Secret, set once their cluster has existed.
	KeyBootstrapped = "bootstrapped"
)

// The ports on which pods listen.
const (
	portClient            = 4222
	portRoute             = 6222
	portBrokerHTTP        = 8222
	portWebSocket         = 8080
	portCoordinatorClient = 2379
	portCoordinatorPeer   = 2380
	portCoordinatorHTTP   = 8223
)

// Names are the names of the objects of one Broker.
type Names struct{ namespace, name string }

// NamesOf returns the names of the objects of a Broker.
func NamesOf(broker *v1alpha1.Broker) Names { return Names{broker.Namespace, broker.Name} }

// Brokers is the StatefulSet of the brokers, their client Service and their PodDisruptionBudget.
func (n Names) Brokers() string { return n.name }

// BrokersService is the headless Service of the brokers.
func (n Names) BrokersService() string { return n.name + "-brokers" }

// BrokerAccount is the ServiceAccount of the brokers.
func (n Names) BrokerAccount() string { return n.name + "-broker" }

// BrokerTLS is the Secret with the brokers' certificate for links.
func (n Names) BrokerTLS() string { return n.name + "-broker-tls" }

// BrokerEtcdTLS is the Secret with the brokers' certificate for etcd.
func (n Names) BrokerEtcdTLS() string { return n.name + "-broker-etcd-tls" }

// Push is the Secret with the values that push Subscriptions refer to.
func (n Names) Push() string { return n.name + "-push" }

// Coordinators is the StatefulSet of the coordinators, their PodDisruptionBudget and
// ServiceAccount.
func (n Names) Coordinators() string { return n.name + "-coordinator" }

// CoordinatorsService is the headless Service of the coordinators.
func (n Names) CoordinatorsService() string { return n.name + "-coordinators" }

// CoordinatorTLS is the Secret with the coordinators' certificate for etcd's clients.
func (n Names) CoordinatorTLS() string { return n.name + "-coordinator-tls" }

// CoordinatorPeerTLS is the Secret with the coordinators' certificate for each other.
func (n Names) CoordinatorPeerTLS() string { return n.name + "-coordinator-peer-tls" }

// CA is the Secret with the CAs and their keys, which only the operator reads.
func (n Names) CA() string { return n.name + "-ca" }

// Endpoint returns the URL for clients of a Broker.
func Endpoint(broker *v1alpha1.Broker) string {
	scheme := "nats"
	if tls := broker.Spec.TLS; tls != nil && tls.Mode != v1alpha1.TLSOptional {
		scheme = "tls"
	}
	return fmt.Sprintf("%s://%s.%s.svc:%d", scheme, broker.Name, broker.Namespace, portClient)
}

// Cluster is the Broker's name for its processes: namespace/name.
func (n Names) Cluster() string { return n.namespace + "/" + n.name }

// CoordinatorHosts are the host names of the coordinators.
func (n Names) CoordinatorHosts(replicas int32) []string {
	hosts := make([]string, replicas)
	for i := range hosts {
		hosts[i] = fmt.Sprintf("%s-%d.%s.%s.svc", n.Coordinators(), i, n.CoordinatorsService(), n.namespace)
	}
	return hosts
}

// EtcdEndpoints are the URLs of etcd, in the order of the coordinators' ordinals.
func (n Names) EtcdEndpoints(replicas int32) []string {
	endpoints := n.CoordinatorHosts(replicas)
	for i, host := range endpoints {
		endpoints[i] = fmt.Sprintf("https://%s:%d", host, portCoordinatorClient)
	}
	return endpoints
}

// initialCluster returns etcd's --initial-cluster, by which the members find each other the first
// time.
func (n Names) initialCluster(replicas int32) string {
	members := n.CoordinatorHosts(replicas)
	for i, host := range members {
		members[i] = fmt.Sprintf("%s-%d=https://%s:%d", n.Coordinators(), i, host, portCoordinatorPeer)
	}
	return strings.Join(members, ",")
}

// selector returns the labels of a component's pods and volume claims.
func (n Names) selector(component string) map[string]string {
	return map[string]string{
		labelName:      "carillon",
		LabelInstance:  n.name,
		LabelComponent: component,
		LabelManagedBy: ManagedBy,
	}
}

// BrokerSelector is the selector of the brokers' pods, as text.
func (n Names) BrokerSelector() string {
	selector := n.selector(ComponentBroker)
	return fmt.Sprintf("%s=%s,%s=%s,%s=%s,%s=%s", LabelComponent, selector[LabelComponent],
		LabelInstance, selector[LabelInstance], LabelManagedBy, selector[LabelManagedBy], labelName, selector[labelName])
}

// labels returns the labels of an object of a component, or of the whole Broker if component is
// empty.
func (n Names) labels(component string) map[string]string {
	labels := n.selector(component)
	if component == "" {
		delete(labels, LabelComponent)
	}
	return labels
}
