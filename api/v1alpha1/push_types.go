package v1alpha1

// PushFormat is how records become requests.
// +kubebuilder:validation:Enum=CloudEventsBinary;CloudEventsStructured;Raw
type PushFormat string

const (
	// PushBinary is a CloudEvent in binary mode: attributes in headers, the payload as body.
	PushBinary PushFormat = "CloudEventsBinary"
	// PushStructured is a CloudEvent as one JSON object.
	PushStructured PushFormat = "CloudEventsStructured"
	// PushRaw is the payload as body, and the record's headers.
	PushRaw PushFormat = "Raw"
)

// DeliverySpec is how records are brought to a receiver.
type DeliverySpec struct {
	// Push sends records to an HTTP endpoint.
	Push PushSpec `json:"push"`
}

// PushSpec is an HTTP endpoint that takes records.
// +kubebuilder:validation:XValidation:rule="has(self.url) != has(self.serviceRef)",message="delivery.push needs either url or serviceRef; write for example url: http://billing.default.svc/events, or serviceRef: {name: billing}"
// +kubebuilder:validation:XValidation:rule="!has(self.tls) || (has(self.url) ? self.url.startsWith('https://') : has(self.serviceRef) && self.serviceRef.scheme == 'https')",message="delivery.push.tls is for https only; write an https:// URL or serviceRef.scheme: https, or leave tls out"
// +kubebuilder:validation:XValidation:rule="!has(self.batch) || self.format == 'CloudEventsStructured'",message="delivery.push.batch goes with format: CloudEventsStructured only, since the others have one record in each request; write that format, or leave batch out"
type PushSpec struct {
	// URL that records are sent to by POST; an answer of 2xx acknowledges. Redirects are not
	// followed.
	// +kubebuilder:validation:MaxLength=2048
	// +kubebuilder:validation:XValidation:rule="isURL(self) && (self.startsWith('http://') || self.startsWith('https://'))",message="delivery.push.url must begin with http:// or https://; write for example http://billing.default.svc/events"
	// +kubebuilder:validation:XValidation:rule="!self.contains('#') && !self.matches('^[a-z]+://[^/?]*@')",message="delivery.push.url has a user, a password or a fragment; leave them out"
	// +optional
	URL string `json:"url,omitempty"`

	// ServiceRef is a Service that records are sent to instead.
	// +optional
	ServiceRef *ServiceReference `json:"serviceRef,omitempty"`

	// Format of requests.
	// +kubebuilder:default=CloudEventsBinary
	// +optional
	Format PushFormat `json:"format,omitempty"`

	// Batch sends several records in one request, as application/cloudevents-batch+json. Its answer is
	// for all of them.
	// +optional
	Batch *PushBatchSpec `json:"batch,omitempty"`

	// Concurrency is the number of requests under way, for each shard of the Topic. Requests with
	// records of one subject never overlap.
	// +kubebuilder:default=8
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=64
	// +optional
	Concurrency int32 `json:"concurrency,omitempty"`

	// Timeout of a request, its answer included.
	// +kubebuilder:default="10s"
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('100ms') && duration(self) <= duration('5m')",message="delivery.push.timeout must be between 100ms and 5m; write for example 10s"
	// +optional
	Timeout Duration `json:"timeout,omitempty"`

	// Headers of each request.
	// +kubebuilder:validation:MaxItems=16
	// +listType=map
	// +listMapKey=name
	// +optional
	Headers []PushHeaderSpec `json:"headers,omitempty"`

	// TLS is how an https endpoint is known, and how brokers are known to it; absent: by the CAs of
	// the system and the host of the URL, and not at all.
	// +optional
	TLS *PushTLSSpec `json:"tls,omitempty"`
}

// PushTLSSpec is how an https endpoint is known, and how brokers are known to it.
type PushTLSSpec struct {
	// CASecretRef has the CAs that are trusted, in PEM, instead of the system's. The Secret needs the
	// label carillon.dev/push: "true".
	// +optional
	CASecretRef *SecretKeyReference `json:"caSecretRef,omitempty"`

	// ServerName is the name in the endpoint's certificate, if it is not the host of the URL.
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:XValidation:rule="self.matches('^[A-Za-z0-9.-]+$')",message="delivery.push.tls.serverName must be a host name; write for example billing.example.com"
	// +optional
	ServerName string `json:"serverName,omitempty"`

	// CertificateSecretRef is a Secret with the client certificate for an endpoint that asks for one:
	// tls.crt, with the certificates between it and its CA, and tls.key, both in PEM. The Secret needs
	// the label carillon.dev/push: "true".
	// +kubebuilder:validation:XValidation:rule="size(self.name) <= 120 && self.name.matches('^[a-z0-9]([-.a-z0-9]*[a-z0-9])?$')",message="delivery.push.tls.certificateSecretRef.name must be the name of a Secret, of at most 120 characters; write for example billing-client"
	// +optional
	CertificateSecretRef *SecretReference `json:"certificateSecretRef,omitempty"`
}

// SecretKeyReference is a key of a Secret in the same namespace.
type SecretKeyReference struct {
	// Name of the Secret.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=120
	// +kubebuilder:validation:XValidation:rule="self.matches('^[a-z0-9]([-.a-z0-9]*[a-z0-9])?$')",message="secretKeyRef.name must be the name of a Secret; write for example billing-token"
	Name string `json:"name"`

	// Key in the Secret.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=120
	// +kubebuilder:validation:XValidation:rule="self.matches('^[-._a-zA-Z0-9]+$')",message="secretKeyRef.key must be a key of a Secret; write for example token"
	Key string `json:"key"`
}

// PushHeaderSource is where the value of a header is.
type PushHeaderSource struct {
	// SecretKeyRef is a key of a Secret with the label carillon.dev/push: "true".
	SecretKeyRef SecretKeyReference `json:"secretKeyRef"`
}

// ServiceReference is a port of a Service.
type ServiceReference struct {
	// Name of the Service.
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:XValidation:rule="self.matches('^[a-z]([-a-z0-9]*[a-z0-9])?$')",message="delivery.push.serviceRef.name must be the name of a Service; write for example billing"
	Name string `json:"name"`

	// Namespace of the Service; absent: that of the Subscription.
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:XValidation:rule="self.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?$')",message="delivery.push.serviceRef.namespace must be the name of a namespace; write for example default, or leave it out"
	// +optional
	Namespace string `json:"namespace,omitempty"`

	// Scheme of the requests.
	// +kubebuilder:validation:Enum=http;https
	// +kubebuilder:default=http
	// +optional
	Scheme string `json:"scheme,omitempty"`

	// Port of the Service; absent: 80, or 443 for https.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=65535
	// +optional
	Port *int32 `json:"port,omitempty"`

	// Path of the requests.
	// +kubebuilder:validation:MaxLength=1024
	// +kubebuilder:validation:XValidation:rule="self.startsWith('/') && !self.contains('#')",message="delivery.push.serviceRef.path must begin with / and have no #; write for example /events"
	// +optional
	Path string `json:"path,omitempty"`
}

// PushBatchSpec bounds the records of a request.
type PushBatchSpec struct {
	// MaxRecords is the number of records in a request.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=1000
	MaxRecords int32 `json:"maxRecords"`

	// MaxBytes is the size of the records of a request, their subjects and headers included. A larger
	// record is sent alone.
	// +kubebuilder:default=1048576
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=4194304
	// +optional
	MaxBytes int32 `json:"maxBytes,omitempty"`

	// MaxWait is how long a record waits for others; absent: not at all.
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('0s') && duration(self) <= duration('1m')",message="delivery.push.batch.maxWait must be at most 1m; write for example 100ms"
	// +optional
	MaxWait Duration `json:"maxWait,omitempty"`
}

// PushHeaderSpec is a header of each request.
// +kubebuilder:validation:XValidation:rule="has(self.value) != has(self.valueFrom)",message="a header of delivery.push needs either value or valueFrom; write for example value: \"9\", or valueFrom: {secretKeyRef: {name: billing-token, key: token}}"
type PushHeaderSpec struct {
	// Name of the header.
	// +kubebuilder:validation:MaxLength=256
	// +kubebuilder:validation:XValidation:rule="self.matches('^[A-Za-z0-9_-]+$')",message="the name of a header of delivery.push has letters, digits, - and _; write for example X-Tenant"
	// +kubebuilder:validation:XValidation:rule="!self.matches('^(?i)(ce-.*|connection|content-length|content-type|expect|host|keep-alive|proxy-authorization|proxy-connection|te|trailer|transfer-encoding|upgrade)$')",message="that header of delivery.push is set by the broker itself; leave it out"
	Name string `json:"name"`

	// Value of the header. Everybody who may read the Subscription can read it.
	// +kubebuilder:validation:MaxLength=768
	// +kubebuilder:validation:XValidation:rule="self.matches('^[ -~]*$')",message="the value of a header of delivery.push must be printable ASCII; encode it"
	// +optional
	Value string `json:"value,omitempty"`

	// ValueFrom is where the value is, if it is secret. It is mounted into the brokers, and never in
	// etcd.
	// +optional
	ValueFrom *PushHeaderSource `json:"valueFrom,omitempty"`
}
