package plan

import (
	"fmt"

	"github.com/carillon-mq/carillon/broker/coordination"
)

// GoneFacts are what there is, at one moment, for something in etcd whose manifest is not in sight.
type GoneFacts struct {
	What     string // "topic orders"
	Orphaned bool   // it has been noted already
	Policy   coordination.DeletionPolicy
	// ManifestGone: the API server, asked past every cache, has no manifest of that uid.
	ManifestGone bool
	// Defined: the definition of its kind is there, and not on its way out with all that it
	// defines.
	Defined bool
	// BrokerThere: so is the Broker.
	BrokerThere bool
	// Records reports whether a Topic holds any; asked for only for DeleteIfEmpty.
	Records Records
}

// Gone is what becomes of it. Nothing does unless a person took the manifest away, and only that:
// with the definitions or the Broker everything goes, and nobody was asked about the records.
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
