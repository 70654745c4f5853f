package plan

// Kind is the kind of an action.
type Kind string

const (
	// None: everything is as wanted.
	None Kind = "None"
	// Wait: there is no action until something else has happened.
	Wait Kind = "Wait"
	// Stall: no action is possible until a person changes something.
	Stall Kind = "Stall"
	// MarkBootstrapped records for the coordinators that their cluster has existed, so that a
	// member that lost its volume never forms a second one.
	MarkBootstrapped Kind = "MarkBootstrapped"
	// ClaimOwner writes this Broker's identity into etcd.
	ClaimOwner Kind = "ClaimOwner"
	// ReplacePod deletes the pod Target, which its StatefulSet then creates from the present
	// template.
	ReplacePod Kind = "ReplacePod"
	// GrowVolume raises the size of the volume claim Target.
	GrowVolume Kind = "GrowVolume"
	// RecreateSet deletes the StatefulSet Target without its pods, since its claim template can't
	// be changed.
	RecreateSet Kind = "RecreateSet"
	// RenewStatus has the controller of the StatefulSet Target write the status anew.
	RenewStatus Kind = "RenewStatus"
	// ChangeRoots takes the next step to a CA for each kind of connections.
	ChangeRoots Kind = "ChangeRoots"
	// GrantAccess makes the users of etcd and gives them their roles.
	GrantAccess Kind = "GrantAccess"
	// EnableAccess has etcd refuse whoever is no user of it.
	EnableAccess Kind = "EnableAccess"
	// Drain moves all replicas off the broker with the id Target, and EndDrain ends that.
	Drain    Kind = "Drain"
	EndDrain Kind = "EndDrain"
	// Shrink scales the StatefulSet of the brokers down by the pod Target.
	Shrink Kind = "Shrink"
)

// Actions in etcd for a Topic or a Subscription.
const (
	// Create creates the declared Topic or Subscription.
	Create Kind = "Create"
	// Update writes the manifest's spec.
	Update Kind = "Update"
	// Adopt takes over the Topic or Subscription of a former manifest of that namespace and name.
	Adopt Kind = "Adopt"
	// Release gives a Topic's subjects up to an older manifest; the Topic itself stays.
	Release Kind = "Release"
	// Orphan records that the manifest is gone. Its Topic or Subscription stays.
	Orphan Kind = "Orphan"
	// Delete deletes the Topic or Subscription of a deleted manifest.
	Delete Kind = "Delete"
	// Elect reports that the brokers elected a leader of a shard. The operator does nothing for it.
	Elect Kind = "Elect"
)

// Reason is the reason of the condition Ready and of events. The list is closed.
type Reason string

// Reasons of a Broker that is as wanted.
const (
	AllReady Reason = "AllReady"
)

// Reasons to act or to wait.
const (
	Applying                Reason = "Applying"
	Leftovers               Reason = "LeftoversOfFormerBroker"
	AuthSecretUnusable      Reason = "AuthSecretUnusable"
	TLSSecretUnusable       Reason = "TLSSecretUnusable"
	CertManagerMissing      Reason = "CertManagerMissing"
	CertificatePending      Reason = "CertificatePending"
	WritingUsers            Reason = "WritingUsers"
	UsersInvalid            Reason = "UsersInvalid"
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
	RenewingStatus          Reason = "RenewingStatefulSetStatus"
	CatchingUp              Reason = "ReplicasCatchingUp"
	SeparatingRoots         Reason = "SeparatingTrustRoots"
	GrantingAccess          Reason = "GrantingEtcdAccess"
	RestrictingAccess       Reason = "RestrictingEtcd"
	Draining                Reason = "DrainingBroker"
	DrainEnded              Reason = "DrainEnded"
	ScalingDown             Reason = "ScalingDown"
)

// Reasons that require a person.
const (
	NameTaken           Reason = "NameTaken"
	AlreadyOwned        Reason = "AlreadyOwned"
	ScaleDownBlocked    Reason = "ScaleDownBlocked"
	VolumeNotExpandable Reason = "VolumeNotExpandable"
	CertificatesSpoilt  Reason = "CertificatesSpoilt"
)

// Reasons of Topics, Subscriptions and Views, besides CoordinationUnavailable. With UnderReplicated
// they are served. UnderReplicated and NoLeader are also reasons of a Broker's condition.
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
	SettingUnsupported    Reason = "SettingUnsupported"
	SourceCycle           Reason = "SourceCycle"
	LimitUnsupported      Reason = "LimitUnsupported"
	PushUnsupported       Reason = "PushUnsupported"
	DeadLetterUnsupported Reason = "DeadLetterUnsupported"
	DeadLetterCycle       Reason = "DeadLetterCycle"
	ResetUnsupported      Reason = "ResetUnsupported"
	FilterUnsupported     Reason = "FilterUnsupported"
	ViewUnsupported       Reason = "ViewUnsupported"
	ViewCycle             Reason = "ViewCycle"
	DiskFailed            Reason = "DiskFailed"
	DiskFull              Reason = "DiskFull"
	RecordsDamaged        Reason = "RecordsDamaged"
)

// Reasons of events about actions.
const (
	Adopted  Reason = "Adopted"
	Reset    Reason = "Reset"
	Orphaned Reason = "Orphaned"
	Deleted  Reason = "Deleted"
	// RecordsMayBeLost: a leader was elected that may lack acknowledged records.
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

// Reasons of a Broker whose certificate for clients others renew: of the condition
// CertificateExpiring, and of events.
const (
	CertificateExpired     Reason = "CertificateExpired"
	CertificateExpiresSoon Reason = "CertificateExpiresSoon"
)

// Action is the next action of a pass.
type Action struct {
	Kind   Kind
	Target string // the object, if the kind has one
	Reason Reason
	// Message is a sentence for people: the action, or what it waits for, and why.
	Message string
}
