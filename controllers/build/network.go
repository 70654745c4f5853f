package build

import (
	"k8s.io/apimachinery/pkg/util/intstr"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	corev1ac "k8s.io/client-go/applyconfigurations/core/v1"
	metav1ac "k8s.io/client-go/applyconfigurations/meta/v1"
	policyv1ac "k8s.io/client-go/applyconfigurations/policy/v1"
)

// coordinatorsService gives each coordinator a DNS name, ready or not: members must find each other
// to become ready.
func (c Cluster) coordinatorsService() *corev1ac.ServiceApplyConfiguration {
	return c.headless(c.Names().CoordinatorsService(), ComponentCoordinator,
		port("client", portCoordinatorClient), port("peer", portCoordinatorPeer), port("http", portCoordinatorHTTP))
}

// brokersService gives each broker a DNS name, ready or not.
func (c Cluster) brokersService() *corev1ac.ServiceApplyConfiguration {
	ports := append(c.clientPorts(), port("route", portRoute), port("http", portBrokerHTTP))
	return c.headless(c.Names().BrokersService(), ComponentBroker, ports...)
}

// clientService is the Service for clients: the client ports of ready brokers.
func (c Cluster) clientService() *corev1ac.ServiceApplyConfiguration {
	n := c.Names()
	return corev1ac.Service(n.Brokers(), n.namespace).
		WithLabels(n.labels(ComponentBroker)).
		WithOwnerReferences(owner(c.Broker)).
		WithSpec(corev1ac.ServiceSpec().
			WithType(corev1.ServiceTypeClusterIP).
			WithSelector(n.selector(ComponentBroker)).
			WithPorts(c.clientPorts()...))
}

// clientPorts are the ports for clients.
func (c Cluster) clientPorts() []*corev1ac.ServicePortApplyConfiguration {
	ports := []*corev1ac.ServicePortApplyConfiguration{port("client", portClient)}
	if c.Broker.Spec.WebSocket != nil {
		ports = append(ports, port("websocket", portWebSocket))
	}
	return ports
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

// port returns a Service port with the number of the pods' port.
func port(name string, number int32) *corev1ac.ServicePortApplyConfiguration {
	return corev1ac.ServicePort().
		WithName(name).
		WithPort(number).
		WithTargetPort(intstr.FromString(name)).
		WithProtocol(corev1.ProtocolTCP)
}

// disruptionBudget allows that many evictions at a time. A pod that is not ready may always be
// evicted: it serves nobody, and must not prevent draining its node.
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

// serviceAccount returns a ServiceAccount without permissions, whose token is not mounted.
func (c Cluster) serviceAccount(name, component string) *corev1ac.ServiceAccountApplyConfiguration {
	n := c.Names()
	return corev1ac.ServiceAccount(name, n.namespace).
		WithLabels(n.labels(component)).
		WithOwnerReferences(owner(c.Broker)).
		WithAutomountServiceAccountToken(false)
}
