package v1alpha1

import (
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Partitioning says what decides the shard of a record.
// +kubebuilder:validation:Enum=Subject;Tokens
type Partitioning string

const (
	// PartitionBySubject keeps the records of one subject in order.
	PartitionBySubject Partitioning = "Subject"
	// PartitionByTokens keeps records in order whose subjects agree in the partitionTokens.
	PartitionByTokens Partitioning = "Tokens"
)

// Durability says what has happened to a record on every in-sync replica before it is acknowledged.
// +kubebuilder:validation:Enum=Synced;Replicated;Memory
type Durability string

const (
	// DurabilitySynced: it is on disk.
	DurabilitySynced Durability = "Synced"
	// DurabilityReplicated: it is with the operating system, on its way to the disk.
	DurabilityReplicated Durability = "Replicated"
	// DurabilityMemory: it is in memory, and never goes to disk.
	DurabilityMemory Durability = "Memory"
)

// Compaction says whether older messages of a subject go when a newer one comes.
// +kubebuilder:validation:Enum=None;Latest
type Compaction string

const (
	// CompactionNone keeps every message, within the retention.
	CompactionNone Compaction = "None"
	// CompactionLatest keeps the newest message of each subject.
	CompactionLatest Compaction = "Latest"
)

// UncleanElection says whether a replica that may miss acknowledged records can become leader.
// +kubebuilder:validation:Enum=Forbidden;Allowed
type UncleanElection string

const (
	// UncleanElectionForbidden waits for a replica that has every acknowledged record.
	UncleanElectionForbidden UncleanElection = "Forbidden"
	// UncleanElectionAllowed prefers being available to keeping acknowledged records.
	UncleanElectionAllowed UncleanElection = "Allowed"
)

// TopicPolicy says what becomes of the records when the manifest of their Topic is deleted.
// +kubebuilder:validation:Enum=Retain;DeleteIfEmpty;Delete
type TopicPolicy string

const (
	// TopicRetained goes on serving the Topic; a manifest of the same namespace and name adopts it.
	TopicRetained TopicPolicy = "Retain"
	// TopicDeletedIfEmpty deletes the Topic if it holds no records, and retains it otherwise.
	TopicDeletedIfEmpty TopicPolicy = "DeleteIfEmpty"
	// TopicDeleted deletes the Topic with its records.
	TopicDeleted TopicPolicy = "Delete"
)

// Subject is a subject or a pattern with the wildcards * (one token) and > (the rest).
// +kubebuilder:validation:MinLength=1
// +kubebuilder:validation:MaxLength=255
// +kubebuilder:validation:XValidation:rule="self.matches('^([^\\\\s.*>]+|[*])([.]([^\\\\s.*>]+|[*]))*([.]>)?$') || self == '>'",message="a subject is made of tokens with dots between them and no blanks; * stands for one whole token, > only at the end for the rest; write for example orders.*.created or orders.>"
type Subject string

// TopicSpec is the log of subjects that is asked for.
// +kubebuilder:validation:XValidation:rule="has(self.name) == has(oldSelf.name) && (!has(self.name) || self.name == oldSelf.name)",message="spec.name can't change: records and clients go by it; write the former value, or make a new Topic"
// +kubebuilder:validation:XValidation:rule="(self.partitionBy == 'Tokens') == has(self.partitionTokens)",message="write partitionBy: Tokens together with partitionTokens: [2, 3] (positions counted from 1), or neither"
// +kubebuilder:validation:XValidation:rule="self.partitionBy == oldSelf.partitionBy && has(self.partitionTokens) == has(oldSelf.partitionTokens) && (!has(self.partitionTokens) || self.partitionTokens == oldSelf.partitionTokens)",message="partitionBy and partitionTokens can't change: records would lose their order; write the former values, or make a new Topic"
// +kubebuilder:validation:XValidation:rule="!has(self.minInSync) || !has(self.replicas) || self.minInSync <= self.replicas",message="minInSync can't be more than replicas: nothing could ever be acknowledged; write a majority, for example replicas: 3 with minInSync: 2"
// +kubebuilder:validation:XValidation:rule="!has(oldSelf.messageTTL) || has(self.messageTTL)",message="messageTTL can't be taken out: messages with a TTL would stay for ever; write messageTTL: {}, or make a new Topic"
// +kubebuilder:validation:XValidation:rule="oldSelf.schedules != 'Allowed' || self.schedules == 'Allowed'",message="schedules can't be forbidden again: scheduled messages would never come; write schedules: Allowed, or make a new Topic"
// +kubebuilder:validation:XValidation:rule="self.counters == oldSelf.counters",message="counters can't change: messages of both kinds can't be added up; write the former value, or make a new Topic"
// +kubebuilder:validation:XValidation:rule="!has(self.mirror) || has(oldSelf.mirror) && self.mirror == oldSelf.mirror",message="mirror can't be added or changed: a mirror has the sequences of its Topic; write the former value, or make a new Topic. Taken out, it becomes a Topic of its own"
// +kubebuilder:validation:XValidation:rule="!has(self.mirror) || !has(self.subjects) && !has(self.sources)",message="a mirror has the subjects of its Topic and no other sources; leave subjects and sources out"
// +kubebuilder:validation:XValidation:rule="self.shards == 1 || !has(self.mirror) || !has(self.mirror.transforms) || self.mirror.transforms.all(t, !has(t.destination))",message="a mirror with several shards can't store messages under other subjects: they are in the shard of their former ones, and nobody would find them; leave destination out, or write sources instead of mirror"
// +kubebuilder:validation:XValidation:rule="self.shards == 1 || self.schedules != 'Allowed' && self.atomicBatches != 'Allowed'",message="schedules and atomicBatches need shards: 1, since their messages may belong into several shards; write shards: 1, or leave them out"
// +kubebuilder:validation:XValidation:rule="self.atomicBatches != 'Allowed' || self.durability != 'Replicated'",message="atomicBatches need durability Synced or Memory: a power cut could leave half of a batch; write durability: Synced"
// +kubebuilder:validation:XValidation:rule="self.counters != 'Allowed' || !has(self.messageTTL) && self.schedules != 'Allowed' && !has(self.sources)",message="a Topic of counters has no messageTTL, schedules or sources; leave them out, or counters"
// +kubebuilder:validation:XValidation:rule="!has(self.mirror) || !has(self.messageTTL) || !has(self.messageTTL.markerTTL)",message="a mirror has no markers of its own, which would take sequences; leave messageTTL.markerTTL out"
type TopicSpec struct {
	// Name by which clients know the Topic; metadata.name if it is absent. It is a JetStream stream
	// name.
	// +kubebuilder:validation:XValidation:rule="self.matches('^[A-Za-z0-9_-]{1,128}$')",message="spec.name is made of at most 128 letters, digits, hyphens and underscores, since it is a JetStream stream name; write for example orders"
	// +kubebuilder:validation:XValidation:rule="!self.matches('--[0-9]+$')",message="spec.name can't end in two hyphens and a number, which is how the shards of a Topic are named; write for example orders-1"
	// +kubebuilder:validation:MaxLength=253
	// +optional
	Name string `json:"name,omitempty"`

	// BrokerRef names the Broker that serves the Topic.
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="brokerRef can't change: records don't move between Brokers; write the former value, or make a new Topic"
	BrokerRef BrokerReference `json:"brokerRef"`

	// Subjects whose messages the Topic keeps; its name, and everything below it, if they are absent.
	// With mirror or sources none are kept then.
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:XValidation:rule="self.all(s, s != '>' && !s.startsWith('$') && !s.startsWith('_INBOX.'))",message="a Topic can't keep >, $... or _INBOX. subjects, which carry the protocol's own messages; write for example orders.>"
	// +listType=set
	// +optional
	Subjects []Subject `json:"subjects,omitempty"`

	// Shards is the number of logs that the subjects are divided over.
	// +kubebuilder:default=1
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=1024
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="shards can't change: records would lose their order; write the former value, or make a new Topic"
	// +optional
	Shards int32 `json:"shards,omitempty"`

	// PartitionBy says what decides the shard of a record: its whole subject, or the
	// partitionTokens of it.
	// +kubebuilder:default=Subject
	// +optional
	PartitionBy Partitioning `json:"partitionBy,omitempty"`

	// PartitionTokens are positions in the subject, counted from 1.
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=8
	// +kubebuilder:validation:items:Minimum=1
	// +kubebuilder:validation:items:Maximum=32
	// +listType=set
	// +optional
	PartitionTokens []int32 `json:"partitionTokens,omitempty"`

	// Replicas of each shard, each on another broker; 3 if it is absent, or spec.replicas of the
	// Broker if that is less.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=5
	// +optional
	Replicas *int32 `json:"replicas,omitempty"`

	// MinInSync is the number of replicas that must be in sync for a record to be acknowledged; a
	// majority if it is absent.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=5
	// +optional
	MinInSync *int32 `json:"minInSync,omitempty"`

	// Durability says what has happened to a record on every in-sync replica before it is
	// acknowledged: it is on disk (Synced), with the operating system (Replicated), or in memory
	// (Memory).
	// +kubebuilder:default=Synced
	// +optional
	Durability Durability `json:"durability,omitempty"`

	// Retention says when old records go. Without it they stay.
	// +optional
	Retention *RetentionSpec `json:"retention,omitempty"`

	// Compaction Latest keeps only the newest message of each subject.
	// +kubebuilder:default=None
	// +optional
	Compaction Compaction `json:"compaction,omitempty"`

	// Deduplication drops a message whose Nats-Msg-Id came before.
	// +optional
	Deduplication *DeduplicationSpec `json:"deduplication,omitempty"`

	// MessageTTL lets messages have a time to live of their own, by the header Nats-TTL. It can't be
	// taken out again.
	// +optional
	MessageTTL *MessageTTLSpec `json:"messageTTL,omitempty"`

	// Republish publishes again what is stored, under other subjects.
	// +optional
	Republish *RepublishSpec `json:"republish,omitempty"`

	// Mirror is the Topic that this one is a copy of, with its sequences, and as many shards. Nobody
	// can publish into it.
	// +optional
	Mirror *TopicSourceSpec `json:"mirror,omitempty"`

	// Sources are Topics whose messages are copied into this one, each into the shard of its subject.
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=64
	// +listType=atomic
	// +optional
	Sources []TopicSourceSpec `json:"sources,omitempty"`

	// Schedules Allowed lets clients publish messages that come later or again and again, by the
	// header Nats-Schedule. It can't be forbidden again.
	// +kubebuilder:default=Forbidden
	// +optional
	Schedules Permission `json:"schedules,omitempty"`

	// Counters Allowed makes each subject a counter, to which messages add by the header Nats-Incr.
	// +kubebuilder:default=Forbidden
	// +optional
	Counters Permission `json:"counters,omitempty"`

	// AtomicBatches Allowed lets clients publish messages that are kept together or not at all.
	// +kubebuilder:default=Forbidden
	// +optional
	AtomicBatches Permission `json:"atomicBatches,omitempty"`

	// Attributes of subjects that the Topic keeps. They stay until they are taken out here.
	// +kubebuilder:validation:MaxItems=50
	// +listType=map
	// +listMapKey=subject
	// +optional
	Attributes []SubjectAttributes `json:"attributes,omitempty"`

	// UncleanElection Allowed prefers being available to keeping acknowledged records.
	// +kubebuilder:default=Forbidden
	// +optional
	UncleanElection UncleanElection `json:"uncleanElection,omitempty"`

	// DeletionPolicy says what becomes of the records when this manifest is deleted.
	// +kubebuilder:default=Retain
	// +optional
	DeletionPolicy TopicPolicy `json:"deletionPolicy,omitempty"`
}

// SubjectAttributes are attributes of a subject.
type SubjectAttributes struct {
	// Subject that the Topic keeps, without wildcards.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=1024
	// +kubebuilder:validation:XValidation:rule="self.matches('^[^ .*>]+([.][^ .*>]+)*$')",message="the subject of attributes has no wildcards and no empty parts; write for example sensors.7"
	// +kubebuilder:validation:XValidation:rule="!self.startsWith('$') && !self.startsWith('_INBOX.')",message="subjects that begin with $ or _INBOX. have no attributes; write for example sensors.7"
	Subject string `json:"subject"`

	// Set are names with values: strings, numbers, booleans, and lists of these. A name has letters,
	// digits, _, . and -, and begins with a letter or _.
	// +kubebuilder:validation:MinProperties=1
	// +kubebuilder:validation:MaxProperties=256
	Set map[string]apiextensionsv1.JSON `json:"set"`
}

// RetentionSpec says when old records go: when any of its limits is exceeded.
// +kubebuilder:validation:XValidation:rule="has(self.age) || has(self.bytes) || has(self.messages) || has(self.messagesPerSubject)",message="retention needs age, bytes, messages or messagesPerSubject; write for example age: 168h, or leave retention out to keep everything"
type RetentionSpec struct {
	// Age at which a record goes.
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('1s')",message="retention.age must be at least 1s; write for example 168h"
	// +optional
	Age Duration `json:"age,omitempty"`

	// Bytes that each shard may hold.
	// +kubebuilder:validation:XValidation:rule="isQuantity(string(self)) && quantity(string(self)).compareTo(quantity('1Mi')) >= 0",message="retention.bytes must be at least 1Mi; write for example 10Gi"
	// +optional
	Bytes *resource.Quantity `json:"bytes,omitempty"`

	// Messages that each shard may hold.
	// +kubebuilder:validation:Minimum=1
	// +optional
	Messages *int64 `json:"messages,omitempty"`

	// MessagesPerSubject that are kept of each subject. A newer one removes the oldest at once.
	// +kubebuilder:validation:Minimum=1
	// +optional
	MessagesPerSubject *int64 `json:"messagesPerSubject,omitempty"`
}

// DeduplicationSpec says how long the ids of messages are remembered.
type DeduplicationSpec struct {
	// Window for which each shard remembers ids.
	// +kubebuilder:default="2m"
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('100ms') && duration(self) <= duration('24h')",message="deduplication.window must be between 100ms and 24h; write for example 2m"
	// +optional
	Window Duration `json:"window,omitempty"`
}

// TopicStatus is what there is.
type TopicStatus struct {
	// ObservedGeneration is the generation of the spec that this status answers.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// Conditions are Ready; Reconciling, Stalled, RetentionPaused, DurabilityReduced,
	// UncleanElection and AttributesRefused while they hold.
	// +listType=map
	// +listMapKey=type
	// +optional
	Conditions []metav1.Condition `json:"conditions,omitempty"`

	// Name by which clients know the Topic.
	// +optional
	Name string `json:"name,omitempty"`

	// ID of the Topic, under which brokers keep its records; one that is made again has another.
	// +optional
	ID string `json:"id,omitempty"`

	// Subjects whose messages it keeps.
	// +listType=atomic
	// +optional
	Subjects []string `json:"subjects,omitempty"`

	// Replicas of each shard.
	// +optional
	Replicas int32 `json:"replicas,omitempty"`

	// MinInSync is the number of replicas that must be in sync for a record to be acknowledged.
	// +optional
	MinInSync int32 `json:"minInSync,omitempty"`

	// InSync says how many replicas have everything that was acknowledged, of how many: 3/3.
	// +optional
	InSync string `json:"inSync,omitempty"`

	// Leader is the broker that takes the Topic's records, with several shards those of the first;
	// the one that did last if none does now.
	// +optional
	Leader *LeaderStatus `json:"leader,omitempty"`

	// LedBy are the names of the brokers that lead its shards, each with how many if it leads
	// several: main-0(2),main-1.
	// +optional
	LedBy string `json:"ledBy,omitempty"`

	// Brokers that the Topic's records are on.
	// +listType=atomic
	// +optional
	Brokers []ReplicaStatus `json:"brokers,omitempty"`

	// Messages that it holds, as of some half a minute ago at most.
	// +optional
	Messages int64 `json:"messages"`

	// Bytes that they take on each replica's disk.
	// +optional
	Bytes int64 `json:"bytes"`
}

// LeaderStatus is the broker that leads a shard.
type LeaderStatus struct {
	// Name of its pod.
	// +optional
	Name string `json:"name,omitempty"`

	// ID of the broker, which stays with its volume.
	ID string `json:"id"`
}

// ReplicaStatus is a broker that has a replica.
type ReplicaStatus struct {
	// Name of its pod.
	// +optional
	Name string `json:"name,omitempty"`

	// ID of the broker, which stays with its volume.
	ID string `json:"id"`

	// InSync says that it is there and has everything that was acknowledged.
	// +optional
	InSync bool `json:"inSync"`
}

// NameOf is the name of a broker that was written down last; empty: none was.
func (s *TopicStatus) NameOf(id string) string {
	for _, r := range s.Brokers {
		if r.ID == id {
			return r.Name
		}
	}
	if s.Leader != nil && s.Leader.ID == id {
		return s.Leader.Name
	}
	return ""
}

// Topic is a named, sharded, replicated log of subjects.
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:shortName=ctopic,categories=carillon
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].reason`
// +kubebuilder:printcolumn:name="Shards",type=integer,JSONPath=`.spec.shards`
// +kubebuilder:printcolumn:name="Leader",type=string,JSONPath=`.status.ledBy`,description="Brokers that lead its shards, each with how many if it leads several"
// +kubebuilder:printcolumn:name="In sync",type=string,JSONPath=`.status.inSync`,description="Replicas that have everything that was acknowledged, of all"
// +kubebuilder:printcolumn:name="Messages",type=integer,JSONPath=`.status.messages`
// +kubebuilder:printcolumn:name="Broker",type=string,priority=1,JSONPath=`.spec.brokerRef.name`
// +kubebuilder:printcolumn:name="Bytes",type=integer,priority=1,JSONPath=`.status.bytes`
// +kubebuilder:printcolumn:name="Message",type=string,priority=1,JSONPath=`.status.conditions[?(@.type=="Ready")].message`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:validation:XValidation:rule="has(self.spec.name) || (self.metadata.name.matches('^[a-z0-9-]{1,128}$') && !self.metadata.name.matches('--[0-9]+$'))",message="the name of a Topic has no dots, at most 128 characters, and no two hyphens and a number at its end, since it is a JetStream stream name; set spec.name, or write for example orders"
type Topic struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec TopicSpec `json:"spec"`

	// +default={"observedGeneration": -1}
	// +optional
	Status TopicStatus `json:"status,omitzero"`
}

// TopicList is a list of Topics.
// +kubebuilder:object:root=true
type TopicList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []Topic `json:"items"`
}
