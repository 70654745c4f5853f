package plan

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/carillon-mq/carillon/broker/coordination"
)

// MaxShards is how many shards of one Topic brokers of this version serve; it is
// placement.MaxShards, which this package may not know.
const MaxShards = 64

// DefaultReplicas is how many a Topic has that does not say, if there are so many brokers.
const DefaultReplicas = 3

// Resolve settles what a manifest leaves open and what depends on its Broker: as many replicas as
// are usual, or as there should be brokers if those are fewer.
func (l Link) Resolve(spec coordination.TopicSpec) coordination.TopicSpec {
	if spec.Replicas == 0 && l.Wanted > 0 {
		spec.Replicas = min(DefaultReplicas, l.Wanted)
	}
	return spec
}

// TopicFacts are what there is, for one manifest of a Topic, at one moment.
type TopicFacts struct {
	Self    coordination.Owner // the manifest
	Name    string             // of the Topic
	Spec    coordination.TopicSpec
	Invalid string // why Spec can't be read; empty: it can

	Link   Link
	Found  *coordination.Topic // what has that name; nil: nothing
	Shards []ShardFacts        // of Found, by number; those that are placed
	// Older is the oldest manifest before this one that asks for one of its subjects; nil: there is
	// none.
	Older *Rival
	// Records reports whether Found holds any; asked for only if Older is there.
	Records Records
	// Refused is how the last attempt to write ended; nil: well.
	Refused error
	// Trouble is what the broker Troubled, which serves it or a shard of it, says is wrong; empty:
	// nothing.
	Trouble, Troubled string
}

// Link is the way to the coordination of the Broker that is referred to.
type Link struct {
	Broker string // its name
	Exists bool   // and is not being deleted
	Ready  bool   // as its own condition says
	Known  bool   // what is in etcd has been read
	Why    string // the Broker's own words, or what kept etcd from being read
	Joined int    // how many brokers there are
	Wanted int    // and how many there should be
}

// Rival is another manifest that asks for the same subjects.
type Rival struct {
	Namespace, Name string
	Mine, Its       string // subjects of both
	Spec            coordination.TopicSpec
}

// Records reports whether a Topic holds any.
type Records int

const (
	// RecordsUnknown: its broker did not say.
	RecordsUnknown Records = iota
	// NoRecords: it holds none.
	NoRecords
	// SomeRecords: it holds some.
	SomeRecords
)

// Topic is the one next thing to do for the manifest of a Topic. The order of the steps is: what
// no broker could serve, what can't be known yet, to whom the name and the subjects belong, and
// only then what there is to write and to wait for.
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
	}
	return Action{}, false
}

// Servable says that brokers could serve what the manifest asks for, if nothing were in the way.
func (f TopicFacts) Servable() bool {
	_, stalled := unservable(f)
	return !stalled
}

// unknown waits until it is known what is in etcd. Afterwards that is known for good: Topics are
// served while etcd is away, and so are those whose Broker says that it is not well.
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

// rejected says what came of writing.
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

// claim reports whether name and subjects can be this manifest's.
func claim(f TopicFacts) (Action, bool) {
	if f.Found != nil && !f.Found.Deleting && !f.ours() {
		return Action{Kind: Stall, Reason: Exists, Message: fmt.Sprintf("topic %s exists already, and belongs to %s: set another spec.name in a new manifest, or have it deleted there", f.Name, f.Found.Owner)}, true
	}
	if f.Older == nil {
		return Action{}, false
	}
	// An existing Topic with records keeps its subjects: publishers would be surprised to lose
	// them. The status of the older manifest names that Topic.
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

// ours says that Found was declared by this manifest, or by one of its namespace and name before
// it.
func (f TopicFacts) ours() bool {
	return f.Found != nil && !f.Found.Deleting && SameManifest(f.Found.Owner, f.Self)
}

// SameManifest goes by namespace and name, which a manifest made again has, too.
func SameManifest(a, b coordination.Owner) bool {
	return a.Kind == coordination.ManifestOwner && b.Kind == coordination.ManifestOwner && a.Namespace == b.Namespace && a.Name == b.Name
}

// current says that the manifest itself is the owner.
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

// ReleasedSpec is that of a Topic that gave its subjects up: it keeps what it has, and what nobody
// publishes on.
func ReleasedSpec(topic *coordination.Topic) coordination.TopicSpec {
	spec := topic.Spec
	spec.Subjects = []string{"_released." + topic.ID}
	return spec
}

func (f TopicFacts) place(TopicFacts) (Action, bool) {
	return placed(f.Link, f.Shards, &f.Spec)
}

// troubled says that the broker can't take or read records of the Topic.
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

// OfDisk says that a reason is one of those that brokers give for their disks.
func OfDisk(reason Reason) bool {
	return reason == DiskFull || reason == DiskFailed || reason == RecordsDamaged
}

// Cause is the last part of an error, after what was tried and at which address: those differ
// from one attempt to the next, and a status that changes with each would be written with each.
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

// sameJSON goes by how both are written, where nothing and an empty list are the same.
func sameJSON(a, b any) bool {
	x, errX := json.Marshal(a)
	y, errY := json.Marshal(b)
	return errX == nil && errY == nil && string(x) == string(y)
}
