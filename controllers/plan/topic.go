package plan

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/carillon-mq/carillon/broker/coordination"
)

// MaxShards is the largest number of shards of a Topic in this version: placement.MaxShards, which
// this package may not import.
const MaxShards = 64

// DefaultReplicas is the default number of replicas, if there are that many brokers.
const DefaultReplicas = 3

// Resolve sets the defaults of a spec that depend on its Broker: the number of replicas is
// DefaultReplicas, or the wanted number of brokers if that is smaller.
func (l Link) Resolve(spec coordination.TopicSpec) coordination.TopicSpec {
	if spec.Replicas == 0 && l.Wanted > 0 {
		spec.Replicas = min(DefaultReplicas, l.Wanted)
	}
	return spec
}

// TopicFacts are the facts about one manifest of a Topic, at one moment.
type TopicFacts struct {
	Self    coordination.Owner // the manifest
	Name    string             // of the Topic
	Spec    coordination.TopicSpec
	Invalid string // why Spec can't be read; empty: it can
	// LimitBehind is a broker whose version knows no limit per subject; empty: all know it, or none
	// is asked for.
	LimitBehind string
	// Behind is a broker whose version does not know a setting of the manifest, and Unknown that
	// setting; empty: all know all of them.
	Behind, Unknown string
	// CopyCycle says that its sources lead back to it.
	CopyCycle bool
	// Mismatch is why it can't mirror the Topic that it names; empty: it can.
	Mismatch string

	Link   Link
	Found  *coordination.Topic // the Topic of that name, or nil
	Shards []ShardFacts        // the placed shards of Found, by number
	// Older is the oldest manifest before this one with an overlapping subject, or nil.
	Older *Rival
	// Records reports whether Found has records. It is read only if Older is set.
	Records Records
	// Refused is how the last attempt to write ended; nil: well.
	Refused error
	// Trouble is the error that the broker Troubled reports for a shard that it leads; empty: none.
	Trouble, Troubled string
	// AttributesRefused is why attributes that it declares of subjects could not be set; empty: they
	// are.
	AttributesRefused string
}

// Link is facts about the Broker that a manifest refers to, and its etcd.
type Link struct {
	Broker string // its name
	Exists bool   // it exists and is not being deleted
	Ready  bool   // its condition Ready
	Known  bool   // etcd has been read
	Why    string // the Broker's message, or why etcd could not be read
	Joined int    // number of joined brokers
	Wanted int    // wanted number of brokers
}

// Rival is another manifest with an overlapping subject.
type Rival struct {
	Namespace, Name string
	Mine, Its       string // the overlapping subjects of both
	Spec            coordination.TopicSpec
}

// Records reports whether a Topic has records.
type Records int

const (
	// RecordsUnknown: its leader did not answer.
	RecordsUnknown Records = iota
	// NoRecords: it has none.
	NoRecords
	// SomeRecords: it has some.
	SomeRecords
)

// Topic returns the next action for the manifest of a Topic. The steps, in order: unsupported
// settings, unknown facts, the owners of the name and the subjects, writes, and waits.
func Topic(f TopicFacts) Action {
	for _, step := range []func(TopicFacts) (Action, bool){
		unservable,
		f.Link.unknown,
		rejected,
		claim,
		write,
		f.place,
		f.troubled,
	} {
		if action, ok := step(f); ok {
			return action
		}
	}
	return served(f.Shards)
}

func unservable(f TopicFacts) (Action, bool) {
	stall := func(reason Reason, message string) (Action, bool) {
		if f.ours() {
			message += "; until then the Topic is served as it was before"
		}
		return Action{Kind: Stall, Reason: reason, Message: message}, true
	}
	switch {
	case f.Invalid != "":
		return stall(Invalid, f.Invalid)
	case f.Spec.Replicas > 0 && f.Spec.MinInSync > f.Spec.Replicas:
		return stall(Invalid, fmt.Sprintf("minInSync %d can't be had with %s, which is what Broker %s has brokers for: raise its spec.replicas, or write minInSync: %d or less", f.Spec.MinInSync, count(f.Spec.Replicas, "replica"), f.Link.Broker, f.Spec.Replicas))
	case f.Spec.Shards > MaxShards:
		return stall(ShardsUnsupported, fmt.Sprintf("brokers of this version serve Topics of at most %d shards, and %d are asked for: delete this manifest and apply it with shards: %d or fewer", MaxShards, f.Spec.Shards, MaxShards))
	case f.Behind != "":
		return stall(SettingUnsupported, fmt.Sprintf("broker %s is of a version without %s: finish the update of the brokers, or leave %s out", f.Behind, f.Unknown, f.Unknown))
	case f.CopyCycle:
		return stall(SourceCycle, "messages would be copied for ever, since its sources lead back to it: name other sources")
	case f.Mismatch != "":
		return stall(Invalid, f.Mismatch)
	case f.LimitBehind != "":
		return stall(LimitUnsupported, fmt.Sprintf("broker %s is of a version without limits per subject: finish the update of the brokers, or leave retention.messagesPerSubject out", f.LimitBehind))
	}
	return Action{}, false
}

// Servable reports whether brokers support the manifest's settings.
func (f TopicFacts) Servable() bool {
	_, stalled := unservable(f)
	return !stalled
}

// unknown waits until etcd has been read once. After that its last content stands: Topics are
// served while etcd is unreachable, and while their Broker is not Ready.
func (l Link) unknown(TopicFacts) (Action, bool) { return l.wait() }

func (l Link) wait() (Action, bool) {
	switch {
	case !l.Exists:
		return Action{Kind: Wait, Reason: WaitingForBroker, Message: fmt.Sprintf("there is no Broker %s in this namespace: make it, or wait for it", l.Broker)}, true
	case l.Known:
		return Action{}, false
	case !l.Ready:
		return Action{Kind: Wait, Reason: WaitingForBroker, Message: because(fmt.Sprintf("Broker %s is not ready yet", l.Broker), l.Why)}, true
	}
	return Action{Kind: Wait, Reason: CoordinationUnavailable, Message: because(fmt.Sprintf("the coordinators of Broker %s have not answered yet", l.Broker), l.Why)}, true
}

func because(what, why string) string {
	if why == "" {
		return what
	}
	return what + ": " + why
}

// rejected returns what follows from a refused write.
func rejected(f TopicFacts) (Action, bool) {
	overlap := (*coordination.OverlapError)(nil)
	if errors.As(f.Refused, &overlap) {
		message := fmt.Sprintf("subject %s overlaps with %s of topic %s, which belongs to %s and was there first", overlap.Subject, overlap.Claimed, overlap.Other, overlap.Owner)
		return Action{Kind: Stall, Reason: SubjectsTaken, Target: overlap.Other,
			Message: message + ": write other subjects for one of the two, or have the other deleted (its manifest with deletionPolicy: Delete, or carillon topic delete)"}, true
	}
	return refusal(f.Refused)
}

func refusal(err error) (Action, bool) {
	invalid, immutable := (*coordination.InvalidError)(nil), (*coordination.ImmutableError)(nil)
	switch {
	case err == nil:
		return Action{}, false
	case errors.As(err, &invalid):
		return Action{Kind: Stall, Reason: Invalid, Message: invalid.Why}, true
	case errors.As(err, &immutable):
		return Action{Kind: Stall, Reason: Immutable, Message: immutable.Error()}, true
	}
	return Action{Kind: Wait, Reason: CoordinationUnavailable, Message: "writing into etcd failed, and is tried again: " + Cause(err)}, true
}

// claim stalls or waits if the name or a subject belongs to another owner.
func claim(f TopicFacts) (Action, bool) {
	if f.Found != nil && !f.Found.Deleting && !f.ours() {
		return Action{Kind: Stall, Reason: Exists, Message: fmt.Sprintf("topic %s exists already, and belongs to %s: set another spec.name in a new manifest, or have it deleted there", f.Name, f.Found.Owner)}, true
	}
	if f.Older == nil {
		return Action{}, false
	}
	// An existing Topic with records keeps its subjects, since moving them would split the log. The
	// status of the older manifest names that Topic.
	if f.ours() {
		if mine, _ := f.Found.Spec.Overlaps(&f.Older.Spec); mine != "" {
			switch {
			case f.Records == NoRecords:
				return Action{Kind: Release, Reason: SubjectsTaken, Message: f.taken()}, true
			case sameJSON(f.Found.Spec.Subjects, f.Spec.Subjects):
				return Action{}, false
			}
		}
	}
	return Action{Kind: Stall, Reason: SubjectsTaken, Message: f.taken()}, true
}

func (f TopicFacts) taken() string {
	return fmt.Sprintf("subject %s overlaps with %s of Topic %s/%s, which is older: write other subjects for one of the two", f.Older.Mine, f.Older.Its, f.Older.Namespace, f.Older.Name)
}

// ours reports whether Found was declared by this manifest, or by a former one of its namespace and
// name.
func (f TopicFacts) ours() bool {
	return f.Found != nil && !f.Found.Deleting && SameManifest(f.Found.Owner, f.Self)
}

// SameManifest reports whether two owners are manifests of the same namespace and name, such as a
// recreated one.
func SameManifest(a, b coordination.Owner) bool {
	return a.Kind == coordination.ManifestOwner && b.Kind == coordination.ManifestOwner && a.Namespace == b.Namespace && a.Name == b.Name
}

// current reports whether the manifest itself, by its uid, is the owner.
func current(owner, self coordination.Owner) bool {
	return SameManifest(owner, self) && owner.UID == self.UID && owner.Orphaned.IsZero()
}

func write(f TopicFacts) (Action, bool) {
	switch {
	case !f.ours():
		return Action{Kind: Create, Reason: Placing, Message: "the Topic is being made"}, true
	case !current(f.Found.Owner, f.Self):
		return Action{Kind: Adopt, Reason: Adopted, Message: fmt.Sprintf("took over topic %s with its records, which a former manifest of this name had declared", f.Name)}, true
	case !sameJSON(f.Found.Spec, f.Spec):
		return Action{Kind: Update, Reason: Placing, Message: "the Topic is being changed"}, true
	}
	return Action{}, false
}

// ReleasedSpec returns the spec of a Topic that gave its subjects up: it has a subject on which
// nobody publishes.
func ReleasedSpec(topic *coordination.Topic) coordination.TopicSpec {
	spec := topic.Spec
	spec.Subjects = []string{"_released." + topic.ID}
	return spec
}

func (f TopicFacts) place(TopicFacts) (Action, bool) {
	return placed(f.Link, f.Shards, &f.Spec)
}

// troubled returns the error of a broker that can't store or read records of the Topic.
func (f TopicFacts) troubled(TopicFacts) (Action, bool) {
	if f.Trouble == "" {
		return Action{}, false
	}
	reason, out := DiskFailed, "see to the disk of that broker and restart it"
	switch text := strings.ToLower(f.Trouble); {
	case strings.Contains(text, "no space"), strings.Contains(text, "disk is full"), strings.Contains(text, "quota exceeded"):
		reason, out = DiskFull, "raise spec.storage.size of the Broker, or give Topics a retention"
	case strings.Contains(text, "is damaged"):
		reason, out = RecordsDamaged, "those records can't be read from this broker; all others can"
	}
	return Action{Kind: Stall, Reason: reason, Target: f.Troubled, Message: fmt.Sprintf("broker %s: %s (%s)", f.Troubled, f.Trouble, out)}, true
}

// OfDisk reports whether a reason is a broker's about its disk.
func OfDisk(reason Reason) bool {
	return reason == DiskFull || reason == DiskFailed || reason == RecordsDamaged
}

// Cause returns the last part of an error, without operation and address. These differ between
// attempts, and each change of a status is a write.
func Cause(err error) string {
	const longest = 256
	message := err.Error()
	if i := strings.LastIndex(message, ": "); i >= 0 {
		message = message[i+2:]
	}
	message = strings.Trim(message, "\"")
	if len(message) > longest {
		message = strings.ToValidUTF8(message[:longest], "") + "…"
	}
	return message
}

// sameJSON reports whether two values have the same JSON, in which an absent and an empty list are
// equal.
func sameJSON(a, b any) bool {
	x, errX := json.Marshal(a)
	y, errY := json.Marshal(b)
	return errX == nil && errY == nil && string(x) == string(y)
}
