package plan

import (
	"fmt"
	"strings"

	"github.com/carillon-mq/carillon/broker/coordination"
)

// ViewFacts are the facts about one manifest of a View, at one moment.
type ViewFacts struct {
	Self    coordination.Owner // the manifest
	Name    string             // of the View
	Spec    coordination.ViewSpec
	Invalid string // why Spec can't be read; empty: it can

	TopicRef  string // the name of the manifest of the Topic that is read
	TopicGone bool   // that manifest does not exist
	TopicSays string // the message of that manifest, while it is not served
	// OutputGone is the name of the manifest of a Topic that is to be written into, if that does not
	// exist, and OutputLater if that Topic is not created yet. OutputOf is the field that names it.
	OutputGone, OutputLater, OutputOf string

	Unkept string // why an output is not kept by its Topic; empty: all are

	Link   Link
	Topic  *coordination.Topic // the declared Topic that is read; nil: not created yet
	Shards []ShardFacts        // of that Topic
	Found  *coordination.View

	// Behind is a broker whose version keeps no Views up to date.
	Behind string
	// Cycle is the Topics through which results would come back, or nil.
	Cycle []string
	// Refused is the error of the last attempt to write, or nil.
	Refused error
}

// View returns the next action for the manifest of a View.
func View(f ViewFacts) Action {
	for _, step := range []func() (Action, bool){
		f.unservable,
		f.missing,
		f.Link.wait,
		f.waiting,
		func() (Action, bool) { return refusal(f.Refused) },
		f.write,
		func() (Action, bool) { return placed(f.Link, f.Shards, &f.Topic.Spec) },
	} {
		if action, ok := step(); ok {
			return action
		}
	}
	return Action{Kind: None, Reason: Served, Message: "kept up to date by broker " + strings.Join(leaders(f.Shards), ", ")}
}

func (f ViewFacts) unservable() (Action, bool) {
	stall := func(reason Reason, message string) (Action, bool) {
		return Action{Kind: Stall, Reason: reason, Message: f.asBefore(message)}, true
	}
	switch {
	case f.Invalid != "":
		return stall(Invalid, f.Invalid)
	case f.Behind != "":
		return stall(ViewUnsupported, fmt.Sprintf("broker %s is of a version that keeps no Views up to date: finish the update of the brokers", f.Behind))
	case len(f.Cycle) > 0:
		return stall(ViewCycle, fmt.Sprintf("results would come back for ever, by the Topics %s: name another Topic for what it writes, or change another View of that cycle", strings.Join(f.Cycle, ", ")))
	}
	return Action{}, false
}

func (f ViewFacts) missing() (Action, bool) {
	switch {
	case f.TopicGone:
		return Action{Kind: Wait, Reason: TopicMissing, Message: fmt.Sprintf("there is no Topic %s in this namespace: make it, or wait for it", f.TopicRef)}, true
	case f.OutputGone != "":
		return Action{Kind: Wait, Reason: TopicMissing, Message: f.asBefore(fmt.Sprintf("there is no Topic %s in this namespace, which %s names: make it, or name another", f.OutputGone, f.OutputOf))}, true
	}
	return Action{}, false
}

func (f ViewFacts) waiting() (Action, bool) {
	switch {
	case f.Topic == nil || f.Topic.Deleting:
		return Action{Kind: Wait, Reason: WaitingForTopic, Message: because(fmt.Sprintf("Topic %s is not there yet", f.TopicRef), f.TopicSays)}, true
	case f.OutputLater != "":
		return Action{Kind: Wait, Reason: WaitingForTopic, Message: f.asBefore(fmt.Sprintf("Topic %s, which %s names, is not there yet", f.OutputLater, f.OutputOf))}, true
	case f.Unkept != "":
		return Action{Kind: Stall, Reason: Invalid, Message: f.asBefore(f.Unkept)}, true
	case f.Changes():
		if why := f.Spec.Misjudged(); why != "" {
			return Action{Kind: Stall, Reason: Invalid, Message: f.asBefore(why)}, true
		}
	}
	return Action{}, false
}

// asBefore adds to a message that a present View of the manifest stays as it is.
func (f ViewFacts) asBefore(message string) string {
	if f.ours() {
		message += "; until then the View is kept up to date as it was before"
	}
	return message
}

func (f ViewFacts) ours() bool { return f.Found != nil && SameManifest(f.Found.Owner, f.Self) }

// Changes reports whether the spec is not that of a present View of the manifest.
func (f ViewFacts) Changes() bool { return !f.ours() || !sameJSON(f.Found.Spec, f.Spec) }

func (f ViewFacts) write() (Action, bool) {
	switch {
	case f.Found == nil:
		return Action{Kind: Create, Reason: Placing, Message: "the View is being made"}, true
	case !f.ours():
		return Action{Kind: Stall, Reason: Exists, Message: fmt.Sprintf("view %s exists already, and belongs to %s: take another name, or have it deleted there", f.Name, f.Found.Owner)}, true
	case !current(f.Found.Owner, f.Self):
		return Action{Kind: Adopt, Reason: Adopted, Message: fmt.Sprintf("took over view %s, which a former manifest of this name had declared", f.Name)}, true
	case f.Changes():
		return Action{Kind: Update, Reason: Placing, Message: "the View is being changed"}, true
	}
	return Action{}, false
}
