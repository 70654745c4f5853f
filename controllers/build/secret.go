package build

import (
	corev1 "k8s.io/api/core/v1"
	corev1ac "k8s.io/client-go/applyconfigurations/core/v1"

	"github.com/carillon-mq/carillon/api/v1alpha1"
	"github.com/carillon-mq/carillon/controllers/pki"
)

// Secret holds certificates of a Broker.
func Secret(broker *v1alpha1.Broker, name string, data map[string][]byte) *corev1ac.SecretApplyConfiguration {
	n := NamesOf(broker)
	return corev1ac.Secret(name, n.namespace).
		WithLabels(n.labels("")).
		WithOwnerReferences(owner(broker)).
		WithType(corev1.SecretTypeOpaque).
		WithData(data)
}

// BrokerLeaf is the certificate that all brokers of a cluster show to each other and to etcd. Its
// name has a wildcard, so that adding a broker needs no new certificate.
func BrokerLeaf(broker *v1alpha1.Broker) pki.Leaf {
	n := NamesOf(broker)
	return pki.Leaf{Name: n.BrokerAccount(), DNSNames: []string{
		"*." + n.BrokersService() + "." + n.namespace + ".svc",
	}}
}

// CoordinatorLeaf is the certificate that all coordinators of a cluster show. Each host is named,
// without a wildcard: etcd looks the names in a peer's certificate up and compares the address, and
// for a wildcard it would need reverse look-ups, which not every cluster answers.
func CoordinatorLeaf(broker *v1alpha1.Broker) pki.Leaf {
	n := NamesOf(broker)
	return pki.Leaf{Name: n.Coordinators(), DNSNames: n.CoordinatorHosts(broker.Spec.Coordination.Managed.Replicas)}
}
