package build

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
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
	m := member{
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
	}
	if !c.SharedRoot {
		m.args = append(m.args, "--peer-tls-dir="+peerDir)
		m.moreTLS = &files{peerVolume, n.CoordinatorPeerTLS(), peerDir}
	}
	return c.statefulSet(m)
}

// HasSharedRoot reports whether a pod has one folder of certificates: see Cluster.SharedRoot.
func HasSharedRoot(pod *corev1.Pod) bool {
	return !slices.ContainsFunc(pod.Spec.Volumes, func(v corev1.Volume) bool {
		return v.Name == etcdVolume || v.Name == peerVolume
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
	if !c.SharedRoot {
		m.args = append(m.args, "--etcd-tls-dir="+etcdDir)
		m.moreTLS = &files{etcdVolume, n.BrokerEtcdTLS(), etcdDir}
	}
	if p := c.Broker.Spec.Push; p != nil && len(p.AllowedAddresses) > 0 {
		m.args = append(m.args, "--push-allow="+strings.Join(p.AllowedAddresses, ","))
	}
	if tls := c.Broker.Spec.TLS; tls != nil {
		m.args = append(m.args, clientArgs(tls)...)
		m.clientTLS = clientFiles(c.Broker)
	}
	if ws := c.Broker.Spec.WebSocket; ws != nil {
		m.args = append(m.args, fmt.Sprintf("--websocket-listen=:%d", portWebSocket), fmt.Sprintf("--websocket-advertise=%s:%d", host, portWebSocket))
		if len(ws.Origins) > 0 {
			m.args = append(m.args, "--websocket-origins="+strings.Join(ws.Origins, ","))
		}
		m.ports = append(m.ports, containerPort("websocket", portWebSocket))
	}
	switch c.Auth.Form {
	case AuthUserPassword:
		m.env = append(m.env, secretEnv("CARILLON_USER", c.Auth.Secret, KeyUsername), secretEnv("CARILLON_PASSWORD", c.Auth.Secret, KeyPassword))
	case AuthToken:
		m.env = append(m.env, secretEnv("CARILLON_TOKEN", c.Auth.Secret, KeyToken))
	case AuthUsers:
		m.args = append(m.args, "--users-from-etcd")
	}
	if c.Auth.Fingerprint != "" {
		m.annotations = map[string]string{annotationAuth: c.Auth.Fingerprint}
	}
	return c.statefulSet(m)
}

func secretEnv(name, secret, key string) *corev1ac.EnvVarApplyConfiguration {
	return corev1ac.EnvVar().WithName(name).WithValueFrom(corev1ac.EnvVarSource().
		WithSecretKeyRef(corev1ac.SecretKeySelector().WithName(secret).WithKey(key)))
}
