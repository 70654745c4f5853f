package v1alpha1

// The types of conditions. A condition that says nothing is absent: Reconciling, Stalled,
// and all the others are there only while they are True.
const (
	// ConditionReady is True when the object does what its spec asks for; else its message says why
	// not.
	ConditionReady = "Ready"
	// ConditionReconciling is True while the operator is at work towards the spec.
	ConditionReconciling = "Reconciling"
	// ConditionStalled is True when the operator can't go on before a person changes something.
	ConditionStalled = "Stalled"
	// ConditionRestartPending is True when pods wait for AnnotationRestart before they are replaced.
	ConditionRestartPending = "RestartPending"
	// ConditionUnderReplicated is True of a Broker while shards lack a replica that is in sync, or
	// a leader.
	ConditionUnderReplicated = "UnderReplicated"
	// ConditionEtcdRestored is True of a Broker after etcd was restored from a backup, until all
	// copies of shards were compared and each shard has a leader again.
	ConditionEtcdRestored = "EtcdRestored"
	// ConditionRetentionPaused is True of a Topic whose records are not deleted by their age, as
	// the time is in doubt.
	ConditionRetentionPaused = "RetentionPaused"
	// ConditionDurabilityReduced is True of a Topic whose records may be acknowledged before they
	// are on disk.
	ConditionDurabilityReduced = "DurabilityReduced"
	// ConditionUncleanElection is True of a Topic whose acknowledged records may be given up to
	// keep it available.
	ConditionUncleanElection = "UncleanElection"
	// ConditionAttributesRefused is True of a Topic whose manifest declares attributes of subjects
	// that could not be set.
	ConditionAttributesRefused = "AttributesRefused"
	// ConditionDeadLettersRefused is True of a Subscription with records that were given up, and
	// that its dead-letter Topic does not store. They stay pending until it does.
	ConditionDeadLettersRefused = "DeadLettersRefused"
	// ConditionPaused is True of a Subscription that delivers nothing, as its spec asks.
	ConditionPaused = "Paused"
	// ConditionFallingBehind is True of a Subscription whose Topic's retention is about to delete
	// records that were not acknowledged.
	ConditionFallingBehind = "FallingBehind"
	// ConditionEndpointUnreached is True of a Subscription whose endpoint does not take records. They
	// stay pending.
	ConditionEndpointUnreached = "EndpointUnreached"
	// ConditionAlertsUnread is True of a View whose triggers ask for events, while the operator can't
	// read their alerts.
	ConditionAlertsUnread = "AlertsUnread"

	// ConditionHeldUp is True of a View that brokers can't keep up to date, because of a Topic that it
	// writes into, or of a bound. It goes on when the cause has ended.
	ConditionHeldUp = "HeldUp"
	// ConditionUsersInvalid is True of a Broker with Secrets that are wrong as users. Their users may
	// not connect; the others may.
	ConditionUsersInvalid = "UsersInvalid"
	// ConditionEtcdUnrestricted is True of a Broker whose etcd does not ask for users yet: then any
	// certificate for etcd may do everything there.
	ConditionEtcdUnrestricted = "EtcdUnrestricted"
	// ConditionCertificateExpiring is True of a Broker with a certificate of spec.tls, which others
	// renew, that has expired or soon does.
	ConditionCertificateExpiring = "CertificateExpiring"
	// ConditionOpen is True when anyone who reaches the brokers may publish and subscribe.
	ConditionOpen = "Open"
)

// LabelPush on a Secret, with the value "true", permits Subscriptions of its namespace to send what
// it holds to endpoints. Without it whoever may make a Subscription could read every Secret.
const LabelPush = Group + "/push"

// AnnotationRestart on a Broker with spec.update OnRequest lets the changes go ahead that wait as
// RestartPending; a new value asks for a restart of every pod. Its value is free; the time is
// usual.
const AnnotationRestart = Group + "/restart"
