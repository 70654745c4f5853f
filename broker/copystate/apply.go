package copystate

import (
	"fmt"

	"github.com/carillon-mq/carillon/broker/log"
)

// Event is something that happened to a copy, or that its broker heard of it.
type Event interface{ apply(State) (State, []Action) }

// Action is what follows from an event. Its caller carries actions out in order.
type Action uint8

// The actions.
const (
	// Keep: persist the State, before anything else is done.
	Keep Action = iota + 1
	// StepDown: end leading or following, so that nothing is confirmed any more.
	StepDown
	// Report: tell what the State is now, for the controller to compare copies by.
	Report
	// Vouch, Withdraw and Resign change the broker's own entry of the shard's key.
	Vouch
	Withdraw
	Resign
	// Lead: lead the shard.
	Lead
	// Follow: copy from the leader.
	Follow
	// Repair: fetch single segments from the leader.
	Repair
	// SetAside: move the copy out of the way; it begins anew and is fetched as a whole.
	SetAside
)

func (a Action) String() string {
	return [...]string{"nothing", "keep", "step down", "report", "vouch", "withdraw", "resign", "lead", "follow", "repair", "set aside"}[a]
}

// Apply returns the State after an event, and what follows from it.
func Apply(s State, e Event) (State, []Action) { return e.apply(s) }

// Missing returns the State that the manifest of a log begins with that isn't there. counted is that of
// Opened.
func Missing(counted bool, epoch uint64) State {
	if !counted {
		return State{}
	}
	return State{}.doubt(Partial, fmt.Sprintf("the log was not there in epoch %d and begins anew; if it had messages, they are lost", epoch), epoch)
}

// Opened says that both logs of the copy were opened, and what that found.
type Opened struct {
	// Kept is what the manifest holds, or began with; see Missing.
	Kept State
	// Lost says that there was a log, and its manifest could not be read.
	Lost bool
	// Counted says that others may count on what the life before this process confirmed: the set has an entry of
	// this broker in an earlier life, or a withdrawn one; or it is the leader of an epoch beyond the first.
	Counted bool
	// Orderly says that everything that was written in the life that the set names is there.
	Orderly    bool
	Durability log.Durability
	// Torn says that a torn tail was cut.
	Torn bool
	// Damage is what of the logs can't be read or is missing; empty: nothing. Anew says that repairing segments
	// doesn't help.
	Damage string
	Anew   bool
	// Short says that the copy ends before what was durable when it was closed in this life.
	Short bool
	Epoch uint64
}

func (e Opened) apply(s State) (State, []Action) {
	before := s
	first := !s.opened
	s.opened = true
	for i := range doubtNames { // of an earlier life, or of this one
		if d := Doubt(1) << i; e.Kept.doubts&^s.doubts&d != 0 {
			s = s.doubt(d, e.Kept.reason, e.Kept.epoch)
		}
	}
	s.anew = s.anew || e.Kept.anew
	if e.Lost && e.Damage == "" {
		e.Damage = "what the log said about itself was lost"
	}
	e.Anew = e.Anew || e.Lost
	if e.Damage != "" {
		s = s.doubt(Damaged, e.Damage, e.Epoch)
		s.anew = s.anew || e.Anew
	}
	if e.Short {
		s = s.doubt(Partial, "it lacks what was safe before it was opened again", e.Epoch)
	}
	if first && e.Counted && e.Torn {
		s = s.doubt(Cut, "a write that was under way when the broker died was cut", e.Epoch)
	}
	keep := s.doubts != e.Kept.doubts || s.anew != e.Kept.anew
	if first && e.Counted && e.Durability != log.Synced && !e.Orderly {
		// It is found again by each life, as long as the set names the one before: nothing is written for it.
		s = s.doubt(Unsynced, "the broker died, and may have confirmed what it had not synced", e.Epoch)
	}
	var actions []Action
	if keep {
		actions = append(actions, Keep)
	}
	if s.doubts != 0 || before.doubts != 0 {
		actions = append(actions, Report)
	}
	return s, actions
}

// Harmed says that damage was met while the logs were open.
type Harmed struct {
	Reason string
	Epoch  uint64
}

func (e Harmed) apply(s State) (State, []Action) {
	s = s.doubt(Damaged, e.Reason, e.Epoch)
	return s, []Action{Keep, Report}
}

// Failed says that a log took no more appends and was closed. What was under way is lost here.
type Failed struct {
	Led        uint64 // the epoch that this process led with it; 0: it followed
	Durability log.Durability
	Reason     string
	Epoch      uint64
}

func (e Failed) apply(s State) (State, []Action) {
	s.spent = max(s.spent, e.Led)
	if e.Durability != log.Memory {
		return s, nil
	}
	// It was confirmed before it was written.
	s = s.doubt(Unsynced, "a log failed that had confirmed what it had not written: "+e.Reason, e.Epoch)
	return s, []Action{Keep, Report}
}

// Repaired says that all segments that were damaged or missing have been fetched from a leader.
type Repaired struct{}

func (Repaired) apply(s State) (State, []Action) { return s.end(Damaged), []Action{Keep, Report} }

// Unrepairable says that single segments can't be fetched.
type Unrepairable struct{ Reason string }

func (e Unrepairable) apply(s State) (State, []Action) {
	s = s.doubt(Damaged, e.Reason, s.epoch)
	s.anew = true
	return s, []Action{Keep, Report}
}

// Aside says that the copy was set aside. It begins anew when it is opened, with this State.
type Aside struct{}

func (Aside) apply(s State) (State, []Action) {
	reason, epoch := s.reason, s.epoch
	s = s.end(Cut|Damaged|Unsynced).end(Partial).doubt(Partial, reason, epoch)
	return s, []Action{Report}
}

// Contradicted says that the leader has the copy drop records that were known to be safe on all members of
// the set. They are set aside, and what is left lacks them.
type Contradicted struct {
	Reason string
	Epoch  uint64
}

func (e Contradicted) apply(s State) (State, []Action) {
	s = s.doubt(Partial, e.Reason, e.Epoch)
	return s, []Action{Keep, StepDown, Report}
}

// CaughtUp says that the leader of an epoch has put the copy into the set in the life that its broker is in.
type CaughtUp struct{ Epoch uint64 }

func (e CaughtUp) apply(s State) (State, []Action) {
	if s.doubts == 0 || s.follows != e.Epoch || e.Epoch == 0 || s.doubts&Damaged != 0 {
		return s, nil
	}
	return s.end(Cut | Unsynced | Partial), []Action{Keep, Report}
}

// Entry is what the in-sync set says of this broker.
type Entry uint8

// The entries.
const (
	NoMember  Entry = iota // it has none
	Earlier                // an earlier life, or a withdrawn one
	Current                // the life in which the broker is registered
	Undecided              // an earlier one, and a Vouch of this revision has no answer: it may be the current one by now
)

func (e Entry) String() string {
	return [...]string{"no member", "earlier", "current", "undecided"}[e]
}

// Leader is who leads the shard, as this broker sees it.
type Leader uint8

// The leaders.
const (
	Nobody Leader = iota // there is none, or it isn't there in the life that the set names
	Self                 // this process is named
	Other                // another broker, in the life that the set names
)

func (l Leader) String() string { return [...]string{"nobody", "self", "other"}[l] }

// Seen says how the shard's key stands. It comes whenever that, or the registered brokers, change, and
// after every other event.
type Seen struct {
	Epoch  uint64
	Entry  Entry
	Leader Leader
	// Doubted says that the shard names the doubt of this epoch for this broker.
	Doubted bool
	// Leading says that this process leads the shard, in this epoch or until this one.
	Leading bool
	// Alone says that the shard has one replica.
	Alone bool
	// Others says that another member of the set vouches for its copy, and is there to lead.
	Others bool
}

func (e Seen) apply(s State) (State, []Action) {
	if !s.opened {
		return s, nil
	}
	if s.doubts != 0 && e.Entry == Current && e.Leader != Self && s.follows == e.Epoch {
		caughtUp, actions := CaughtUp{e.Epoch}.apply(s)
		next, more := e.apply2(caughtUp)
		return next, append(actions, more...)
	}
	return e.apply2(s)
}

// apply2 is apply without catching up.
func (e Seen) apply2(s State) (State, []Action) {
	if e.Leader == Self {
		return e.named(s)
	}
	if s.Grave() && (e.Entry == Current || e.Entry == Undecided) {
		return s, []Action{StepDown, Withdraw}
	}
	if s.doubts == Cut && e.Entry == Current {
		s = s.end(Cut) // who named it knew of it, or of nothing better
		next, actions := e.apply2(s)
		return next, append([]Action{Keep, Report}, actions...)
	}
	if e.Leader == Nobody {
		if s.doubts == 0 && e.Entry == Earlier {
			return s, []Action{Vouch}
		}
		return s, nil
	}
	if s.doubts != 0 {
		s.follows = e.Epoch
	}
	switch {
	case s.Anew():
		return s, []Action{SetAside}
	case s.doubts&Damaged != 0:
		return s, []Action{Repair}
	}
	return s, []Action{Follow}
}

// named is Seen for a process that the shard names its leader.
func (e Seen) named(s State) (State, []Action) {
	switch {
	case e.Leading && s.Grave() && e.Others:
		return s, []Action{StepDown, Withdraw}
	case e.Leading && e.Alone && e.Entry == Earlier && !s.Grave():
		return s, []Action{Vouch, Lead} // with followers, the leader's own swap says so
	case e.Leading:
		return s, []Action{Lead}
	case e.Epoch <= s.spent && !e.Alone && s.Grave():
		return s, []Action{Withdraw}
	case e.Epoch <= s.spent && !e.Alone:
		return s, []Action{Resign}
	case s.doubts == 0:
		return s, []Action{Lead}
	case s.Grave() && !e.Doubted:
		return s, []Action{Withdraw}
	}
	return s.end(s.doubts), []Action{Keep, Report, Lead}
}
