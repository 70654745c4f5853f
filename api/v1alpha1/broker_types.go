package v1alpha1

import (
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	corev1 "k8s.io/api/core/v1"
)

// Profile is the commodity node that a broker is to fit on, beside the system's pods and a
// coordinator.
// +kubebuilder:validation:Enum=small;medium;large;xlarge
type Profile string

const (
	// ProfileSmall fits a node with 1 vCPU and 2 GiB.
	ProfileSmall Profile = "small"
	// ProfileMedium fits a node with 2 vCPU and 4 GiB.
	ProfileMedium Profile = "medium"
	// ProfileLarge fits a node with 4 vCPU and 8 GiB.
	ProfileLarge Profile = "large"
	// ProfileXLarge fits a node with 8 vCPU and 16 GiB.
	ProfileXLarge Profile = "xlarge"
)

// UpdatePolicy says who decides when running pods are replaced because of a change.
// +kubebuilder:validation:Enum=Automatic;OnRequest
type UpdatePolicy string

const (
	// UpdateAutomatic replaces pods one at a time as soon as a change asks for it.
	UpdateAutomatic UpdatePolicy = "Automatic"
	// UpdateOnRequest leaves pods as they are, and the change as RestartPending, until
	// AnnotationRestart asks.
	UpdateOnRequest UpdatePolicy = "OnRequest"
)

// VolumePolicy says what becomes of the volumes when their Broker is deleted.
// +kubebuilder:validation:Enum=Retain;Delete
type VolumePolicy string

const (
	// VolumesRetained leaves the volume claims; a Broker of the same name takes them up again.
	VolumesRetained VolumePolicy = "Retain"
	// VolumesDeleted removes the volume claims with the Broker.
	VolumesDeleted VolumePolicy = "Delete"
)

// BrokerSpec is the cluster of brokers that is asked for.
type BrokerSpec struct {
	// Replicas is the number of brokers. When there are to be fewer, those with the highest numbers
	// first hand over what they hold; that is Stalled with ScaleDownBlocked while a Topic asks for
	// more replicas than there would be brokers.
	// +kubebuilder:default=3
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=32
	// +optional
	Replicas *int32 `json:"replicas,omitempty"`

	// Profile is the node that a broker is to fit on: small (1 vCPU, 2 GiB), medium (2, 4), large
	// (4, 8), xlarge (8, 16). It decides CPU, memory and the broker's limits.
	// +kubebuilder:default=medium
	// +optional
	Profile Profile `json:"profile,omitempty"`

	// Storage is the volume of each broker.
	// +kubebuilder:default={}
	// +optional
	Storage StorageSpec `json:"storage,omitzero"`

	// Coordination is where the cluster keeps what its members must agree on.
	// +kubebuilder:default={managed: {}}
	// +optional
	Coordination CoordinationSpec `json:"coordination,omitzero"`

	// Auth is what clients must present. Without it everyone who reaches the brokers may use them,
	// and the condition Open says so.
	// +optional
	Auth *AuthSpec `json:"auth,omitempty"`

	// TLS is that of clients. Without it they connect in plaintext. Links between brokers, and etcd,
	// always use mutual TLS.
	// +optional
	TLS *ClientTLSSpec `json:"tls,omitempty"`

	// WebSocket is a port for NATS clients by WebSocket, 8080: wss:// with spec.tls, ws:// without.
	// Without it there is no such port.
	// +optional
	WebSocket *WebSocketSpec `json:"websocket,omitempty"`

	// Placement is where the pods may run, and what is written on them.
	// +optional
	Placement *PlacementSpec `json:"placement,omitempty"`

	// Push says where brokers may send records of Subscriptions with delivery.push.
	// +optional
	Push *BrokerPushSpec `json:"push,omitempty"`

	// Update says whether new images, profiles and the like replace pods at once (Automatic), or
	// wait as RestartPending until the annotation carillon.dev/restart is set to a new value
	// (OnRequest).
	// +kubebuilder:default=Automatic
	// +optional
	Update UpdatePolicy `json:"update,omitempty"`

	// DeletionPolicy says whether the volumes outlive the Broker, and a broker that is not wanted
	// any more.
	// +kubebuilder:default=Retain
	// +optional
	DeletionPolicy VolumePolicy `json:"deletionPolicy,omitempty"`
}

// StorageSpec is the volume of one broker.
// +kubebuilder:validation:XValidation:rule="has(self.className) == has(oldSelf.className) && (!has(self.className) || self.className == oldSelf.className)",message="storage.className can't change: volumes don't move between classes; write the former value, or make a new Broker"
type StorageSpec struct {
	// Size of the volume. It can only grow.
	// +kubebuilder:default="10Gi"
	// +kubebuilder:validation:XValidation:rule="isQuantity(string(self)) && quantity(string(self)).compareTo(quantity('1Gi')) >= 0",message="storage.size must be at least 1Gi; write for example 20Gi"
	// +kubebuilder:validation:XValidation:rule="!isQuantity(string(self)) || !isQuantity(string(oldSelf)) || quantity(string(self)).compareTo(quantity(string(oldSelf))) >= 0",message="storage.size can only grow; write the former size or more"
	// +optional
	Size resource.Quantity `json:"size,omitempty"`

	// ClassName is the StorageClass; the cluster's default class if it is absent.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +optional
	ClassName *string `json:"className,omitempty"`
}

// CoordinationSpec says which etcd the brokers use. Only an etcd that the operator runs is served.
type CoordinationSpec struct {
	// Managed is an etcd of the Broker's own, run by the operator.
	// +kubebuilder:default={}
	// +optional
	Managed ManagedCoordination `json:"managed,omitzero"`
}

// ManagedCoordination is an etcd that the operator runs for one Broker.
type ManagedCoordination struct {
	// Replicas is the number of members: 1, 3 or 5. With 3 one may fail, with 5 two.
	// +kubebuilder:default=3
	// +kubebuilder:validation:XValidation:rule="self in [1, 3, 5]",message="coordination.managed.replicas must be 1, 3 or 5: an even number of members tolerates no more failures than one less"
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="coordination.managed.replicas can't change; write the former value, or make a new Broker"
	// +optional
	Replicas int32 `json:"replicas,omitempty"`

	// Storage is the volume of each member.
	// +kubebuilder:default={}
	// +optional
	Storage CoordinationStorageSpec `json:"storage,omitzero"`
}

// CoordinationStorageSpec is the volume of one coordination member.
// +kubebuilder:validation:XValidation:rule="has(self.className) == has(oldSelf.className) && (!has(self.className) || self.className == oldSelf.className)",message="coordination.managed.storage.className can't change: volumes don't move between classes; write the former value, or make a new Broker"
type CoordinationStorageSpec struct {
	// Size of the volume. It can only grow.
	// +kubebuilder:default="2Gi"
	// +kubebuilder:validation:XValidation:rule="isQuantity(string(self)) && quantity(string(self)).compareTo(quantity('1Gi')) >= 0",message="coordination.managed.storage.size must be at least 1Gi; write for example 2Gi"
	// +kubebuilder:validation:XValidation:rule="!isQuantity(string(self)) || !isQuantity(string(oldSelf)) || quantity(string(self)).compareTo(quantity(string(oldSelf))) >= 0",message="coordination.managed.storage.size can only grow; write the former size or more"
	// +optional
	Size resource.Quantity `json:"size,omitempty"`

	// ClassName is the StorageClass; that of the brokers if it is absent.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +optional
	ClassName *string `json:"className,omitempty"`
}

// BrokerPushSpec says where brokers may send records.
type BrokerPushSpec struct {
	// AllowedAddresses are sent to although they are loopback or link-local addresses, or those of the
	// API server, the coordinators or the brokers. All other addresses are allowed anyway.
	// +kubebuilder:validation:MaxItems=32
	// +kubebuilder:validation:items:MaxLength=64
	// +kubebuilder:validation:XValidation:rule="self.all(a, isCIDR(a))",message="each entry of push.allowedAddresses must be a network; write for example 10.1.2.3/32 or fd00::/8"
	// +listType=atomic
	// +optional
	AllowedAddresses []string `json:"allowedAddresses,omitempty"`
}

// PlacementSpec is the part of a pod template that is the user's to choose, for brokers and
// coordinators alike.
type PlacementSpec struct {
	// NodeSelector keeps the pods to nodes with these labels.
	// +kubebuilder:validation:MaxProperties=32
	// +optional
	NodeSelector map[string]string `json:"nodeSelector,omitempty"`

	// Tolerations let the pods run on nodes with these taints.
	// +kubebuilder:validation:MaxItems=32
	// +listType=atomic
	// +optional
	Tolerations []corev1.Toleration `json:"tolerations,omitempty"`

	// PriorityClassName of the pods.
	// +kubebuilder:validation:MaxLength=253
	// +optional
	PriorityClassName string `json:"priorityClassName,omitempty"`

	// Labels are added to the pods.
	// +kubebuilder:validation:MaxProperties=32
	// +kubebuilder:validation:XValidation:rule="self.all(k, !k.startsWith('carillon.dev/') && !k.startsWith('app.kubernetes.io/') && !k.startsWith('apps.kubernetes.io/') && !k.startsWith('topology.kubernetes.io/'))",message="placement.labels can't set carillon.dev/, app.kubernetes.io/, apps.kubernetes.io/ or topology.kubernetes.io/ labels, which are the operator's and the cluster's; use a prefix of your own"
	// +optional
	Labels map[string]string `json:"labels,omitempty"`

	// Annotations are added to the pods.
	// +kubebuilder:validation:MaxProperties=32
	// +kubebuilder:validation:XValidation:rule="self.all(k, !k.startsWith('carillon.dev/'))",message="placement.annotations can't set carillon.dev/ annotations, which are the operator's; use a prefix of your own"
	// +optional
	Annotations map[string]string `json:"annotations,omitempty"`
}

// BrokerStatus is what there is.
type BrokerStatus struct {
	// ObservedGeneration is the generation of the spec that this status answers.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// Endpoint is the URL for clients inside the cluster. It begins with tls:// if they must use
	// TLS, once all brokers do.
	// +optional
	Endpoint string `json:"endpoint,omitempty"`

	// Replicas is the number of brokers that there are.
	// +optional
	Replicas int32 `json:"replicas"`

	// ReadyReplicas is the number of brokers that are ready.
	// +optional
	ReadyReplicas int32 `json:"readyReplicas"`

	// Users is the number of users that may connect, of a Broker with auth.users. It is absent until
	// they are written.
	// +optional
	Users *int32 `json:"users,omitempty"`

	// Selector selects the brokers' pods, for the scale subresource.
	// +optional
	Selector string `json:"selector,omitempty"`

	// Shards are those of all Topics.
	// +optional
	Shards ShardsStatus `json:"shards,omitzero"`

	// Coordination is the state of the managed etcd.
	// +optional
	Coordination CoordinationStatus `json:"coordination,omitzero"`

	// Profile is the profile that the pods are made from.
	// +optional
	Profile Profile `json:"profile,omitempty"`

	// Image is the image that the pods are made from.
	// +optional
	Image string `json:"image,omitempty"`

	// Restart is the last value of the annotation carillon.dev/restart that was taken up.
	// +optional
	Restart string `json:"restart,omitempty"`

	// Conditions are Ready; Reconciling, Stalled, UnderReplicated, EtcdRestored, RestartPending,
	// UsersInvalid and Open while they hold.
	// +listType=map
	// +listMapKey=type
	// +optional
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// ShardsStatus counts the shards of all Topics.
type ShardsStatus struct {
	// Total is the number of shards.
	// +optional
	Total int32 `json:"total"`

	// UnderReplicated is the number of those that have a leader, and not all their replicas in sync.
	// +optional
	UnderReplicated int32 `json:"underReplicated"`

	// Leaderless is the number of those that nobody leads.
	// +optional
	Leaderless int32 `json:"leaderless"`
}

// CoordinationStatus is the state of the managed etcd.
type CoordinationStatus struct {
	// Replicas is the number of members that there are.
	// +optional
	Replicas int32 `json:"replicas"`

	// ReadyReplicas is the number of members that are ready.
	// +optional
	ReadyReplicas int32 `json:"readyReplicas"`

	// EtcdGeneration is how often etcd was restored from a backup, as brokers noticed it. It is
	// absent while that is unknown.
	// +optional
	EtcdGeneration *int64 `json:"etcdGeneration,omitempty"`

	// RestoredAt is when the operator saw that brokers had noticed the last restore. It is absent
	// if it saw none.
	// +optional
	RestoredAt *metav1.Time `json:"restoredAt,omitempty"`
}

// Broker is a cluster of brokers that speaks the NATS protocol, with the etcd that coordinates it.
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:subresource:scale:specpath=.spec.replicas,statuspath=.status.replicas,selectorpath=.status.selector
// +kubebuilder:resource:shortName=cbroker,categories=carillon
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].reason`
// +kubebuilder:printcolumn:name="Brokers",type=integer,JSONPath=`.status.readyReplicas`,description="Brokers that are ready"
// +kubebuilder:printcolumn:name="Desired",type=integer,JSONPath=`.spec.replicas`,description="Brokers that are asked for"
// +kubebuilder:printcolumn:name="Coordinators",type=integer,JSONPath=`.status.coordination.readyReplicas`,description="Coordination members that are ready"
// +kubebuilder:printcolumn:name="Shards",type=integer,priority=1,JSONPath=`.status.shards.total`
// +kubebuilder:printcolumn:name="Under-replicated",type=integer,priority=1,JSONPath=`.status.shards.underReplicated`
// +kubebuilder:printcolumn:name="Leaderless",type=integer,priority=1,JSONPath=`.status.shards.leaderless`
// +kubebuilder:printcolumn:name="Profile",type=string,priority=1,JSONPath=`.status.profile`
// +kubebuilder:printcolumn:name="Endpoint",type=string,priority=1,JSONPath=`.status.endpoint`
// +kubebuilder:printcolumn:name="Message",type=string,priority=1,JSONPath=`.status.conditions[?(@.type=="Ready")].message`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:validation:XValidation:rule="self.metadata.name.matches('^[a-z]([-a-z0-9]{0,38}[a-z0-9])?$')",message="the name of a Broker is at most 40 lower-case letters, digits and hyphens, begins with a letter and ends with a letter or digit, since pods and DNS names are made from it; write for example main"
// +kubebuilder:validation:XValidation:rule="!self.metadata.name.matches('-(brokers|coordinators?)$')",message="the name of a Broker can't end in -brokers, -coordinator or -coordinators, which are the names of another Broker's parts; write for example main"
type Broker struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// +kubebuilder:default={}
	// +optional
	Spec BrokerSpec `json:"spec,omitzero"`

	// +default={"observedGeneration": -1}
	// +optional
	Status BrokerStatus `json:"status,omitzero"`
}

// BrokerList is a list of Brokers.
// +kubebuilder:object:root=true
type BrokerList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []Broker `json:"items"`
}
