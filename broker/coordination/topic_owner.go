package coordination

import (
	"fmt"
	"time"
)

// Owner is the manifest or client that declared a Topic, a Subscription or a View, and that may
// change and delete it.
type Owner struct {
	Kind OwnerKind `json:"kind"`
	// Namespace, Name and UID of the manifest.
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name,omitempty"` // of a client: the name that it sent; informational
	UID       string `json:"uid,omitempty"`
	// User is the client's user, who made it: it counts towards the user's limits. Empty: there were
	// no users.
	User string `json:"user,omitempty"`
	// Orphaned is when the manifest was found to be deleted, with a policy to retain what it
	// declared.
	Orphaned time.Time `json:"orphaned,omitzero"`
}

// OwnerKind distinguishes manifests and clients.
type OwnerKind string

// The kinds of owners.
const (
	ManifestOwner OwnerKind = "Manifest"
	ClientOwner   OwnerKind = "Client"
)

func (o Owner) String() string {
	switch {
	case o.Kind == ManifestOwner && !o.Orphaned.IsZero():
		return fmt.Sprintf("the manifest %s/%s, which is gone", o.Namespace, o.Name)
	case o.Kind == ManifestOwner:
		return fmt.Sprintf("the manifest %s/%s", o.Namespace, o.Name)
	case o.Name != "":
		return "client " + o.Name
	}
	return "a client"
}

func (o Owner) valid() string {
	switch {
	case o.Kind == ClientOwner && o.UID == "" && o.Namespace == "" && o.Orphaned.IsZero():
		return ""
	case o.Kind == ManifestOwner && o.Namespace != "" && o.Name != "" && o.UID != "" && o.Orphaned.IsZero():
		return ""
	}
	return fmt.Sprintf("the owner %+v is neither a client nor a manifest with namespace, name and uid", o)
}

// is reports whether both are the same owner. All clients are one owner.
func (o Owner) is(other Owner) bool {
	return o.Kind == other.Kind && (o.Kind == ClientOwner || o.sameManifest(other) && o.UID == other.UID)
}

// sameManifest compares namespace and name, which a recreated manifest has, too.
func (o Owner) sameManifest(other Owner) bool {
	return o.Kind == ManifestOwner && other.Kind == ManifestOwner && o.Namespace == other.Namespace && o.Name == other.Name
}

// mayChange reports whether by may change or delete what o owns. Clients may also change a Topic
// whose manifest is gone; otherwise it could never be deleted.
func (o Owner) mayChange(by Owner) bool {
	return o.is(by) || by.Kind == ClientOwner && !o.Orphaned.IsZero()
}

// ExistsError reports that a Topic, Subscription or View of that name exists.
type ExistsError struct {
	What  string // "topic orders"
	Owner Owner
}

func (e *ExistsError) Error() string {
	return fmt.Sprintf("%s exists already, and belongs to %s (use another name, or have its owner delete it)", e.What, e.Owner)
}

// NotOwnerError reports that the object belongs to another owner.
type NotOwnerError struct {
	What  string
	Owner Owner
}

func (e *NotOwnerError) Error() string {
	if e.Owner.Kind == ManifestOwner {
		return fmt.Sprintf("%s belongs to %s (change or delete that manifest)", e.What, e.Owner)
	}
	return fmt.Sprintf("%s belongs to %s (have a client change or delete it, or use another name)", e.What, e.Owner)
}

// NotFoundError reports that the object does not exist or is being deleted.
type NotFoundError struct{ What string }

func (e *NotFoundError) Error() string { return "there is no " + e.What }

// StaleError reports that the object has changed since the caller read it.
type StaleError struct{ What string }

func (e *StaleError) Error() string {
	return e.What + " has changed in between (read it again, and decide anew)"
}

// ImmutableError reports a change of an immutable field.
type ImmutableError struct{ What, Field string }

func (e *ImmutableError) Error() string {
	return fmt.Sprintf("%s: %s can't change (keep the former value, or delete it and make it anew)", e.What, e.Field)
}

// OverlapError reports that another Topic claims an overlapping subject.
type OverlapError struct {
	Topic, Subject string // requested
	Other, Claimed string // the other Topic and its subject
	Owner          Owner  // of the other Topic
}

func (e *OverlapError) Error() string {
	return fmt.Sprintf("topic %s: its subject %q overlaps with %q of topic %s, which belongs to %s (use other subjects for one of them)",
		e.Topic, e.Subject, e.Claimed, e.Other, e.Owner)
}
