package copystate

import (
	"cmp"
	"fmt"

	"github.com/carillon-mq/carillon/broker/log"
)

// Event is something that happened to a copy, or that its broker learned about it.
type Event interface{ apply(State) (State, []Action) }

// Action is a consequence of an event. The caller carries actions out in order.
type Action uint8

// The actions.
const (
	// Keep: persist the State, before any other action.
	Keep Action = iota + 1
	// StepDown: stop leading or following, so that nothing is confirmed any more.
	StepDown
	// Report: report the State, by which the controller compares copies.
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
	// Offer: let the leader take what it lacks of the copy, which is set aside afterwards.
	Offer
	// SetAside: move the copy aside. It starts anew and is fetched as a whole.
	SetAside
)

func (a Action) String() string {
	return [...]string{"nothing", "keep", "step down", "report", "vouch", "withdraw", "resign", "lead",
		"follow", "repair", "offer", "set aside"}[a]
}

// Apply returns the State after an event, and the actions that follow from it.
func Apply(s State, e Event) (State, []Action) { return e.apply(s) }

// Missing returns the first State of the manifest of a log that is made. counted reports that the
// copy is counted on (Opened.Counted), or had a log before.
func Missing(counted bool, epoch uint64) State {
	if !counted {
		return State{}
	}
	return State{}.doubt(Partial,
		fmt.Sprintf("the log was not there in epoch %d and begins anew; if it had messages, they are lost", epoch), epoch)
}

// ManifestLost returns the first State of a manifest that is rebuilt from the segments of a log.
func ManifestLost(epoch uint64) State {
	s := State{}.doubt(Damaged, manifestLost, epoch)
	s.anew = true
	return s
}

const manifestLost = "what the log said about itself was lost"

// MissingCursors returns the State of a copy that others count on (Opened.Counted), and whose
// records are there and log of cursors does not exist. kept is the State in the manifest. The
// result is persisted before a log of cursors is made.
func MissingCursors(kept State, epoch uint64) State {
	return kept.doubt(Partial,
		fmt.Sprintf("the log of cursors was not there in epoch %d and begins anew; if it had cursors, they are lost", epoch), epoch)
}

// Opened reports that both logs of the copy were opened, and what that found.
type Opened struct {
	// Kept is the State in the manifest, or that of Missing.
	Kept State
	// Lost reports that a log existed, and that its manifest was unreadable. Kept is that of
	// ManifestLost then.
	Lost bool
	// Counted reports that other brokers may rely on what an earlier process of this broker
	// confirmed: the set has an entry of this broker with an earlier incarnation or a withdrawn
	// one, or the broker is the leader of an epoch after the first.
	Counted bool
	// Orderly reports that everything written in the incarnation that the set names is present.
	Orderly    bool
	Durability log.Durability
	// Torn reports that a torn tail was cut.
	Torn bool
	// Damage describes what is unreadable or missing in the logs; empty: nothing. Anew reports that
	// repairing segments does not help.
	Damage string
	Anew   bool
	// Short reports that the copy ends before what was durable when it was closed in this
	// incarnation.
	Short bool
	// EndLost reports that the end of a log is missing: the broker may have confirmed more records
	// than are known of, and fetching the known ones does not make the copy whole.
	EndLost bool
	Epoch   uint64
}

func (e Opened) apply(s State) (State, []Action) {
	before := s
	first := !s.opened
	s.opened, s.failures = true, 0
	kept := e.Kept
	if e.Lost {
		kept = kept.end(Damaged) // Damage says more
	}
	for i := range doubtNames { // of an earlier incarnation, or of this one
		if d := Doubt(1) << i; kept.doubts&^s.doubts&d != 0 {
			s = s.doubt(d, kept.reason, kept.epoch)
		}
	}
	s.anew = s.anew || kept.anew
	if e.Lost && e.Damage == "" {
		e.Damage = manifestLost
	}
	e.Anew = e.Anew || e.Lost
	if e.Damage != "" {
		s = s.doubt(Damaged, e.Damage, e.Epoch)
		s.anew = s.anew || e.Anew
	}
	if e.EndLost {
		s = s.doubt(Partial, cmp.Or(e.Damage, "the last segment of a log is missing")+"; how far the log went is not known", e.Epoch)
	}
	if e.Short {
		s = s.doubt(Partial, "it lacks what was safe before it was opened again", e.Epoch)
	}
	if first && e.Counted && e.Torn {
		s = s.doubt(Cut, "a write that was under way when the broker died was cut", e.Epoch)
	}
	keep := s.doubts != kept.doubts || s.anew != kept.anew
	if first && e.Counted && e.Durability != log.Synced && !e.Orderly {
		// It is not persisted: each incarnation finds it again, as long as the set names the
		// earlier one.
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

// DamageFound reports damage that was found while the logs were open.
type DamageFound struct {
	Reason string
	Epoch  uint64
	Led    uint64 // the epoch that this process was to lead when it found the damage; 0: none
}

func (e DamageFound) apply(s State) (State, []Action) {
	s = s.doubt(Damaged, e.Reason, e.Epoch)
	s.failedEpoch = max(s.failedEpoch, e.Led)
	return s, []Action{Keep, Report}
}

// Failed reports that a log accepted no more appends and was closed. Appends under way are lost
// here.
type Failed struct {
	Led        uint64 // the epoch that this process led with it; 0: it followed
	Durability log.Durability
	Reason     string
	Epoch      uint64
}

func (e Failed) apply(s State) (State, []Action) {
	s.failedEpoch = max(s.failedEpoch, e.Led)
	if e.Durability != log.Memory {
		return s, nil
	}
	// Records were confirmed before they were written.
	s = s.doubt(Unsynced, "a log failed that had confirmed what it had not written: "+e.Reason, e.Epoch)
	return s, []Action{Keep, Report}
}

// CannotOpen reports that an attempt to open the logs of the copy has failed. They are closed then,
// and the broker neither leads nor follows.
type CannotOpen struct {
	// Shard is the shard's key, as of ShardSeen.
	Shard ShardSeen
	// Restored reports that the shard is of an earlier generation of etcd: its in-sync set is not
	// believed, so no entry is changed.
	Restored bool
}

func (e CannotOpen) apply(s State) (State, []Action) {
	s.failures++
	again, seen := s.failures > 1, e.Shard
	if e.Restored {
		if again {
			return s, []Action{Report}
		}
		return s, nil
	}
	var actions []Action
	if s.Grave() || again { // the disk may recover after the first failure
		actions = append(actions, Report)
	}
	// The copy is what the shard holds (S3), unless another one can lead.
	elected := seen.Leader == Self && (!s.Grave() || seen.Doubted)
	givesUp := seen.Others || again && !seen.Alone
	switch {
	case seen.Entry != Current && seen.Entry != Undecided:
	case s.Grave() && (!elected || givesUp):
		actions = append(actions, Withdraw)
	case elected && givesUp && seen.Entry == Current:
		actions = append(actions, Resign)
	}
	return s, actions
}

// Gone reports that the logs of the copy were deleted, or set aside for good.
type Gone struct{}

func (Gone) apply(State) (State, []Action) { return State{}, nil }

// Repaired reports that all damaged or missing segments have been fetched from a leader.
type Repaired struct{}

func (Repaired) apply(s State) (State, []Action) { return s.end(Damaged), []Action{Keep, Report} }

// Unrepairable reports that single segments cannot be fetched.
type Unrepairable struct{ Reason string }

func (e Unrepairable) apply(s State) (State, []Action) {
	s = s.doubt(Damaged, e.Reason, s.epoch)
	s.anew = true
	return s, []Action{Keep, Report}
}

// MovedAside reports that the copy was set aside. It starts anew, with this State, when it is
// opened.
type MovedAside struct{}

func (MovedAside) apply(s State) (State, []Action) {
	reason, epoch := s.reason, s.epoch
	s = s.end(Cut|Damaged|Unsynced).end(Partial).doubt(Partial, reason, epoch)
	return s, []Action{Report}
}

// Contradicted reports that the leader makes the copy drop records that were known to be safe on
// all members of the set. They are set aside, and the rest of the copy lacks them.
type Contradicted struct {
	Reason string
	Epoch  uint64
}

func (e Contradicted) apply(s State) (State, []Action) {
	s = s.doubt(Partial, e.Reason, e.Epoch)
	return s, []Action{Keep, StepDown, Report}
}

// CaughtUp reports that, in an epoch, the set named the broker's current incarnation while another
// broker led, and that the copy has caught up (ShardSeen.CaughtUp).
type CaughtUp struct{ Epoch uint64 }

func (e CaughtUp) apply(s State) (State, []Action) {
	if s.doubts == 0 || s.follows != e.Epoch || e.Epoch == 0 || s.doubts&Damaged != 0 {
		return s, nil
	}
	return s.end(Cut | Unsynced | Partial), []Action{Keep, Report}
}

// Entry is this broker's entry in the in-sync set.
type Entry uint8

// The entries.
const (
	NoMember  Entry = iota // there is none
	Earlier                // an earlier incarnation, or a withdrawn one
	Current                // the registered incarnation of the broker
	Undecided              // Earlier, but a Vouch of this revision has no answer: it may be Current
)

func (e Entry) String() string {
	return [...]string{"no member", "earlier", "current", "undecided"}[e]
}

// Leader is the shard's leader, as this broker sees it.
type Leader uint8

// The leaders.
const (
	Nobody Leader = iota // there is none, or it is not present in the incarnation that the set names
	Self                 // this process is named
	Other                // another broker, in the incarnation that the set names
)

func (l Leader) String() string { return [...]string{"nobody", "self", "other"}[l] }

// ShardSeen reports the state of the shard's key. It follows every change of the key or of the
// registered brokers, and every other event.
type ShardSeen struct {
	Epoch  uint64
	Entry  Entry
	Leader Leader
	// Doubted reports that the shard records the doubt of this epoch for this broker.
	Doubted bool
	// Leading reports that this process leads the shard in this epoch, or led it until this epoch.
	Leading bool
	// Alone reports that the shard has one replica.
	Alone bool
	// Others reports that another member of the set vouches for its copy, and is present to lead.
	Others bool
	// CaughtUp reports that this copy follows the leader of this epoch since its last doubt, and
	// has had everything that was safe when the leader let it copy. Without that, an entry of the
	// current incarnation proves nothing: the leader may have made its swap before the doubt.
	CaughtUp bool
	// Unwanted reports that the leader of this epoch lacks nothing of what this copy has.
	Unwanted bool
}

func (e ShardSeen) apply(s State) (State, []Action) {
	if !s.opened {
		return s, nil
	}
	if s.doubts != 0 && e.Entry == Current && e.Leader != Self && s.follows == e.Epoch && e.CaughtUp {
		caughtUp, actions := CaughtUp{e.Epoch}.apply(s)
		next, more := e.applyShard(caughtUp)
		return next, append(actions, more...)
	}
	return e.applyShard(s)
}

// applyShard is apply without catching up.
func (e ShardSeen) applyShard(s State) (State, []Action) {
	if e.Leader == Self {
		return e.named(s)
	}
	if s.Grave() && (e.Entry == Current || e.Entry == Undecided) {
		return s, []Action{StepDown, Withdraw}
	}
	if s.doubts == Cut && e.Entry == Current {
		s = s.end(Cut) // the writer of the entry knew of the cut, or of no better copy
		next, actions := e.applyShard(s)
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
	case s.Anew() && !e.Unwanted:
		return s, []Action{Offer}
	case s.Anew():
		return s, []Action{SetAside}
	case s.doubts&Damaged != 0:
		return s, []Action{Repair}
	}
	return s, []Action{Follow}
}

// named applies ShardSeen to a process that the shard names as its leader.
func (e ShardSeen) named(s State) (State, []Action) {
	switch {
	case e.Leading && s.Grave() && e.Others:
		// The doubt that the shard may name for this epoch was an earlier one.
		s.failedEpoch = max(s.failedEpoch, e.Epoch)
		return s, []Action{Withdraw, Lead}
	case e.Leading && e.Alone && e.Entry == Earlier && !s.Grave():
		return s, []Action{Vouch, Lead} // with followers, the leader's own swap does this
	case e.Leading:
		return s, []Action{Lead}
	case e.Epoch <= s.failedEpoch && !e.Alone && s.Grave():
		return s, []Action{Withdraw}
	case e.Epoch <= s.failedEpoch && !e.Alone:
		return s, []Action{Resign}
	case s.doubts == 0:
		return s, []Action{Lead}
	case s.Grave() && !e.Doubted:
		return s, []Action{Withdraw}
	}
	return s.end(s.doubts), []Action{Keep, Report, Lead}
}
