package plan

import (
	"fmt"

	"github.com/carillon-mq/carillon/broker/coordination"
)

// GoneFacts are the facts about a Topic or Subscription whose manifest the cache does not have.
type GoneFacts struct {
	What     string // "topic orders"
	Orphaned bool   // already recorded as orphaned
	Policy   coordination.DeletionPolicy
	// ManifestGone: by a live read, no manifest of that uid exists.
	ManifestGone bool
	// Defined: the definition of its kind exists and is not being deleted.
	Defined bool
	// BrokerThere: the Broker exists and is not being deleted.
	BrokerThere bool
	// Records reports whether a Topic has records. It is read for DeleteIfEmpty only.
	Records Records
}

// Gone returns the action by the deletion policy. There is none unless a person deleted the
// manifest alone: when the definitions or the Broker are deleted, all manifests go, and that is no
// decision about records.
func Gone(f GoneFacts) Action {
	if f.Orphaned || !f.ManifestGone || !f.Defined || !f.BrokerThere {
		return Action{Kind: None}
	}
	switch {
	case f.Policy == coordination.Delete:
		return Action{Kind: Delete, Reason: Deleted, Message: fmt.Sprintf("%s was deleted, as its deletionPolicy says", f.What)}
	case f.Policy == coordination.DeleteIfEmpty && f.Records == NoRecords:
		return Action{Kind: Delete, Reason: Deleted, Message: fmt.Sprintf("%s was deleted, since it held no records", f.What)}
	}
	message := fmt.Sprintf("%s goes on being served", f.What)
	switch {
	case f.Policy != coordination.DeleteIfEmpty:
	case f.Records == SomeRecords:
		message += ", since it holds records"
	default:
		message += ", since its broker did not say whether it holds records"
	}
	return Action{Kind: Orphan, Reason: Orphaned, Message: message + "; a manifest of the same namespace and name takes it over, and clients may delete it"}
}
