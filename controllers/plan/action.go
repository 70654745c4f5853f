package plan

// Kind is what is to be done.
type Kind string

const (
	// None: everything is as asked for.
	None Kind = "None"
	// Wait: nothing is to be done until something else has happened.
	Wait Kind = "Wait"
	// Stall: nothing can be done until a person changes something.
	Stall Kind = "Stall"
	// MarkBootstrapped tells the coordinators that their cluster has existed, so that a member that
	// lost its volume never founds a second one.
	MarkBootstrapped Kind = "MarkBootstrapped"
	// ClaimOwner writes this Broker's identity into etcd.
	ClaimOwner Kind = "ClaimOwner"
	// ReplacePod deletes the pod Target, which its StatefulSet then makes from the present
	// template.
	ReplacePod Kind = "ReplacePod"
	// GrowVolume asks for more room in the volume claim Target.
	GrowVolume Kind = "GrowVolume"
	// RecreateSet deletes the StatefulSet Target without its pods, since its claim template can't
	// be changed.
	RecreateSet Kind = "RecreateSet"
	// Drain has the broker with the id Target relieved of all that it holds, and EndDrain ends
	// that.
	Drain    Kind = "Drain"
	EndDrain Kind = "EndDrain"
	// Shrink makes the StatefulSet of the brokers smaller by one pod, which is Target.
	Shrink Kind = "Shrink"
)

// What is done in etcd for a Topic or a Subscription.
const (
	// Create makes what the manifest declares.
	Create Kind = "Create"
	// Update makes its spec as the manifest has it.
	Update Kind = "Update"
	// Adopt takes over what a former manifest of that namespace and name declared.
	Adopt Kind = "Adopt"
	// Release gives a Topic's subjects up to an older manifest; the Topic itself stays.
	Release Kind = "Release"
	// Orphan notes that the manifest is gone; what it declared stays.
	Orphan Kind = "Orphan"
	// Delete takes away what a manifest that is gone had declared.
	Delete Kind = "Delete"
	// Elect is what brokers did among themselves: name a leader for a shard.
	Elect Kind = "Elect"
)

// Reason is why: the reason of the condition Ready and of events. The list is closed.
type Reason string

// Reasons to be content.
const (
	AllReady Reason = "AllReady"
)

// Reasons to act or to wait.
const (
	Applying                Reason = "Applying"
	Leftovers               Reason = "LeftoversOfFormerBroker"
	AuthSecretUnusable      Reason = "AuthSecretUnusable"
	CoordinatorsStarting    Reason = "CoordinatorsStarting"
	CoordinationUnavailable Reason = "CoordinationUnavailable"
	CoordinationOutOfSpace  Reason = "CoordinationOutOfSpace"
	CoordinationCorrupt     Reason = "CoordinationCorrupt"
	Bootstrapped            Reason = "CoordinationBootstrapped"
	Claiming                Reason = "ClaimingKeys"
	BrokersStarting         Reason = "BrokersStarting"
	Repairing               Reason = "RepairingPod"
	Rolling                 Reason = "RollingPod"
	GrowingVolume           Reason = "GrowingVolume"
	RecreatingSet           Reason = "RecreatingStatefulSet"
	CatchingUp              Reason = "ReplicasCatchingUp"
	Draining                Reason = "DrainingBroker"
	DrainEnded              Reason = "DrainEnded"
	ScalingDown             Reason = "ScalingDown"
)

// Reasons why only a person can help.
const (
	NameTaken           Reason = "NameTaken"
	AlreadyOwned        Reason = "AlreadyOwned"
	ScaleDownBlocked    Reason = "ScaleDownBlocked"
	VolumeNotExpandable Reason = "VolumeNotExpandable"
	CertificatesSpoilt  Reason = "CertificatesSpoilt"
)

// Reasons of Topics and Subscriptions; CoordinationUnavailable is one of theirs, too. With
// UnderReplicated they are served all the same; it and NoLeader are also reasons of a Broker's
// condition.
const (
	Served           Reason = "Served"
	UnderReplicated  Reason = "UnderReplicated"
	WaitingForBroker Reason = "WaitingForBroker"
	Placing          Reason = "Placing"
	BrokerAway       Reason = "BrokerAway"
	NoLeader         Reason = "NoLeader"
	Suspect          Reason = "Suspect"
	NotEnoughInSync  Reason = "NotEnoughInSync"
	NotEnoughBrokers Reason = "NotEnoughBrokers"
	TopicMissing     Reason = "TopicMissing"
	WaitingForTopic  Reason = "WaitingForTopic"

	Exists                Reason = "Exists"
	SubjectsTaken         Reason = "SubjectsTaken"
	Invalid               Reason = "Invalid"
	Immutable             Reason = "Immutable"
	ShardsUnsupported     Reason = "ShardsUnsupported"
	PushUnsupported       Reason = "PushUnsupported"
	DeadLetterUnsupported Reason = "DeadLetterUnsupported"
	FilterUnsupported     Reason = "FilterUnsupported"
	DiskFailed            Reason = "DiskFailed"
	DiskFull              Reason = "DiskFull"
	RecordsDamaged        Reason = "RecordsDamaged"
)

// Reasons of events about what was done.
const (
	Adopted  Reason = "Adopted"
	Orphaned Reason = "Orphaned"
	Deleted  Reason = "Deleted"
	// RecordsMayBeLost: a leader was named that may lack what was acknowledged.
	RecordsMayBeLost Reason = "RecordsMayBeLost"
)

// Reasons of a Broker whose etcd was restored from a backup.
const (
	// EtcdRestored: brokers noticed a restore. It is the reason of an event.
	EtcdRestored Reason = "EtcdRestored"
	// ComparingCopies: shards have no leader until all of their copies are compared. It is the
	// reason of the condition EtcdRestored, and of a Topic with such a shard.
	ComparingCopies Reason = "ComparingCopies"
	// CopiesCompared: all shards have leaders again. It is the reason of an event.
	CopiesCompared Reason = "CopiesCompared"
)

// Action is the one next thing to do.
type Action struct {
	Kind   Kind
	Target string // the object, for kinds that have one
	Reason Reason
	// Message is a sentence for people: what is done or waited for, and why.
	Message string
}
