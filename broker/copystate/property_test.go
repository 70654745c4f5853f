package copystate

import (
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/carillon-mq/carillon/broker/log"
)

// copyWorld is one copy, the incarnations of its broker, and the shard's key. Its other writers act
// at random within their rules: a leader puts the copy into the set when it has caught up, and the
// controller names a member in its current incarnation, or one in doubt, which it records.
type copyWorld struct {
	s     State
	kept  []byte
	found bool // a log exists
	open  bool

	epoch   uint64
	entry   Entry // Earlier or Current, or NoMember
	leader  Leader
	doubted bool
	asked   bool // a Vouch of this revision of the key is under way

	lacks    string // what the crash took
	unsynced bool   // the set names an incarnation that lost confirmed, unsynced records

	leads, follows bool
	caughtUp       bool // with the leader of this epoch, since it follows
	swapping       bool // the leader's swap that puts the copy into the set is under way
	unseen         bool // the broker has not seen that swap's result
	holds          bool // everything that it confirmed
	noticed        bool // the broker knows if it does not
}

// TestACopyThatLacksConfirmedRecordsDoesNotLead: a copy that lacks records that its broker
// confirmed leads only if the shard says so, or before the loss can be known.
func TestACopyThatLacksConfirmedRecordsDoesNotLead(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := &copyWorld{epoch: 1, entry: Current, leader: Self, holds: true, noticed: true}
		w.opens(t)
		t.Repeat(map[string]func(*rapid.T){
			"": func(t *rapid.T) { w.check(t) },
			"crash": func(t *rapid.T) {
				if w.s = (State{}); w.lacks == "" {
					w.lacks = rapid.SampledFrom([]string{"", "", "damage", "lost", "unsynced"}).Draw(t, "lacks")
					w.holds, w.noticed = w.holds && w.lacks == "", w.noticed && w.lacks == ""
				}
				// Each incarnation finds it, except for the one that the set names.
				if w.lacks == "unsynced" && w.entry != NoMember {
					w.unsynced = true
				}
				w.open, w.leads, w.follows, w.caughtUp, w.swapping = false, false, false, false, false
				if w.entry == Current {
					w.entry = Earlier
				}
				if w.leader == Self {
					w.leader = Nobody
				}
				// A Vouch of the former incarnation fails, since it compares that incarnation.
				w.asked = false
				if rapid.IntRange(0, 3).Draw(t, "gone") == 0 {
					w.found, w.kept = false, nil
					w.holds, w.noticed = false, false
				}
			},
			"open": func(t *rapid.T) {
				w.opens(t)
				w.sees(t) // as after every event
			},
			"cannot open": func(t *rapid.T) {
				if !w.open {
					seen := w.shard(t)
					w.happens(t, CannotOpen{Shard: seen, Restored: rapid.IntRange(0, 9).Draw(t, "restored") == 0})
				}
			},
			"seen": func(t *rapid.T) { w.sees(t) },
			"harmed": func(t *rapid.T) {
				if w.open {
					w.holds, w.noticed = false, true
					w.happens(t, DamageFound{Reason: "damage", Epoch: w.epoch})
					w.sees(t) // as after every event
				}
			},
			"failed": func(t *rapid.T) {
				if w.open {
					led := uint64(0)
					if w.leads {
						led = w.epoch
					}
					memory := rapid.Bool().Draw(t, "memory")
					d := log.Synced
					if memory {
						d, w.holds, w.noticed = log.Memory, false, true
					}
					w.leads, w.follows, w.caughtUp, w.open = false, false, false, false
					w.happens(t, Failed{Led: led, Durability: d, Reason: "failed", Epoch: w.epoch})
				}
			},
			"the vouch arrives": func(*rapid.T) {
				if w.asked && w.entry == Earlier {
					w.entry, w.asked = Current, false
				}
			},
			"the leader": func(t *rapid.T) { // begins to put the copy into the set, or removes it
				switch {
				case w.leader != Other:
				case rapid.Bool().Draw(t, "in") && w.follows:
					w.caughtUp, w.holds = true, true
					w.swapping = w.entry != Current
				default:
					w.entry, w.asked, w.swapping = NoMember, false, false
				}
			},
			"the leader's swap arrives": func(*rapid.T) { // also if the leader is gone by now
				if w.swapping {
					w.entry, w.asked, w.swapping, w.unseen = Current, false, false, true
				}
			},
			"the controller": func(t *rapid.T) {
				w.epoch++
				w.asked, w.doubted, w.follows, w.caughtUp, w.swapping = false, false, false, false, false
				switch to := rapid.SampledFrom([]Leader{Nobody, Self, Other}).Draw(t, "leader"); {
				case to == Self && w.entry == Current:
					w.leader = Self
				// In doubt, or by an earlier version that cannot know.
				case to == Self && w.entry == Earlier:
					// No version names an incarnation without a doubt if it may lack unsynced
					// records.
					w.leader, w.entry, w.doubted = Self, Current, w.unsynced || rapid.Bool().Draw(t, "doubted")
					w.holds = w.holds || w.doubted // from then on, the copy is what the shard holds
				case to == Other:
					w.leader = Other
				default:
					w.leader, w.epoch = Nobody, w.epoch-1
				}
			},
		})
	})
}

func (w *copyWorld) opens(t *rapid.T) {
	if w.open {
		return
	}
	counted := w.entry == Earlier
	e := Opened{Kept: Decode(w.kept), Counted: counted, Durability: log.Synced, Epoch: w.epoch, Orderly: true}
	first := !w.found || w.lacks == "lost"
	if !w.found {
		e.Kept = Missing(counted, w.epoch)
		w.found, w.kept = true, e.Kept.Encode()
	} else if w.lacks == "damage" {
		e.Damage = "damage"
	} else if w.lacks == "lost" {
		e.Lost, e.Kept = true, ManifestLost(w.epoch)
		w.kept = e.Kept.Encode()
	}
	if first && counted && rapid.IntRange(0, 3).Draw(t, "dies after the first manifest") == 0 {
		w.lacks = ""
		return
	}
	if w.lacks = ""; w.unsynced {
		e.Durability, e.Orderly = log.Replicated, false
	}
	w.open, w.noticed = true, true
	if !counted && e.Kept.Whole() && e.Damage == "" && !e.Lost {
		w.holds = true
	}
	w.happens(t, e)
}

func (w *copyWorld) sees(t *rapid.T) {
	if !w.open {
		return
	}
	w.unseen = false
	w.happens(t, w.shard(t))
}

// shard returns the shard's key as the broker sees it.
func (w *copyWorld) shard(t *rapid.T) ShardSeen {
	entry := w.entry
	if entry == Earlier && w.asked {
		entry = Undecided
	}
	return ShardSeen{Epoch: w.epoch, Entry: entry, Leader: w.leader, Doubted: w.doubted, Leading: w.leads,
		Others: rapid.Bool().Draw(t, "others"), CaughtUp: w.follows && w.caughtUp, Unwanted: rapid.Bool().Draw(t, "unwanted")}
}

// happens applies an event and carries its actions out.
func (w *copyWorld) happens(t *rapid.T, e Event) {
	before := w.s
	var actions []Action
	w.s, actions = Apply(w.s, e)
	seen, isSeen := e.(ShardSeen)
	if before.Doubts()&^w.s.Doubts() != 0 {
		_, repaired := e.(Repaired)
		_, aside := e.(MovedAside)
		ends := repaired || aside || isSeen && (seen.Doubted && seen.Leader == Self || before.Follows() == seen.Epoch && seen.CaughtUp || before.Doubts() == Cut)
		if !ends {
			t.Fatalf("S6: %v ends a doubt: %v becomes %v", e, before, w.s)
		}
	}
	if w.s.Doubts()&^before.Doubts()&^Unsynced != 0 && isSeen {
		t.Fatalf("%+v brings doubt: %v", e, w.s)
	}
	if closed, is := e.(CannotOpen); is {
		named := closed.Shard.Leader == Self && closed.Shard.Doubted
		inSet := closed.Shard.Entry == Current || closed.Shard.Entry == Undecided
		switch {
		case slices.Contains(actions, Keep) || slices.Contains(actions, Lead) || slices.Contains(actions, Follow):
			t.Fatalf("S9: %v without its logs", actions)
		case before.Grave() && inSet && !named && !closed.Restored && !slices.Contains(actions, Withdraw):
			t.Fatalf("S9: %v stays in the set, and can't be opened", before)
		}
	}
	for i, a := range actions {
		switch a {
		case Keep:
			if i != 0 {
				t.Fatalf("S5: %v come before it is kept", actions[:i])
			}
			w.kept = w.s.Encode()
			if again := Decode(w.kept); again.Doubts() != w.s.Doubts() || again.Anew() != w.s.Anew() {
				t.Fatalf("%v is kept as %s, which is %v", w.s, w.kept, again)
			}
		case StepDown:
			w.leads, w.follows, w.caughtUp = false, false, false
		case Vouch:
			if !w.s.Whole() || w.entry == NoMember || w.leader == Other {
				t.Fatalf("S2: it vouches, being %v, %v, beside %v", w.s, w.entry, w.leader)
			}
			w.asked = true
		case Withdraw:
			if slices.Contains(actions, Lead) && !w.leads || slices.Contains(actions, Follow) {
				t.Fatalf("S7: %v", actions)
			}
			if rapid.Bool().Draw(t, "etcd is away") {
				break
			}
			w.entry, w.asked, w.swapping = Earlier, false, false
			if w.leader == Self {
				w.leader = Nobody
			}
		case Resign:
			w.leader, w.asked = Nobody, false
		case Lead:
			if !w.leads && w.s.Grave() {
				t.Fatalf("S3: it begins to lead, being %v", w.s)
			}
			if w.doubted && !w.leads {
				w.holds = true // the copy is what the shard holds
			}
			w.leads = true
		case Follow:
			w.follows = true
		case Repair:
			w.holds = w.s.Doubts() == Damaged || w.holds
			w.follows, w.caughtUp = false, false
			w.happens(t, Repaired{})
		case Offer:
			w.follows, w.caughtUp = false, false
		case SetAside:
			if !seen.Unwanted {
				t.Fatalf("S10: %v is set aside, and its leader may lack what it has", before)
			}
			w.found, w.kept, w.open, w.follows, w.caughtUp = false, nil, false, false, false
			w.happens(t, MovedAside{})
			kept := w.s
			w.found, w.open, w.kept = true, true, kept.Encode()
			w.happens(t, Opened{Kept: kept, Counted: w.entry == Earlier, Durability: log.Synced, Orderly: true, Epoch: w.epoch})
		}
	}
	if isSeen && w.leader == Self && !slices.Contains(actions, Lead) {
		w.leads = false
	}
	if isSeen && w.leader != Self {
		w.leads = false
	}
}

func (w *copyWorld) check(t *rapid.T) {
	w.unsynced = w.unsynced && w.entry == Earlier
	switch {
	case w.open && w.noticed && !w.holds && !w.s.Grave() && w.entry != NoMember:
		t.Fatalf("it lacks what it confirmed, and is %v", w.s)
	case w.follows && w.s.Grave() && w.entry == Current && !w.unseen:
		t.Fatalf("S7: it follows in the set, being %v", w.s)
	case !w.open && w.leads:
		t.Fatal("it leads and isn't open")
	}
}
