package build

import (
	"k8s.io/apimachinery/pkg/util/intstr"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	appsv1ac "k8s.io/client-go/applyconfigurations/apps/v1"
	corev1ac "k8s.io/client-go/applyconfigurations/core/v1"
	metav1ac "k8s.io/client-go/applyconfigurations/meta/v1"

	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/carillon-mq/carillon/api/v1alpha1"
)

// gracePeriod is the time in seconds from SIGTERM to SIGKILL: a broker disconnects its clients over
// 20 s.
const gracePeriod = 60

// member is the differences between the pods of the two StatefulSets.
type member struct {
	name        string // of the StatefulSet
	component   string
	service     string
	account     string
	tlsSecret   string
	moreTLS     *files                                            // nil: tlsSecret is for all
	pushSecret  string                                            // optional, since it is made when it is needed; empty: none is mounted
	clientTLS   *corev1ac.ProjectedVolumeSourceApplyConfiguration // nil: clients use no TLS
	replicas    int32
	share       share
	volume      resource.Quantity
	class       *string
	retiring    bool // pods are being removed for good
	args        []string
	env         []*corev1ac.EnvVarApplyConfiguration
	annotations map[string]string
	ports       []*corev1ac.ContainerPortApplyConfiguration
}

// files are the content of a Secret, mounted as a folder.
type files struct{ volume, secret, dir string }

// statefulSet returns a set whose pods the operator replaces itself (OnDelete), and which start
// concurrently (Parallel, since members need each other to become ready). A scale-down keeps
// volumes, unless the operator removes drained brokers and the deletion policy deletes volumes:
// when somebody else scales the set down, no volume may be lost.
func (c Cluster) statefulSet(m member) *appsv1ac.StatefulSetApplyConfiguration {
	n := c.Names()
	whenDeleted := appsv1.RetainPersistentVolumeClaimRetentionPolicyType
	if c.Broker.Spec.DeletionPolicy == v1alpha1.VolumesDeleted {
		whenDeleted = appsv1.DeletePersistentVolumeClaimRetentionPolicyType
	}
	whenScaled := appsv1.RetainPersistentVolumeClaimRetentionPolicyType
	if m.retiring {
		whenScaled = whenDeleted
	}
	claim := corev1ac.PersistentVolumeClaimSpec().
		WithAccessModes(corev1.ReadWriteOnce).
		WithResources(corev1ac.VolumeResourceRequirements().WithRequests(corev1.ResourceList{corev1.ResourceStorage: m.volume}))
	if m.class != nil {
		claim.WithStorageClassName(*m.class)
	}
	return appsv1ac.StatefulSet(m.name, n.namespace).
		WithLabels(n.labels(m.component)).
		WithOwnerReferences(owner(c.Broker)).
		WithSpec(appsv1ac.StatefulSetSpec().
			WithReplicas(m.replicas).
			WithServiceName(m.service).
			WithPodManagementPolicy(appsv1.ParallelPodManagement).
			WithUpdateStrategy(appsv1ac.StatefulSetUpdateStrategy().WithType(appsv1.OnDeleteStatefulSetStrategyType)).
			WithPersistentVolumeClaimRetentionPolicy(appsv1ac.StatefulSetPersistentVolumeClaimRetentionPolicy().
				WithWhenDeleted(whenDeleted).
				WithWhenScaled(whenScaled)).
			WithSelector(metav1ac.LabelSelector().WithMatchLabels(n.selector(m.component))).
			WithTemplate(c.podTemplate(m)).
			WithVolumeClaimTemplates((&corev1ac.PersistentVolumeClaimApplyConfiguration{}).
				WithName(dataVolume).
				WithLabels(n.selector(m.component)).
				WithSpec(claim)))
}

func (c Cluster) podTemplate(m member) *corev1ac.PodTemplateSpecApplyConfiguration {
	n := c.Names()
	placement := c.Broker.Spec.Placement
	if placement == nil {
		placement = &v1alpha1.PlacementSpec{}
	}
	container := corev1ac.Container().
		WithName(m.component).
		WithImage(c.Image).
		WithImagePullPolicy(corev1.PullIfNotPresent).
		WithArgs(m.args...).
		WithEnv(corev1ac.EnvVar().WithName("POD_NAME").
			WithValueFrom(corev1ac.EnvVarSource().WithFieldRef(corev1ac.ObjectFieldSelector().WithFieldPath("metadata.name")))).
		WithEnv(m.env...).
		WithEnv(m.share.runtimeEnv(nodeOf(c.Profile).cpus)...).
		WithPorts(m.ports...).
		WithResources(m.share.resources()).
		WithSecurityContext(corev1ac.SecurityContext().
			WithAllowPrivilegeEscalation(false).
			WithReadOnlyRootFilesystem(true).
			WithCapabilities(corev1ac.Capabilities().WithDrop("ALL"))).
		// 30 min, for recovering a full disk.
		WithStartupProbe(probe("/healthz/startup").WithPeriodSeconds(2).WithFailureThreshold(900)).
		WithReadinessProbe(probe("/healthz/ready").WithPeriodSeconds(2).WithFailureThreshold(2)).
		WithLivenessProbe(probe("/healthz/live").WithPeriodSeconds(10).WithFailureThreshold(6)).
		WithVolumeMounts(
			corev1ac.VolumeMount().WithName(dataVolume).WithMountPath(dataDir),
			corev1ac.VolumeMount().WithName(tlsVolume).WithMountPath(tlsDir).WithReadOnly(true)).
		WithTerminationMessagePolicy(corev1.TerminationMessageFallbackToLogsOnError)

	if m.moreTLS != nil {
		container.WithVolumeMounts(corev1ac.VolumeMount().WithName(m.moreTLS.volume).WithMountPath(m.moreTLS.dir).WithReadOnly(true))
	}
	if m.pushSecret != "" {
		container.WithVolumeMounts(corev1ac.VolumeMount().WithName(pushVolume).WithMountPath(pushDir).WithReadOnly(true))
	}
	if m.clientTLS != nil {
		container.WithVolumeMounts(corev1ac.VolumeMount().WithName(clientTLSVolume).WithMountPath(clientTLSDir).WithReadOnly(true))
	}
	spec := corev1ac.PodSpec().
		WithServiceAccountName(m.account).
		WithAutomountServiceAccountToken(false).
		WithEnableServiceLinks(false).
		WithTerminationGracePeriodSeconds(gracePeriod).
		WithSecurityContext(corev1ac.PodSecurityContext().
			WithRunAsNonRoot(true).
			WithRunAsUser(runAs).
			WithRunAsGroup(runAs).
			WithFSGroup(runAs).
			WithFSGroupChangePolicy(corev1.FSGroupChangeOnRootMismatch).
			WithSeccompProfile(corev1ac.SeccompProfile().WithType(corev1.SeccompProfileTypeRuntimeDefault))).
		WithContainers(container).
		WithVolumes(corev1ac.Volume().WithName(tlsVolume).
			WithSecret(corev1ac.SecretVolumeSource().WithSecretName(m.tlsSecret).WithDefaultMode(0o440))).
		WithTopologySpreadConstraints(c.spread(m, zoneLabel), c.spread(m, hostLabel)).
		WithAffinity(c.apart(m))
	if m.moreTLS != nil {
		spec.WithVolumes(corev1ac.Volume().WithName(m.moreTLS.volume).
			WithSecret(corev1ac.SecretVolumeSource().WithSecretName(m.moreTLS.secret).WithDefaultMode(0o440)))
	}
	if m.pushSecret != "" {
		spec.WithVolumes(corev1ac.Volume().WithName(pushVolume).
			WithSecret(corev1ac.SecretVolumeSource().WithSecretName(m.pushSecret).WithOptional(true).WithDefaultMode(0o440)))
	}
	if m.clientTLS != nil {
		spec.WithVolumes(corev1ac.Volume().WithName(clientTLSVolume).WithProjected(m.clientTLS))
	}
	for _, name := range c.PullSecrets {
		spec.WithImagePullSecrets(corev1ac.LocalObjectReference().WithName(name))
	}
	if len(placement.NodeSelector) > 0 {
		spec.WithNodeSelector(placement.NodeSelector)
	}
	if placement.PriorityClassName != "" {
		spec.WithPriorityClassName(placement.PriorityClassName)
	}
	for _, t := range placement.Tolerations {
		spec.WithTolerations(toleration(t))
	}

	template := corev1ac.PodTemplateSpec().
		WithLabels(placement.Labels).
		WithLabels(n.selector(m.component)).
		WithAnnotations(placement.Annotations).
		WithAnnotations(m.annotations).
		WithSpec(spec)
	if c.Restart != "" {
		template.WithAnnotations(map[string]string{v1alpha1.AnnotationRestart: c.Restart})
	}
	return template
}

// spread prefers pods on different nodes and zones, and apart repeats that with a weight, so that
// three brokers get three nodes if there are three. Neither is required: a pod with a local volume
// can only return to its node. If that node held two pods when there was no other, a required rule
// would leave the pod pending for ever once a node was added.
func (c Cluster) spread(m member, key string) *corev1ac.TopologySpreadConstraintApplyConfiguration {
	return corev1ac.TopologySpreadConstraint().
		WithMaxSkew(1).
		WithTopologyKey(key).
		WithWhenUnsatisfiable(corev1.ScheduleAnyway).
		WithLabelSelector(metav1ac.LabelSelector().WithMatchLabels(c.Names().selector(m.component)))
}

func (c Cluster) apart(m member) *corev1ac.AffinityApplyConfiguration {
	return corev1ac.Affinity().WithPodAntiAffinity(corev1ac.PodAntiAffinity().
		WithPreferredDuringSchedulingIgnoredDuringExecution(corev1ac.WeightedPodAffinityTerm().
			WithWeight(100).
			WithPodAffinityTerm(corev1ac.PodAffinityTerm().
				WithTopologyKey(hostLabel).
				WithLabelSelector(metav1ac.LabelSelector().WithMatchLabels(c.Names().selector(m.component))))))
}

func toleration(t corev1.Toleration) *corev1ac.TolerationApplyConfiguration {
	out := corev1ac.Toleration()
	if t.Key != "" {
		out.WithKey(t.Key)
	}
	if t.Operator != "" {
		out.WithOperator(t.Operator)
	}
	if t.Value != "" {
		out.WithValue(t.Value)
	}
	if t.Effect != "" {
		out.WithEffect(t.Effect)
	}
	if t.TolerationSeconds != nil {
		out.WithTolerationSeconds(*t.TolerationSeconds)
	}
	return out
}

func probe(path string) *corev1ac.ProbeApplyConfiguration {
	return corev1ac.Probe().
		WithHTTPGet(corev1ac.HTTPGetAction().WithPath(path).WithPort(intstr.FromString("http"))).
		WithTimeoutSeconds(5)
}

func containerPort(name string, number int32) *corev1ac.ContainerPortApplyConfiguration {
	return corev1ac.ContainerPort().WithName(name).WithContainerPort(number).WithProtocol(corev1.ProtocolTCP)
}
