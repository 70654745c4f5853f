package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// SecretTypeUser is the type of a Secret that agrees to be a user of brokers. The operator reads
// no other Secrets as users.
const SecretTypeUser = Group + "/user"

// AuthSpec is what clients must present.
// +kubebuilder:validation:XValidation:rule="has(self.secretRef) != has(self.users)",message="auth takes exactly one of secretRef (one user or token) and users (a Secret for each user)"
type AuthSpec struct {
	// SecretRef names a Secret with the keys username and password, or with the key token. Whoever
	// presents that may do everything.
	// +optional
	SecretRef *SecretReference `json:"secretRef,omitempty"`

	// Users are the users, with permissions, in Secrets of their own.
	// +optional
	Users *UsersSpec `json:"users,omitempty"`
}

// UsersSpec says which Secrets are users.
type UsersSpec struct {
	// Selector selects Secrets of the Broker's namespace by their labels. Those of the type
	// carillon.dev/user are users; others are not read. An empty selector selects all.
	Selector metav1.LabelSelector `json:"selector"`

	// DefaultPermissions are those of users without any. Without them such users may use all
	// subjects.
	// +optional
	DefaultPermissions *UserPermissions `json:"defaultPermissions,omitempty"`

	// Anonymous is the name of the user that a client is which presents nothing. Without it such
	// clients are refused.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=256
	// +optional
	Anonymous string `json:"anonymous,omitempty"`
}

// UserPermissions are what a user may do on which subjects, as nats-server has them.
type UserPermissions struct {
	// Publish is where the user may publish; everywhere if it is absent.
	// +optional
	Publish *SubjectPermissions `json:"publish,omitempty"`

	// Subscribe is where the user may subscribe; everywhere if it is absent. An entry may be
	// "pattern queue", for members of that queue group.
	// +optional
	Subscribe *SubjectPermissions `json:"subscribe,omitempty"`

	// AllowResponses lets the user publish to the reply subjects of messages that it received. Then
	// it may publish nowhere else if publish is absent.
	// +optional
	AllowResponses *ResponsePermissions `json:"allowResponses,omitempty"`
}

// SubjectPermissions are lists of subjects and patterns. What deny matches is refused, whatever
// allow matches.
type SubjectPermissions struct {
	// Allow is what is allowed; all that is not denied if it is absent, nothing if it is empty.
	// +kubebuilder:validation:MaxItems=1000
	// +kubebuilder:validation:items:MaxLength=1024
	// +listType=atomic
	// +optional
	Allow []string `json:"allow,omitzero"`

	// Deny is what is refused.
	// +kubebuilder:validation:MaxItems=1000
	// +kubebuilder:validation:items:MaxLength=1024
	// +listType=atomic
	// +optional
	Deny []string `json:"deny,omitempty"`
}

// ResponsePermissions bound what may be published to a reply subject.
type ResponsePermissions struct {
	// Max is the number of messages; 1 if it is absent, any number below 0.
	// +optional
	Max int32 `json:"max,omitempty"`

	// Expires is how long after the message they may be published, such as 30s; 2m if it is absent,
	// for ever below 0.
	// +kubebuilder:validation:MaxLength=64
	// +optional
	Expires string `json:"expires,omitempty"`
}
