package admin

import (
	"time"

	"github.com/carillon-mq/carillon/broker/coordination"
)

// TopicList is one page of all Topics, sorted by name.
type TopicList struct {
	Error    *Error  `json:"error,omitempty"`
	Revision int64   `json:"revision"` // of etcd, at which the answer holds
	Total    int     `json:"total"`
	Topics   []Topic `json:"topics"`
	Next     string  `json:"next,omitempty"` // set if there is more: request the page after this name
	// Unreadable are the first few keys that this broker cannot decode. Their last readable value
	// is shown, if there was one.
	Unreadable []string `json:"unreadable,omitempty"`
}

// TopicInfo is one Topic.
type TopicInfo struct {
	Error    *Error `json:"error,omitempty"`
	Revision int64  `json:"revision"`
	Topic    *Topic `json:"topic,omitempty"`
}

// SubscriptionList is one page of the Subscriptions of a Topic, sorted by name.
type SubscriptionList struct {
	Error         *Error         `json:"error,omitempty"`
	Revision      int64          `json:"revision"`
	Total         int            `json:"total"`
	Subscriptions []Subscription `json:"subscriptions"`
	Next          string         `json:"next,omitempty"`
}

// SubscriptionInfo is one Subscription.
type SubscriptionInfo struct {
	Error        *Error        `json:"error,omitempty"`
	Revision     int64         `json:"revision"`
	Subscription *Subscription `json:"subscription,omitempty"`
}

// Topic is the spec and the status of a Topic.
type Topic struct {
	Name       string                 `json:"name"`
	ID         string                 `json:"id"`
	Generation int64                  `json:"generation"`
	Created    time.Time              `json:"created"`
	Owner      Owner                  `json:"owner"`
	Spec       coordination.TopicSpec `json:"spec"` // with its defaults; durations in nanoseconds
	Deleting   bool                   `json:"deleting,omitempty"`
	Status
	Shards        []Shard `json:"shards"` // one per shard of the spec
	Subscriptions int     `json:"subscriptions"`
}

// Shard is the placement of one shard of a Topic.
type Shard struct {
	Number    int       `json:"number"`
	Epoch     int64     `json:"epoch"` // 0: not placed yet
	Leader    *Broker   `json:"leader,omitempty"`
	Replicas  []Replica `json:"replicas"`  // including those being added or removed
	Want      int       `json:"want"`      // desired number of replicas; 0: not placed yet
	InSync    int       `json:"inSync"`    // replicas in sync
	MinInSync int       `json:"minInSync"` // replicas that must be in sync for publishing
	Status
}

// Replica is one broker's copy of a shard.
type Replica struct {
	Broker
	InSync   bool `json:"inSync"`             // registered, with everything that was acknowledged
	Adding   bool `json:"adding,omitempty"`   // it has to catch up first
	Removing bool `json:"removing,omitempty"` // it is removed when the others are in sync
	Suspect  bool `json:"suspect,omitempty"`  // its broker cannot vouch for it
	// Lacks is the number of damaged segments being fetched from the leader; 0 for a Suspect: all
	// of it is fetched.
	Lacks int `json:"lacks,omitempty"`
}

// Broker is a broker that leads or holds a shard.
type Broker struct {
	ID   string `json:"id"`
	Name string `json:"name,omitempty"` // empty: away, and never seen by the answering broker
	Away bool   `json:"away,omitempty"` // not registered now
}

// Subscription is the spec and the status of a Subscription.
type Subscription struct {
	Topic      string                        `json:"topic"`
	Name       string                        `json:"name"`
	Generation int64                         `json:"generation"`
	Created    time.Time                     `json:"created"`
	Owner      Owner                         `json:"owner"`
	Spec       coordination.SubscriptionSpec `json:"spec"` // with its defaults
	Status                                   // its Topic's
}

// Owner is the owner of a Topic, Subscription or View.
type Owner struct {
	Kind      coordination.OwnerKind `json:"kind"`
	Namespace string                 `json:"namespace,omitempty"`
	Name      string                 `json:"name,omitempty"`
	UID       string                 `json:"uid,omitempty"`
	// Orphaned is when the manifest was found to be deleted.
	Orphaned *time.Time `json:"orphaned,omitempty"`
}

// Coordination returns the owner as coordination.Owner.
func (o Owner) Coordination() coordination.Owner {
	owner := coordination.Owner{Kind: o.Kind, Namespace: o.Namespace, Name: o.Name, UID: o.UID}
	if o.Orphaned != nil {
		owner.Orphaned = *o.Orphaned
	}
	return owner
}

// Status reports whether clients are served, and otherwise, or if something is missing, why.
type Status struct {
	Served bool   `json:"served"`
	Reason Reason `json:"reason,omitempty"`
	Why    string `json:"why,omitempty"` // a sentence with the way out
}

// Reason is from a closed list, which includes those of placement.WaitReason.
type Reason string

// The reasons that the planner does not return.
const (
	Deleting     Reason = "Deleting"     // it is being deleted
	Placing      Reason = "Placing"      // the controller is about to place it or to elect its leader
	NoController Reason = "NoController" // no controller, so nothing is placed
	Trouble      Reason = "Trouble"      // its leader cannot serve it
	TopicMissing Reason = "TopicMissing" // of a View: there is no Topic that it reads
	// NotEnoughInSync: publishers wait; stored records can be read.
	NotEnoughInSync Reason = "NotEnoughInSync"
	// UnderReplicated: it is served and lacks replicas.
	UnderReplicated Reason = "UnderReplicated"
)
