package coordination

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
)

// Feature names something that a broker's program understands and an earlier version does not: a
// frame on a replication stream, a field in etcd, a format on the disk.
//
// A broker announces its features in its registration and in the hello of each connection. Rules:
//
//  1. A frame is sent only on a connection whose other end announced its feature.
//  2. A field in etcd that earlier versions ignore without harm is written at once. Any other field
//     is written only if all registered brokers announce the feature (FeatureGenerations).
//  3. A feature is announced for as long as its frames or fields may be in use. A broker that is
//     away when rule 2 is judged may come back without the feature, so a reader refuses what it
//     does not know by name.
//  4. Formats on a broker's disk need no feature: no other broker reads them. Earlier versions
//     refuse them by name.
type Feature string

// The features of this program.
const (
	// FeatureBarrier is the question of a leader whether its follower still copies under its epoch
	// (package replica).
	FeatureBarrier Feature = "barrier"
	// FeatureClock is the exchange of what brokers' clocks say (packages clock and replica).
	FeatureClock Feature = "clock"
	// FeatureExtents is that a follower's request for a segment says what the follower itself
	// lacks, and that the answer may be to use its own records, or that nobody has them (package
	// replica).
	FeatureExtents Feature = "extents"
	// FeatureVouches is that a broker writes its own entry of an in-sync set once it has opened and
	// judged its copy (Client.Vouch). The controller elects no life of it that isn't named there.
	FeatureVouches Feature = "vouches"
	// FeaturePriorities is that a broker serves Subscriptions with priority groups. Earlier
	// versions ignore the field, and would serve any request.
	FeaturePriorities Feature = "priorities"
	// FeatureGenerations is that a broker notices a restored etcd (history), registers in the
	// generation that etcd is in, and reports how far its copies of a restored shard go. A
	// generation after the first is entered only if all registered brokers announce this. Earlier
	// versions can't take part in it: they can't read the shards, and their registrations count for
	// nothing.
	FeatureGenerations Feature = "generations"
)

// FeatureDiscardNew is that a leader refuses messages beyond the limits of a Topic that keeps its
// old ones (StreamSettings.DiscardNew). An earlier version would delete those.
const FeatureDiscardNew Feature = "discard-new"

// FeatureTransforms is that a leader stores messages under other subjects where a stream asks for
// it (StreamSettings.Transform). An earlier version would store them under their own.
const FeatureTransforms Feature = "transforms"

// FeatureRepublish is that a leader publishes again what it has stored where a stream asks for it
// (StreamSettings.Republish). An earlier version would not.
const FeatureRepublish Feature = "republish"

// FeatureRemovals is that a broker knows which records were removed one by one (package removal).
// An earlier version would show them again, and take removals in a state log for damage.
const FeatureRemovals Feature = "removals"

// FeatureAckRemovals is that a leader removes what is acknowledged where a stream asks for it
// (StreamSettings.Retention), and reads cursors with kept records. An earlier version would keep
// everything, and take such cursors for damage.
const FeatureAckRemovals Feature = "ack-removals"

// FeatureDeadLetters is that a leader stores records that it gives up in another Topic
// (SubscriptionSpec.DeadLetter). An earlier version serves no Subscription that asks for it.
const FeatureDeadLetters Feature = "dead-letters"

// FeatureResets is that a leader begins a new cursor when a Subscription is reset
// (Subscription.Incarnation). An earlier version would go on with the former one.
const FeatureResets Feature = "resets"

// FeatureExpiries is that a broker knows when records expire that have a time to live
// (StreamSettings.AllowMessageTTL), and removes them when it leads. An earlier version would refuse
// such messages, and take expiries in a state log for damage.
const FeatureExpiries Feature = "expiries"

// FeatureBatches is that a broker forwards, judges and appends atomic batches
// (StreamSettings.AllowAtomic). An earlier version would take a batch for one message.
const FeatureBatches Feature = "batches"

// FeatureFastBatches is that a broker takes fast batches (StreamSettings.AllowBatched), and keeps
// no message of one behind a message that it refused. An earlier version would take their messages
// for single ones, and keep those.
const FeatureFastBatches Feature = "fast-batches"

// FeatureSources is that a leader copies records from other streams (StreamSettings.Sources), and
// that a broker reads how far that has come (package removal). An earlier version would copy
// nothing, and take that for damage in a state log.
const FeatureSources Feature = "sources"

// FeatureSourceEpochs is that a broker reads the epochs of sources (package removal). An earlier
// version would take them for damage in a log.
const FeatureSourceEpochs Feature = "source-epochs"

// FeatureSchedules is that a leader publishes scheduled messages when they are due
// (StreamSettings.AllowSchedules). An earlier version would remove them then, as expired ones.
const FeatureSchedules Feature = "schedules"

// FeatureCounters is that a broker adds up counters when it leads (StreamSettings.AllowCounter),
// and passes their totals on to publishers. An earlier version would refuse increments.
const FeatureCounters Feature = "counters"

// FeatureCounterSources is that a leader adds up the counters of other streams that it copies
// (StreamSettings.AllowCounter with Sources). An earlier version would store their totals as they
// are.
const FeatureCounterSources Feature = "counter-sources"

// FeaturePush is that a leader sends the records of a Subscription to an HTTP endpoint
// (SubscriptionSpec.Push), and reads cursors with records in the hand of one. An earlier version
// can't read the spec of such a Subscription.
const FeaturePush Feature = "push"

// FeaturePushCertificates is that a leader gives a client certificate to an endpoint that asks for
// one (PushTLS.Certificate). An earlier version would push without it.
const FeaturePushCertificates Feature = "push-certificates"

// FeatureRelays is that a leader serves the relay of a push consumer of a Topic with several
// shards, and leads such a relay. An earlier version serves no such Subscription.
const FeatureRelays Feature = "relays"

// FeatureShardReleases is that a broker reads Topics of several shards which remove what is
// acknowledged (StreamSettings.Retention). An earlier version can't read their keys.
const FeatureShardReleases Feature = "shard-releases"

// FeatureShardedSources is that a broker reads Topics of several shards which have sources or are
// mirrors, and that a leader copies what is its shard's of those. An earlier version can't read
// their keys.
const FeatureShardedSources Feature = "sharded-sources"

// FeatureDeclaredConsumers is that a leader makes a consumer of its state log the Subscription that
// is declared with the same name and time of creation, with its cursor (Client.DeclareConsumer). An
// earlier version would begin a new cursor.
const FeatureDeclaredConsumers Feature = "declared-consumers"

// FeatureAttributeNotices is that a broker takes changes of attributes that another one sends over
// their link, ahead of the watch (package live). An earlier version has no live queries, and ends
// the link.
const FeatureAttributeNotices Feature = "attribute-notices"

// FeatureStamps is that a broker's logs keep the attributes that subjects had when their records
// were stored (package stamping), and that it judges records by these. An earlier version loses
// them when it compacts, and serves no Subscription whose condition names attributes.
const FeatureStamps Feature = "stamps"

// FeatureDividedLimits is that a broker divides the limits of users a second with the others, and
// takes their reports over links (package quota). An earlier version applies the whole limits, and
// ends the link.
const FeatureDividedLimits Feature = "divided-limits"

// FeatureRecordRights is that a leader returns the records that the user may read whom a request
// for them names when another broker forwards it, and that a broker names the user of its clients
// there. An earlier version returns all records, and names nobody.
const FeatureRecordRights Feature = "record-rights"

// Features returns the features that this program announces.
func Features() FeatureSet {
	return MakeFeatureSet(FeatureAckRemovals, FeatureAttributeNotices, FeatureBarrier, FeatureBatches, FeatureClock, FeatureConditions, FeatureCounterSources, FeatureCounters, FeatureDeadLetters, FeatureDeclaredConsumers, FeatureDiscardNew, FeatureDividedLimits, FeatureExpiries, FeatureExtents, FeatureFastBatches, FeatureGenerations, FeaturePriorities, FeaturePush, FeaturePushCertificates, FeatureRecordRights, FeatureRelays, FeatureRemovals, FeatureRepublish, FeatureResets, FeatureSchedules, FeatureShardReleases, FeatureShardedSources, FeatureSourceEpochs, FeatureSources, FeatureStamps, FeatureTransforms, FeatureViews, FeatureVouches)
}

const (
	// maxFeatures and maxFeature bound what a broker announces: far beyond what one release adds,
	// and small beside the rest of a registration.
	maxFeatures = 64
	maxFeature  = 32
)

// FeatureSet is a set of features, sorted and separated by spaces, so that it can be compared with
// ==. In JSON it is a list.
type FeatureSet string

// MakeFeatureSet returns the set of these features.
func MakeFeatureSet(features ...Feature) FeatureSet {
	names := make([]string, 0, len(features))
	for _, f := range features {
		names = append(names, string(f))
	}
	slices.Sort(names)
	return FeatureSet(strings.Join(slices.Compact(names), " "))
}

// Has reports whether the feature is in the set.
func (s FeatureSet) Has(f Feature) bool {
	for name := range strings.SplitSeq(string(s), " ") {
		if name == string(f) {
			return f != ""
		}
	}
	return false
}

// MarshalJSON encodes the set as a list of names.
func (s FeatureSet) MarshalJSON() ([]byte, error) { return json.Marshal(strings.Fields(string(s))) }

// UnmarshalJSON decodes a list of names. It refuses a list or a name beyond the bounds.
func (s *FeatureSet) UnmarshalJSON(data []byte) error {
	var features []Feature
	if err := json.Unmarshal(data, &features); err != nil {
		return err
	}
	if len(features) > maxFeatures {
		return fmt.Errorf("%d features are announced (at most %d are possible)", len(features), maxFeatures)
	}
	for _, f := range features {
		if f == "" || len(f) > maxFeature || strings.ContainsFunc(string(f), func(r rune) bool {
			return !(r >= 'a' && r <= 'z' || r >= '0' && r <= '9' || r == '-')
		}) {
			return fmt.Errorf("feature %.64q is announced (a name has 1 to %d lower-case letters, digits or -)", string(f), maxFeature)
		}
	}
	*s = MakeFeatureSet(features...)
	return nil
}
