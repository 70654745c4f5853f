package build

import (
	corev1 "k8s.io/api/core/v1"
	corev1ac "k8s.io/client-go/applyconfigurations/core/v1"

	"github.com/carillon-mq/carillon/api/v1alpha1"
	"github.com/carillon-mq/carillon/broker/coordination"
	"github.com/carillon-mq/carillon/controllers/pki"
)

// Secret returns a Secret with certificates of a Broker.
func Secret(broker *v1alpha1.Broker, name string, data map[string][]byte) *corev1ac.SecretApplyConfiguration {
	n := NamesOf(broker)
	return corev1ac.Secret(name, n.namespace).
		WithLabels(n.labels("")).
		WithOwnerReferences(owner(broker)).
		WithType(corev1.SecretTypeOpaque).
		WithData(data)
}

// BrokerLeaf describes the certificate that all brokers of a cluster present to each other. Its
// name has a wildcard, so a further broker needs no new certificate.
func BrokerLeaf(broker *v1alpha1.Broker) pki.Leaf {
	n := NamesOf(broker)
	return pki.Leaf{Name: n.BrokerAccount(), DNSNames: []string{
		"*." + n.BrokersService() + "." + n.namespace + ".svc",
	}}
}

// BrokerEtcdLeaf describes the certificate that all brokers of a cluster present to etcd. It has no
// host, so it serves nobody.
func BrokerEtcdLeaf(broker *v1alpha1.Broker) pki.Leaf {
	return pki.Leaf{Name: NamesOf(broker).BrokerAccount()}
}

// CoordinatorLeaf describes the certificate that all coordinators of a cluster present: one that
// etcd's CA signs to clients, and one of the members' CA to each other. It names each host, without
// a wildcard: etcd resolves the names in a peer's certificate and compares the address; a wildcard
// would need reverse look-ups, which not every cluster answers.
func CoordinatorLeaf(broker *v1alpha1.Broker) pki.Leaf {
	n := NamesOf(broker)
	return pki.Leaf{Name: n.Coordinators(), DNSNames: n.CoordinatorHosts(broker.Spec.Coordination.Managed.Replicas)}
}

// EtcdAccess returns the users of etcd, by the names in their certificates. They are those of
// earlier versions, too.
func EtcdAccess(broker *v1alpha1.Broker) coordination.Access {
	return coordination.Access{
		Cluster: []string{BrokerEtcdLeaf(broker).Name, FieldOwner},
		Root:    []string{CoordinatorLeaf(broker).Name},
	}
}
