package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// ViewPolicy says what becomes of a View when its manifest is deleted. What it has written stays.
// +kubebuilder:validation:Enum=Retain;Delete
type ViewPolicy string

const (
	// ViewRetained keeps the View up to date; a manifest of the same namespace and name adopts it.
	ViewRetained ViewPolicy = "Retain"
	// ViewDeleted ends the View.
	ViewDeleted ViewPolicy = "Delete"
)

// ViewSpec is the result that is kept up to date.
// +kubebuilder:validation:XValidation:rule="has(self.window) == has(self.output)",message="window and output go together: each closed window is a message of output.topicRef; write both, or neither to have present values only"
// +kubebuilder:validation:XValidation:rule="!has(self.output) || self.output.topicRef.name != self.topicRef.name",message="output.topicRef can't be the Topic that is read, or results would come back for ever; name another Topic, for example room-means"
// +kubebuilder:validation:XValidation:rule="!has(self.triggers) || self.triggers.all(t, t.output.topicRef.name != self.topicRef.name)",message="the output.topicRef of a trigger can't be the Topic that is read, or alerts would come back for ever; name another Topic, for example alerts"
type ViewSpec struct {
	// TopicRef names the Topic that is read.
	TopicRef TopicReference `json:"topicRef"`

	// Filter leaves out messages that it does not match.
	// +optional
	Filter *ViewFilterSpec `json:"filter,omitempty"`

	// By are the CEL expressions of the key, with commas: there is a result for each combination of
	// their values. Without it there is one result.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=4096
	// +optional
	By string `json:"by,omitempty"`

	// Window divides the time. Without it results are of all messages.
	// +optional
	Window *WindowSpec `json:"window,omitempty"`

	// Values are functions by the names of their results: count(), sum(E), mean(E), min(E), max(E),
	// median(E), p99(E), distinct(E).
	// +kubebuilder:validation:MinProperties=1
	// +kubebuilder:validation:MaxProperties=32
	Values map[string]ViewValue `json:"values"`

	// Output takes each closed window.
	// +optional
	Output *ViewOutputSpec `json:"output,omitempty"`

	// Triggers say which results are worth an alert.
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=16
	// +listType=map
	// +listMapKey=name
	// +optional
	Triggers []TriggerSpec `json:"triggers,omitempty"`

	// DeletionPolicy says what becomes of the View when this manifest is deleted.
	// +kubebuilder:default=Delete
	// +optional
	DeletionPolicy ViewPolicy `json:"deletionPolicy,omitempty"`
}

// ViewValue is a function, such as mean(json.celsius).
// +kubebuilder:validation:MinLength=1
// +kubebuilder:validation:MaxLength=4096
type ViewValue string

// ViewFilterSpec says which messages a View is computed of.
// +kubebuilder:validation:XValidation:rule="has(self.subjects) || has(self.where)",message="filter needs subjects or where; write for example subjects: [\"sensors.>\"], or leave filter out to have all messages"
type ViewFilterSpec struct {
	// Subjects of the messages, as patterns.
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=32
	// +listType=set
	// +optional
	Subjects []Subject `json:"subjects,omitempty"`

	// Where is a condition on the content of messages: a CEL expression over subject, headers, time,
	// attributes and json, the payload. A message that it can't judge is in no result, and is
	// counted.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=4096
	// +optional
	Where string `json:"where,omitempty"`
}

// WindowSpec says which windows there are.
// +kubebuilder:validation:XValidation:rule="[has(self.tumbling), has(self.sliding), has(self.session)].filter(x, x).size() == 1",message="window needs one of tumbling, sliding and session; write for example tumbling: 1m"
type WindowSpec struct {
	// Tumbling is the length of windows that follow each other.
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('1ms') && duration(self) <= duration('175200h')",message="window.tumbling must be between 1ms and 175200h; write for example 1m"
	// +optional
	Tumbling Duration `json:"tumbling,omitempty"`

	// Sliding are windows that overlap.
	// +optional
	Sliding *SlidingSpec `json:"sliding,omitempty"`

	// Session is the time without a message of its key after which a session ends.
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('1ms') && duration(self) <= duration('175200h')",message="window.session must be between 1ms and 175200h; write for example 30s"
	// +optional
	Session Duration `json:"session,omitempty"`

	// Time is the CEL expression of a message's time, such as json.at: a time, a text in RFC 3339, or
	// seconds since 1970. Without it that is when the message was stored.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=4096
	// +optional
	Time string `json:"time,omitempty"`

	// Lateness is how much earlier than the latest time of its shard a message's time may be.
	// +kubebuilder:default="0s"
	// +kubebuilder:validation:XValidation:rule="duration(self) <= duration('175200h')",message="window.lateness must be at most 175200h; write for example 10s"
	// +optional
	Lateness Duration `json:"lateness,omitempty"`

	// Idle is after how long a shard without messages is passed over. Without it the shard is waited
	// for.
	// +kubebuilder:validation:XValidation:rule="duration(self) > duration('0s') && duration(self) <= duration('175200h')",message="window.idle must be more than 0s and at most 175200h; write for example 30s, or leave it out to wait"
	// +optional
	Idle Duration `json:"idle,omitempty"`
}

// SlidingSpec are windows of a size that begin at multiples of another time.
// +kubebuilder:validation:XValidation:rule="duration(self.every) <= duration(self.size)",message="window.sliding.every must be at most window.sliding.size, or messages in between would be in no window; write for example {size: 1m, every: 10s}"
type SlidingSpec struct {
	// Size is the length of a window.
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('1ms') && duration(self) <= duration('175200h')",message="window.sliding.size must be between 1ms and 175200h; write for example 1m"
	Size Duration `json:"size"`

	// Every is how long one window begins after another. A message is in at most 100 windows.
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('1ms')",message="window.sliding.every must be at least 1ms; write for example 10s"
	Every Duration `json:"every"`
}

// ViewOutputSpec is where results or alerts go.
type ViewOutputSpec struct {
	// TopicRef names the Topic that takes them, in this namespace and of the same Broker.
	TopicRef TopicReference `json:"topicRef"`
}

// TriggerSpec says when a result raises an alert, and when it clears it.
type TriggerSpec struct {
	// Name of the trigger, in its alerts and their subjects.
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`
	Name string `json:"name"`

	// When is the condition that raises an alert: a CEL expression over the names of the values, which
	// are doubles: mean > 30.0.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=4096
	When string `json:"when"`

	// Until is the condition that clears it. Without it that is when "when" is false.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=4096
	// +optional
	Until string `json:"until,omitempty"`

	// Output takes a message for each change.
	Output ViewOutputSpec `json:"output"`

	// Events has the operator write a Kubernetes event about this View for each change, with a bounded
	// rate. Without it the operator does not read the alerts.
	// +optional
	Events bool `json:"events,omitempty"`
}

// ViewStatus is what there is.
type ViewStatus struct {
	// ObservedGeneration is the generation of the spec that this status answers.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// Conditions are Ready; Reconciling, Stalled, HeldUp and AlertsUnread while they hold.
	// +listType=map
	// +listMapKey=type
	// +optional
	Conditions []metav1.Condition `json:"conditions,omitempty"`

	// Topic is the name by which clients know the Topic that is read; the View has this object's name.
	// +optional
	Topic string `json:"topic,omitempty"`

	// Keys is the number of keys, as of some half a minute ago at most, as all numbers here.
	// +optional
	Keys int64 `json:"keys"`

	// Watermark is the time up to which windows are closed.
	// +optional
	Watermark *metav1.Time `json:"watermark,omitempty"`

	// Late is the number of messages that came too late for a window, counted once for each window.
	// +optional
	Late int64 `json:"late"`

	// Failed is how often the filter, or a trigger, could not judge.
	// +optional
	Failed int64 `json:"failed"`

	// Refused is the number of messages beyond a bound, which are in no result.
	// +optional
	Refused int64 `json:"refused"`

	// RemovedUnread is the number of messages that the retention of the Topic deleted before the View
	// had read them.
	// +optional
	RemovedUnread int64 `json:"removedUnread"`
}

// View keeps an aggregate of a Topic's messages up to date, by key and by window.
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:shortName=cview,categories=carillon
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].reason`
// +kubebuilder:printcolumn:name="Topic",type=string,JSONPath=`.spec.topicRef.name`
// +kubebuilder:printcolumn:name="Keys",type=integer,JSONPath=`.status.keys`
// +kubebuilder:printcolumn:name="Watermark",type=string,JSONPath=`.status.watermark`
// +kubebuilder:printcolumn:name="Late",type=integer,priority=1,JSONPath=`.status.late`
// +kubebuilder:printcolumn:name="Failed",type=integer,priority=1,JSONPath=`.status.failed`
// +kubebuilder:printcolumn:name="Refused",type=integer,priority=1,JSONPath=`.status.refused`
// +kubebuilder:printcolumn:name="Message",type=string,priority=1,JSONPath=`.status.conditions[?(@.type=="Ready")].message`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:validation:XValidation:rule="self.metadata.name.matches('^[a-z0-9-]{1,128}$')",message="the name of a View has no dots and at most 128 characters, since it has its place in subjects; write for example hot-rooms"
type View struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec ViewSpec `json:"spec"`

	// +default={"observedGeneration": -1}
	// +optional
	Status ViewStatus `json:"status,omitzero"`
}

// ViewList is a list of Views.
// +kubebuilder:object:root=true
type ViewList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []View `json:"items"`
}
