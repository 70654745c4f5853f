package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// StartFrom says where a Subscription begins to read.
// +kubebuilder:validation:Enum=Earliest;Latest;Time;Offset
type StartFrom string

const (
	// StartEarliest begins with the oldest record that is kept.
	StartEarliest StartFrom = "Earliest"
	// StartLatest begins with what comes after the Subscription was made.
	StartLatest StartFrom = "Latest"
	// StartTime begins with the first record that is not older than start.time.
	StartTime StartFrom = "Time"
	// StartOffset begins with start.offset of each shard.
	StartOffset StartFrom = "Offset"
)

// SubscriptionPolicy says what becomes of the cursor when the manifest of its Subscription is
// deleted.
// +kubebuilder:validation:Enum=Retain;Delete
type SubscriptionPolicy string

const (
	// SubscriptionRetained goes on serving the Subscription; a manifest of the same namespace and
	// name adopts it.
	SubscriptionRetained SubscriptionPolicy = "Retain"
	// SubscriptionDeleted deletes the Subscription with its cursor.
	SubscriptionDeleted SubscriptionPolicy = "Delete"
)

// SubscriptionSpec is the durable reader that is asked for.
// +kubebuilder:validation:XValidation:rule="!has(self.deadLetter) || has(self.ack.maxDeliver)",message="deadLetter needs ack.maxDeliver, the number of attempts after which a record goes there; write for example ack: {maxDeliver: 5}"
// +kubebuilder:validation:XValidation:rule="!has(self.deadLetter) || self.deadLetter.topicRef.name != self.topicRef.name",message="deadLetter.topicRef can't be the Topic that is read, or dead letters would be delivered for ever; name another Topic, for example orders-dead"
type SubscriptionSpec struct {
	// TopicRef names the Topic that is read.
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="topicRef can't change: the cursor belongs to that Topic's log; write the former value, or make a new Subscription"
	TopicRef TopicReference `json:"topicRef"`

	// Start is where reading begins when the Subscription is made.
	// +kubebuilder:default={from: Latest}
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="start can't change: it was used when the Subscription was made; write the former value, or make a new Subscription"
	// +optional
	Start StartSpec `json:"start,omitzero"`

	// Reset moves the cursor once, when this is set or changed; taken out it changes nothing. All
	// deliveries and acks are forgotten. A Subscription that is made with it begins there.
	// +optional
	Reset *ResetSpec `json:"reset,omitempty"`

	// Paused means that nothing is delivered. Requests of clients wait, and acks count.
	// +optional
	Paused bool `json:"paused,omitempty"`

	// RateLimit bounds deliveries. Without it there is no limit.
	// +optional
	RateLimit *RateLimitSpec `json:"rateLimit,omitempty"`

	// Filter leaves out records that it does not match.
	// +optional
	Filter *FilterSpec `json:"filter,omitempty"`

	// Ack says how long, how often and how many records may be on their way.
	// +kubebuilder:default={}
	// +optional
	Ack AckSpec `json:"ack,omitzero"`

	// Delivery is how records are brought to a receiver. Without it clients pull, by the
	// Subscription's name.
	// +optional
	Delivery *DeliverySpec `json:"delivery,omitempty"`

	// DeadLetter is where records go that were delivered ack.maxDeliver times without an ack, or that
	// a client terminated. Without it they are dropped.
	// +optional
	DeadLetter *DeadLetterSpec `json:"deadLetter,omitempty"`

	// DeletionPolicy says what becomes of the cursor when this manifest is deleted.
	// +kubebuilder:default=Delete
	// +optional
	DeletionPolicy SubscriptionPolicy `json:"deletionPolicy,omitempty"`
}

// StartSpec is where reading begins.
// +kubebuilder:validation:XValidation:rule="(self.from == 'Time') == has(self.time)",message="write start.from: Time together with start.time, for example 2026-01-31T00:00:00Z, or neither"
// +kubebuilder:validation:XValidation:rule="(self.from == 'Offset') == has(self.offset)",message="write start.from: Offset together with start.offset, for example 0, or neither"
type StartSpec struct {
	// From is the oldest record (Earliest), what comes after (Latest), a time or an offset.
	// +kubebuilder:default=Latest
	// +optional
	From StartFrom `json:"from,omitempty"`

	// Time of the first record, with from: Time.
	// +optional
	Time *metav1.Time `json:"time,omitempty"`

	// Offset of the first record in each shard, with from: Offset.
	// +kubebuilder:validation:Minimum=0
	// +optional
	Offset *int64 `json:"offset,omitempty"`
}

// ResetSpec is where a cursor is moved to.
// +kubebuilder:validation:XValidation:rule="(self.from == 'Time') == has(self.time)",message="write reset.from: Time together with reset.time, for example 2026-01-31T00:00:00Z, or neither"
// +kubebuilder:validation:XValidation:rule="(self.from == 'Offset') == has(self.offset)",message="write reset.from: Offset together with reset.offset, for example 0, or neither"
type ResetSpec struct {
	// ID is any text. A new one repeats a reset that is otherwise the same.
	// +kubebuilder:validation:MaxLength=128
	// +optional
	ID string `json:"id,omitempty"`

	// From is the oldest record (Earliest), what comes after the reset (Latest), a time or an offset.
	From StartFrom `json:"from"`

	// Time of the first record, with from: Time.
	// +optional
	Time *metav1.Time `json:"time,omitempty"`

	// Offset of the first record in each shard, with from: Offset.
	// +kubebuilder:validation:Minimum=0
	// +optional
	Offset *int64 `json:"offset,omitempty"`
}

// RateLimitSpec bounds deliveries.
type RateLimitSpec struct {
	// MessagesPerSecond is the bound for all clients together, redeliveries included. Each shard of
	// the Topic has an equal share.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=1000000
	MessagesPerSecond int32 `json:"messagesPerSecond"`
}

// FilterSpec says which records are delivered.
// +kubebuilder:validation:XValidation:rule="has(self.subjects) || has(self.where)",message="filter needs subjects or where; write for example subjects: [\"orders.eu.>\"], or leave filter out to get everything"
type FilterSpec struct {
	// Subjects of the records, as patterns.
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=64
	// +listType=set
	// +optional
	Subjects []Subject `json:"subjects,omitempty"`

	// Where is a condition on the content of records: a CEL expression over subject, headers, time,
	// attributes and json, the payload. A record that it can't judge does not match.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=4096
	// +optional
	Where string `json:"where,omitempty"`
}

// AckSpec bounds what is on its way to receivers.
// +kubebuilder:validation:XValidation:rule="!has(self.backoff) || !has(self.maxDeliver) || size(self.backoff) < self.maxDeliver",message="ack.backoff must have fewer entries than ack.maxDeliver has attempts, since the first attempt waits for nothing; shorten backoff or raise maxDeliver"
type AckSpec struct {
	// Wait for an ack before a record is delivered again.
	// +kubebuilder:default="30s"
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('100ms') && duration(self) <= duration('24h')",message="ack.wait must be between 100ms and 24h; write for example 30s"
	// +optional
	Wait Duration `json:"wait,omitempty"`

	// MaxDeliver is the number of attempts for each record; without it there is no limit.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=1000
	// +optional
	MaxDeliver *int32 `json:"maxDeliver,omitempty"`

	// MaxPending is the number of records that may be on their way at once.
	// +kubebuilder:default=1000
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=100000
	// +optional
	MaxPending int32 `json:"maxPending,omitempty"`

	// Backoff before the second attempt, the third, and so on; the last entry holds for all that
	// follow.
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:XValidation:rule="self.all(d, duration(d) >= duration('0s') && duration(d) <= duration('24h'))",message="each entry of ack.backoff must be at most 24h; write for example [1s, 5s, 30s]"
	// +listType=atomic
	// +optional
	Backoff []Duration `json:"backoff,omitempty"`
}

// DeadLetterSpec is where records go that nobody acknowledged.
type DeadLetterSpec struct {
	// TopicRef names the Topic that takes them, in this namespace and of the same Broker. Its
	// subjects must take its name followed by any subject, as they do by default.
	TopicRef TopicReference `json:"topicRef"`
}

// SubscriptionStatus is what there is.
type SubscriptionStatus struct {
	// ObservedGeneration is the generation of the spec that this status answers.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// Conditions are Ready; Reconciling, Stalled, Paused, DeadLettersRefused, FallingBehind and
	// EndpointUnreached while they hold.
	// +listType=map
	// +listMapKey=type
	// +optional
	Conditions []metav1.Condition `json:"conditions,omitempty"`

	// Topic is the name by which clients know the Topic that is read; its Subscription has this
	// object's name.
	// +optional
	Topic string `json:"topic,omitempty"`

	// Lag is the number of messages yet to be delivered, as of some half a minute ago at most.
	// +optional
	Lag int64 `json:"lag"`

	// Pending is the number of messages that were delivered and not acknowledged yet.
	// +optional
	Pending int64 `json:"pending"`

	// Redelivered is the number of those that were delivered more than once.
	// +optional
	Redelivered int64 `json:"redelivered"`

	// DeadLettered is the number of messages that were given up and stored in the dead-letter Topic,
	// since the present leaders lead.
	// +optional
	DeadLettered int64 `json:"deadLettered,omitempty"`

	// Members is the number of active members: clients that wait for messages or took some in the
	// last minute, or the endpoint that it pushes to while that takes records. Absent: not known yet.
	// +optional
	Members *int64 `json:"members,omitempty"`
}

// Subscription is a durable reader of a Topic.
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:shortName=csub,categories=carillon
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].reason`
// +kubebuilder:printcolumn:name="Topic",type=string,JSONPath=`.spec.topicRef.name`
// +kubebuilder:printcolumn:name="Lag",type=integer,JSONPath=`.status.lag`
// +kubebuilder:printcolumn:name="Pending",type=integer,JSONPath=`.status.pending`
// +kubebuilder:printcolumn:name="Members",type=integer,JSONPath=`.status.members`,description="Clients that read by it, or the endpoint that it pushes to"
// +kubebuilder:printcolumn:name="Redelivered",type=integer,priority=1,JSONPath=`.status.redelivered`
// +kubebuilder:printcolumn:name="Dead",type=integer,priority=1,JSONPath=`.status.deadLettered`
// +kubebuilder:printcolumn:name="Message",type=string,priority=1,JSONPath=`.status.conditions[?(@.type=="Ready")].message`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:validation:XValidation:rule="self.metadata.name.matches('^[a-z0-9-]{1,128}$')",message="the name of a Subscription has no dots and at most 128 characters, since it is a JetStream consumer name; write for example billing"
type Subscription struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec SubscriptionSpec `json:"spec"`

	// +default={"observedGeneration": -1}
	// +optional
	Status SubscriptionStatus `json:"status,omitzero"`
}

// SubscriptionList is a list of Subscriptions.
// +kubebuilder:object:root=true
type SubscriptionList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []Subscription `json:"items"`
}
