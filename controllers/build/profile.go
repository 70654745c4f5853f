package build

import (
	"fmt"
	"strconv"

	"k8s.io/apimachinery/pkg/api/resource"

	corev1 "k8s.io/api/core/v1"
	corev1ac "k8s.io/client-go/applyconfigurations/core/v1"

	"github.com/carillon-mq/carillon/api/v1alpha1"
)

// share is one container's part of a node.
type share struct {
	memoryMi int64
	cpuMilli int64
}

// node is the node that a profile is for, and its shares. Of 2 vCPU and 4 GiB about 940m and 2800Mi
// are left beside the system's pods; a broker and a coordinator must fit there together, with room
// for an operator or a Job.
type node struct {
	cpus        int
	broker      share
	coordinator share
}

var nodes = map[v1alpha1.Profile]node{
	v1alpha1.ProfileSmall:  {cpus: 1, broker: share{640, 200}, coordinator: share{256, 50}},
	v1alpha1.ProfileMedium: {cpus: 2, broker: share{1536, 400}, coordinator: share{512, 100}},
	v1alpha1.ProfileLarge:  {cpus: 4, broker: share{4096, 1200}, coordinator: share{1024, 200}},
	v1alpha1.ProfileXLarge: {cpus: 8, broker: share{9216, 3000}, coordinator: share{1024, 300}},
}

func nodeOf(profile v1alpha1.Profile) node {
	if n, ok := nodes[profile]; ok {
		return n
	}
	return nodes[v1alpha1.ProfileMedium]
}

// resources returns a container's requests and limits. All memory is reserved, since running out of
// it kills. CPU has no limit, since throttling adds latency and idle CPU helps nobody.
func (s share) resources() *corev1ac.ResourceRequirementsApplyConfiguration {
	memory := *resource.NewQuantity(s.memoryMi<<20, resource.BinarySI)
	return corev1ac.ResourceRequirements().
		WithRequests(corev1.ResourceList{
			corev1.ResourceMemory: memory,
			corev1.ResourceCPU:    *resource.NewMilliQuantity(s.cpuMilli, resource.DecimalSI),
		}).
		WithLimits(corev1.ResourceList{corev1.ResourceMemory: memory})
}

// runtimeEnv returns the limits of the Go runtime. It gets 85 % of the memory, since kernel stacks,
// page tables and pages being read from disk count against the container, too.
func (s share) runtimeEnv(cpus int) []*corev1ac.EnvVarApplyConfiguration {
	return []*corev1ac.EnvVarApplyConfiguration{
		corev1ac.EnvVar().WithName("GOMEMLIMIT").WithValue(fmt.Sprintf("%dMiB", s.memoryMi*85/100)),
		corev1ac.EnvVar().WithName("GOMAXPROCS").WithValue(strconv.Itoa(cpus)),
	}
}
