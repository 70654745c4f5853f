package v1alpha1

// BrokerReference names a Broker in the namespace of the object that refers to it.
type BrokerReference struct {
	// Name of the Broker.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=40
	Name string `json:"name"`
}

// TopicReference names a Topic in the namespace of the object that refers to it.
type TopicReference struct {
	// Name of the Topic resource (its metadata.name).
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name"`
}

// SecretReference names a Secret in the namespace of the object that refers to it.
type SecretReference struct {
	// Name of the Secret.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name"`
}

// Duration is a length of time as Go writes it, such as 30s, 5m or 168h. It stays a string here: a
// value that the schema let through must never keep a whole list from being read.
// +kubebuilder:validation:MaxLength=32
// +kubebuilder:validation:Pattern=`^([0-9]+(\.[0-9]+)?(ms|s|m|h))+$`
type Duration string
