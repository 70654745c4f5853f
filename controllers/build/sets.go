package build

import (
	"fmt"
	"strings"

	appsv1ac "k8s.io/client-go/applyconfigurations/apps/v1"
	corev1ac "k8s.io/client-go/applyconfigurations/core/v1"
)

// coordinatorSet returns the StatefulSet of the coordinators.
func (c Cluster) coordinatorSet() *appsv1ac.StatefulSetApplyConfiguration {
	n, managed := c.Names(), c.Broker.Spec.Coordination.Managed
	class := managed.Storage.ClassName
	if class == nil {
		class = c.Broker.Spec.Storage.ClassName
	}
	return c.statefulSet(member{
		name:        n.Coordinators(),
		component:   ComponentCoordinator,
		service:     n.CoordinatorsService(),
		account:     n.Coordinators(),
		tlsSecret:   n.CoordinatorTLS(),
		replicas:    c.CoordinatorReplicas(),
		share:       nodeOf(c.Profile).coordinator,
		volume:      c.CoordinatorVolume,
		class:       class,
		annotations: map[string]string{annotationTrust: c.Trust},
		args: []string{
			"coordinator",
			"--name=$(POD_NAME)",
			"--data=" + dataDir,
			"--tls-dir=" + tlsDir,
			fmt.Sprintf("--client-listen=:%d", portCoordinatorClient),
			fmt.Sprintf("--peer-listen=:%d", portCoordinatorPeer),
			fmt.Sprintf("--http-listen=:%d", portCoordinatorHTTP),
			fmt.Sprintf("--advertise-host=$(POD_NAME).%s.%s.svc", n.CoordinatorsService(), n.namespace),
			"--initial-cluster=" + n.initialCluster(c.CoordinatorReplicas()),
			"--cluster-token=" + string(c.Broker.UID),
			"--bootstrapped-file=" + tlsDir + "/" + KeyBootstrapped,
		},
		ports: []*corev1ac.ContainerPortApplyConfiguration{
			containerPort("client", portCoordinatorClient),
			containerPort("peer", portCoordinatorPeer),
			containerPort("http", portCoordinatorHTTP),
		},
	})
}

// BrokerSet returns the StatefulSet of the brokers.
func (c Cluster) BrokerSet() *appsv1ac.StatefulSetApplyConfiguration {
	n := c.Names()
	host := fmt.Sprintf("$(POD_NAME).%s.%s.svc", n.BrokersService(), n.namespace)
	m := member{
		name:      n.Brokers(),
		component: ComponentBroker,
		service:   n.BrokersService(),
		account:   n.BrokerAccount(),
		tlsSecret: n.BrokerTLS(), pushSecret: n.Push(),
		replicas: c.Replicas,
		share:    nodeOf(c.Profile).broker,
		volume:   c.BrokerVolume,
		class:    c.Broker.Spec.Storage.ClassName,
		retiring: c.Retiring,
		args: []string{
			"broker",
			"--name=$(POD_NAME)",
			"--cluster=" + n.Cluster(),
			"--zone=$(ZONE)",
			"--data=" + dataDir,
			fmt.Sprintf("--client-listen=:%d", portClient),
			fmt.Sprintf("--client-advertise=%s:%d", host, portClient),
			fmt.Sprintf("--route-listen=:%d", portRoute),
			fmt.Sprintf("--route-advertise=%s:%d", host, portRoute),
			fmt.Sprintf("--http-listen=:%d", portBrokerHTTP),
			"--etcd-endpoints=" + strings.Join(n.EtcdEndpoints(c.CoordinatorReplicas()), ","),
			"--tls-dir=" + tlsDir,
			"--push-secrets=" + pushDir,
			"--profile=" + string(c.Profile),
			"--lame-duck=20s",
		},
		// From 1.35 on Kubernetes copies the node's zone to each pod when it is bound; before, the
		// zone is empty.
		env: []*corev1ac.EnvVarApplyConfiguration{
			corev1ac.EnvVar().WithName("ZONE").WithValueFrom(corev1ac.EnvVarSource().
				WithFieldRef(corev1ac.ObjectFieldSelector().WithFieldPath("metadata.labels['" + zoneLabel + "']"))),
		},
		ports: []*corev1ac.ContainerPortApplyConfiguration{
			containerPort("client", portClient),
			containerPort("route", portRoute),
			containerPort("http", portBrokerHTTP),
		},
	}
	if p := c.Broker.Spec.Push; p != nil && len(p.AllowedAddresses) > 0 {
		m.args = append(m.args, "--push-allow="+strings.Join(p.AllowedAddresses, ","))
	}
	switch c.Auth.Form {
	case AuthUserPassword:
		m.env = append(m.env, secretEnv("CARILLON_USER", c.Auth.Secret, KeyUsername), secretEnv("CARILLON_PASSWORD", c.Auth.Secret, KeyPassword))
	case AuthToken:
		m.env = append(m.env, secretEnv("CARILLON_TOKEN", c.Auth.Secret, KeyToken))
	}
	if c.Auth.Form != AuthNone {
		m.annotations = map[string]string{annotationAuth: c.Auth.Fingerprint}
	}
	return c.statefulSet(m)
}

func secretEnv(name, secret, key string) *corev1ac.EnvVarApplyConfiguration {
	return corev1ac.EnvVar().WithName(name).WithValueFrom(corev1ac.EnvVarSource().
		WithSecretKeyRef(corev1ac.SecretKeySelector().WithName(secret).WithKey(key)))
}
