package build

import (
	"k8s.io/apimachinery/pkg/util/intstr"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	corev1ac "k8s.io/client-go/applyconfigurations/core/v1"
	metav1ac "k8s.io/client-go/applyconfigurations/meta/v1"
	policyv1ac "k8s.io/client-go/applyconfigurations/policy/v1"
)

// coordinatorsService gives each coordinator a name. It names those that are not ready too: members
// must find each other to become ready.
func (c Cluster) coordinatorsService() *corev1ac.ServiceApplyConfiguration {
	return c.headless(c.Names().CoordinatorsService(), ComponentCoordinator,
		port("client", portCoordinatorClient), port("peer", portCoordinatorPeer), port("http", portCoordinatorHTTP))
}

// brokersService gives each broker a name, ready or not.
func (c Cluster) brokersService() *corev1ac.ServiceApplyConfiguration {
	return c.headless(c.Names().BrokersService(), ComponentBroker,
		port("client", portClient), port("route", portRoute), port("http", portBrokerHTTP))
}

// clientService is where clients connect: to brokers that are ready, and to the one port that is
// theirs.
func (c Cluster) clientService() *corev1ac.ServiceApplyConfiguration {
	n := c.Names()
	return corev1ac.Service(n.Brokers(), n.namespace).
		WithLabels(n.labels(ComponentBroker)).
		WithOwnerReferences(owner(c.Broker)).
		WithSpec(corev1ac.ServiceSpec().
			WithType(corev1.ServiceTypeClusterIP).
			WithSelector(n.selector(ComponentBroker)).
			WithPorts(port("client", portClient)))
}

func (c Cluster) headless(name, component string, ports ...*corev1ac.ServicePortApplyConfiguration) *corev1ac.ServiceApplyConfiguration {
	n := c.Names()
	return corev1ac.Service(name, n.namespace).
		WithLabels(n.labels(component)).
		WithOwnerReferences(owner(c.Broker)).
		WithSpec(corev1ac.ServiceSpec().
			WithType(corev1.ServiceTypeClusterIP).
			WithClusterIP(corev1.ClusterIPNone).
			WithPublishNotReadyAddresses(true).
			WithSelector(n.selector(component)).
			WithPorts(ports...))
}

// port listens under a Service as the pods do.
func port(name string, number int32) *corev1ac.ServicePortApplyConfiguration {
	return corev1ac.ServicePort().
		WithName(name).
		WithPort(number).
		WithTargetPort(intstr.FromString(name)).
		WithProtocol(corev1.ProtocolTCP)
}

// disruptionBudget lets so many pods be evicted at a time. A pod that is not ready may always go:
// it serves nobody, and must not keep a node from being drained.
func (c Cluster) disruptionBudget(name, component string, evictable int32) *policyv1ac.PodDisruptionBudgetApplyConfiguration {
	n := c.Names()
	return policyv1ac.PodDisruptionBudget(name, n.namespace).
		WithLabels(n.labels(component)).
		WithOwnerReferences(owner(c.Broker)).
		WithSpec(policyv1ac.PodDisruptionBudgetSpec().
			WithMaxUnavailable(intstr.FromInt32(evictable)).
			WithUnhealthyPodEvictionPolicy(policyv1.AlwaysAllow).
			WithSelector(metav1ac.LabelSelector().WithMatchLabels(n.selector(component))))
}

// serviceAccount is one without any rights; the pods don't even get its token.
func (c Cluster) serviceAccount(name, component string) *corev1ac.ServiceAccountApplyConfiguration {
	n := c.Names()
	return corev1ac.ServiceAccount(name, n.namespace).
		WithLabels(n.labels(component)).
		WithOwnerReferences(owner(c.Broker)).
		WithAutomountServiceAccountToken(false)
}
