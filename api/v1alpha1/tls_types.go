package v1alpha1

// TLSMode says whether clients must use TLS.
// +kubebuilder:validation:Enum=Required;Optional
type TLSMode string

const (
	// TLSRequired refuses clients without TLS.
	TLSRequired TLSMode = "Required"
	// TLSOptional serves clients with TLS and without.
	TLSOptional TLSMode = "Optional"
)

// TLSHandshake says when a connection's handshake comes.
// +kubebuilder:validation:Enum=AfterInfo;First;Either
type TLSHandshake string

const (
	// HandshakeAfterInfo has the broker greet in plaintext (INFO), as NATS clients expect it.
	HandshakeAfterInfo TLSHandshake = "AfterInfo"
	// HandshakeFirst has nothing in plaintext, for clients that are configured so.
	HandshakeFirst TLSHandshake = "First"
	// HandshakeEither serves both; clients that wait for INFO get it after 50 ms.
	HandshakeEither TLSHandshake = "Either"
)

// ClientTLSSpec is the TLS of clients. The certificate comes from the Secret that secretName names,
// from a cert-manager issuer with issuerRef, or, without either, from a CA that the operator makes
// for the clients of this Broker.
// +kubebuilder:validation:XValidation:rule="!has(self.secretName) || !has(self.issuerRef)",message="tls.secretName and tls.issuerRef exclude each other; write secretName for a Secret that you fill, or issuerRef for one that cert-manager fills"
// +kubebuilder:validation:XValidation:rule="!has(self.secretName) || !has(self.extraNames)",message="tls.extraNames are for a certificate that is made for this Broker; with tls.secretName leave them out, and have the certificate in the Secret made for these names"
// +kubebuilder:validation:XValidation:rule="self.mode != 'Optional' || self.handshake != 'First'",message="tls.handshake First needs mode Required, since a plaintext client waits for INFO; write handshake: Either"
// +kubebuilder:validation:XValidation:rule="self.mode != 'Optional' || !has(self.clientCertificates)",message="tls.clientCertificates needs mode Required, since a plaintext client has no certificate; write mode: Required"
type ClientTLSSpec struct {
	// Mode says whether clients must use TLS: Required, or Optional, for as long as some do not yet.
	// +kubebuilder:default=Required
	// +optional
	Mode TLSMode `json:"mode,omitempty"`

	// Handshake says when the handshake comes: AfterInfo, as NATS clients expect it; First, for
	// clients that are configured so; or Either.
	// +kubebuilder:default=AfterInfo
	// +optional
	Handshake TLSHandshake `json:"handshake,omitempty"`

	// SecretName is a Secret of the type kubernetes.io/tls, with the keys tls.crt and tls.key. Its
	// certificate must be for the names under which clients connect: those of the Service, and
	// *.NAME-brokers.NAMESPACE.svc, the names of the pods. A renewal needs no restart.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +optional
	SecretName string `json:"secretName,omitempty"`

	// IssuerRef is an issuer of cert-manager. The operator makes the Certificate NAME-client-tls.
	// +optional
	IssuerRef *IssuerReference `json:"issuerRef,omitempty"`

	// ExtraNames are DNS names and IP addresses under which clients connect from elsewhere. The
	// certificate is for them, too.
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=32
	// +kubebuilder:validation:items:MaxLength=253
	// +kubebuilder:validation:XValidation:rule="self.all(n, isIP(n) || n.matches('^([*][.])?[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?([.][a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?)*$'))",message="each entry of tls.extraNames must be a DNS name in lower case, or an IP address; write for example broker.example.org, *.example.org or 192.0.2.7"
	// +listType=set
	// +optional
	ExtraNames []string `json:"extraNames,omitempty"`

	// ClientCertificates has clients present a certificate. Without it they are asked for none.
	// +optional
	ClientCertificates *ClientCertificatesSpec `json:"clientCertificates,omitempty"`
}

// IssuerReference names an issuer of cert-manager.
type IssuerReference struct {
	// Name of the issuer.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name"`

	// Kind of the issuer: Issuer, in the Broker's namespace, ClusterIssuer, or one of another group.
	// +kubebuilder:default=Issuer
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +optional
	Kind string `json:"kind,omitempty"`

	// Group of the issuer's kind.
	// +kubebuilder:default=cert-manager.io
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +optional
	Group string `json:"group,omitempty"`
}

// ClientCertificatesSpec says which certificates clients must present.
type ClientCertificatesSpec struct {
	// CASecretRef names the key of a Secret with the CAs, PEM encoded. Clients must present a
	// certificate that one of them signed.
	CASecretRef SecretKeyReference `json:"caSecretRef"`
}

// WebSocketSpec is the port for WebSocket.
type WebSocketSpec struct {
	// Origins are the web pages whose programs may connect, and same for those of the host that the
	// client asks for. Without it all pages may. Clients that are no browsers always may.
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MaxLength=253
	// +kubebuilder:validation:XValidation:rule="self.all(o, o.matches('^(same|https?://[A-Za-z0-9]([-A-Za-z0-9.]*[A-Za-z0-9])?(:[0-9]{1,5})?)$'))",message="each entry of websocket.origins must be same, or a scheme and a host, perhaps with a port; write for example https://app.example.org"
	// +listType=set
	// +optional
	Origins []string `json:"origins,omitempty"`
}
