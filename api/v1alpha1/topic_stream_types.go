package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Permission says whether clients may do something.
// +kubebuilder:validation:Enum=Forbidden;Allowed
type Permission string

const (
	// Forbidden refuses it.
	Forbidden Permission = "Forbidden"
	// Allowed lets clients do it.
	Allowed Permission = "Allowed"
)

// MessageTTLSpec lets a message have a time to live of its own.
type MessageTTLSpec struct {
	// MarkerTTL is how long a marker stays in the place of a subject's last message that went by its
	// age or its TTL, so that readers learn of it. Without it there are no markers.
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('1s')",message="messageTTL.markerTTL must be at least 1s; write for example 1h"
	// +optional
	MarkerTTL Duration `json:"markerTTL,omitempty"`
}

// RepublishSpec is what is published again once it is stored, and under which subjects.
type RepublishSpec struct {
	// Source are the stored subjects that are published again; all of them if it is absent.
	// +optional
	Source Subject `json:"source,omitempty"`

	// Destination is the subject to publish on. {{wildcard(1)}} stands for what the first wildcard of
	// source matched.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=255
	Destination string `json:"destination"`

	// HeadersOnly leaves the payload out.
	// +optional
	HeadersOnly bool `json:"headersOnly,omitempty"`
}

// SubjectMappingSpec maps subjects to others.
type SubjectMappingSpec struct {
	// Source are the subjects that are mapped.
	Source Subject `json:"source"`

	// Destination is the subject that a message is stored under. {{wildcard(1)}} stands for what the
	// first wildcard of source matched. Without it the subject stays.
	// +kubebuilder:validation:MaxLength=255
	// +optional
	Destination string `json:"destination,omitempty"`
}

// TopicSourceSpec is another Topic whose messages are copied.
// +kubebuilder:validation:XValidation:rule="!(has(self.startTime) && has(self.startOffset))",message="a source starts at startTime or at startOffset; leave one of the two out"
// +kubebuilder:validation:XValidation:rule="!(has(self.filter) && has(self.transforms))",message="a source has filter or transforms; leave one of the two out (a transform without destination filters)"
type TopicSourceSpec struct {
	// Topic is the name by which clients know the Topic that is copied, of the same Broker. It may
	// come later. A mirror has as many shards as its Topic; one with one shard may name a shard of a
	// Topic: orders--0.
	// +kubebuilder:validation:XValidation:rule="self.matches('^[A-Za-z0-9_-]{1,128}$')",message="topic is the name of a stream, made of at most 128 letters, digits, hyphens and underscores; write for example orders"
	// +kubebuilder:validation:MaxLength=253
	Topic string `json:"topic"`

	// StartTime leaves out what was published before.
	// +optional
	StartTime *metav1.Time `json:"startTime,omitempty"`

	// StartOffset leaves out what has a lower sequence, in each shard of the Topic.
	// +kubebuilder:validation:Minimum=1
	// +optional
	StartOffset *int64 `json:"startOffset,omitempty"`

	// Filter are the subjects that are copied; all of them if it is absent.
	// +optional
	Filter Subject `json:"filter,omitempty"`

	// Transforms store copies under other subjects, by the first one that matches. What none matches
	// is not copied.
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=16
	// +listType=atomic
	// +optional
	Transforms []SubjectMappingSpec `json:"transforms,omitempty"`
}
