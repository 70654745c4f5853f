package admin

import (
	"time"

	"github.com/carillon-mq/carillon/broker/coordination"
)

// TopicList is one page of all Topics, sorted by name.
type TopicList struct {
	Error    *Error  `json:"error,omitempty"`
	Revision int64   `json:"revision"` // of etcd, of which the answer is
	Total    int     `json:"total"`
	Topics   []Topic `json:"topics"`
	Next     string  `json:"next,omitempty"` // there is more: ask for what is after this name
	// Unreadable are keys that this broker does not understand, the first few. What they hold is
	// shown as it last was understood, or not at all.
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

// Topic is what is asked for and what became of it.
type Topic struct {
	Name       string                 `json:"name"`
	ID         string                 `json:"id"`
	Generation int64                  `json:"generation"`
	Created    time.Time              `json:"created"`
	Owner      Owner                  `json:"owner"`
	Spec       coordination.TopicSpec `json:"spec"` // with its defaults; durations are nanoseconds
	Deleting   bool                   `json:"deleting,omitempty"`
	Status
	Shards        []Shard `json:"shards"` // all that there are to be
	Subscriptions int     `json:"subscriptions"`
}

// Shard is who serves one shard of a Topic.
type Shard struct {
	Number    int       `json:"number"`
	Epoch     int64     `json:"epoch"` // 0: not placed yet
	Leader    *Broker   `json:"leader,omitempty"`
	Replicas  []Replica `json:"replicas"`  // also those being added or removed
	Want      int       `json:"want"`      // how many there are to be; 0: not placed yet
	InSync    int       `json:"inSync"`    // how many are
	MinInSync int       `json:"minInSync"` // how many must be for publishing to go on
	Status
}

// Replica is one broker's copy of a shard.
type Replica struct {
	Broker
	InSync   bool `json:"inSync"`             // it is there, with everything that was acknowledged
	Adding   bool `json:"adding,omitempty"`   // it has yet to catch up for the first time
	Removing bool `json:"removing,omitempty"` // it goes when the others are in sync
	Suspect  bool `json:"suspect,omitempty"`  // its broker can't vouch for it
	Lacks    int  `json:"lacks,omitempty"`    // damaged segments of it that are fetched from the leader; 0 of a suspect: all of it is
}

// Broker is one that leads or holds a shard.
type Broker struct {
	ID   string `json:"id"`
	Name string `json:"name,omitempty"` // empty: it is away, and was never seen by the broker that answers
	Away bool   `json:"away,omitempty"` // it is not a member now
}

// Subscription is what is asked for.
type Subscription struct {
	Topic      string                        `json:"topic"`
	Name       string                        `json:"name"`
	Generation int64                         `json:"generation"`
	Created    time.Time                     `json:"created"`
	Owner      Owner                         `json:"owner"`
	Spec       coordination.SubscriptionSpec `json:"spec"` // with its defaults
	Status                                   // that of its Topic
}

// Owner is who declared it.
type Owner struct {
	Kind      coordination.OwnerKind `json:"kind"`
	Namespace string                 `json:"namespace,omitempty"`
	Name      string                 `json:"name,omitempty"`
	UID       string                 `json:"uid,omitempty"`
	Orphaned  *time.Time             `json:"orphaned,omitempty"` // since when the manifest is known to be gone
}

// Coordination is the owner in the words of who decides what it may do.
func (o Owner) Coordination() coordination.Owner {
	owner := coordination.Owner{Kind: o.Kind, Namespace: o.Namespace, Name: o.Name, UID: o.UID}
	if o.Orphaned != nil {
		owner.Orphaned = *o.Orphaned
	}
	return owner
}

// Status says whether clients are served, and if not, or not as they are meant to be, why.
type Status struct {
	Served bool   `json:"served"`
	Reason Reason `json:"reason,omitempty"`
	Why    string `json:"why,omitempty"` // for people, with the way out
}

// Reason is from a closed list; those of placement.WaitReason are in it, too.
type Reason string

// The reasons that are not the planner's.
const (
	Deleting     Reason = "Deleting"     // it is being deleted
	Placing      Reason = "Placing"      // the controller is about to place it, or to name its leader anew
	NoController Reason = "NoController" // nobody places shards now
	Trouble      Reason = "Trouble"      // its leader can't serve it
	// NotEnoughInSync: publishing waits; what is kept can be read.
	NotEnoughInSync Reason = "NotEnoughInSync"
	// UnderReplicated: it is served, and lacks replicas.
	UnderReplicated Reason = "UnderReplicated"
)
