package copystate

import (
	"encoding/json"
	"fmt"
	"strings"
)

// Doubt is a set of reasons for which a copy may lack what its broker confirmed. See the package's
// comment for each.
type Doubt uint8

// The doubts, from the mildest to the gravest.
const (
	Cut Doubt = 1 << iota
	Unsynced
	Damaged
	Partial

	// grave are those that keep a copy from leading and confirming.
	grave = Unsynced | Damaged | Partial
)

var doubtNames = [...]string{"cut", "unsynced", "damaged", "partial"}

func (d Doubt) String() string {
	if d == 0 {
		return "whole"
	}
	return strings.Join(d.names(), "+")
}

func (d Doubt) names() (names []string) {
	for i, name := range doubtNames {
		if d&(1<<i) != 0 {
			names = append(names, name)
		}
	}
	return names
}

// State is what a broker knows of its copy of one shard. The zero value is a copy that was not opened in
// this life. Only Apply, Missing and Decode make other values.
type State struct {
	opened bool // in this life; not persisted
	doubts Doubt
	anew   bool   // Damaged, and repairing segments doesn't help: the copy is fetched as a whole
	reason string // of the gravest doubt, for people
	epoch  uint64 // the shard's when the first of the doubts arose
	// follows is the epoch in which this copy follows although it is in doubt, and the set didn't name this life
	// when that began; 0: there is none. Not persisted.
	follows uint64
	// spent is the last epoch in which a log failed that this process led; 0: there is none. Not persisted: a
	// process leads no epoch of the one before.
	spent uint64
}

// Opened says whether the copy was opened and judged in this life.
func (s State) Opened() bool { return s.opened }

// Doubts returns the doubts about the copy; 0: it is whole, as far as it was opened.
func (s State) Doubts() Doubt { return s.doubts }

// Whole says whether there is no doubt.
func (s State) Whole() bool { return s.doubts == 0 }

// Grave says whether the copy may lack what its broker confirmed: it is more than Cut.
func (s State) Grave() bool { return s.doubts&grave != 0 }

// Anew says whether the copy is to be set aside and fetched as a whole, once it has a leader.
func (s State) Anew() bool { return s.doubts&Damaged != 0 && s.anew }

// Reason returns why the copy is in doubt, for people; empty: it isn't.
func (s State) Reason() string { return s.reason }

// Epoch returns the shard's epoch when the first of the doubts arose.
func (s State) Epoch() uint64 { return s.epoch }

// Follows returns the epoch in which the copy catches up to end its doubts; 0: it doesn't.
func (s State) Follows() uint64 { return s.follows }

func (s State) String() string {
	text := s.doubts.String()
	if !s.opened {
		text += ", not opened"
	}
	if s.Anew() {
		text += ", anew"
	}
	if s.doubts != 0 {
		text += fmt.Sprintf(" since epoch %d", s.epoch)
	}
	if s.follows > 0 {
		text += fmt.Sprintf(", follows in %d", s.follows)
	}
	if s.spent > 0 {
		text += fmt.Sprintf(", spent %d", s.spent)
	}
	if s.reason != "" {
		text += " (" + s.reason + ")"
	}
	return text
}

// doubt adds one. The reason that is kept is that of the gravest.
func (s State) doubt(d Doubt, reason string, epoch uint64) State {
	if s.doubts == 0 {
		s.epoch = epoch
	}
	if d > s.doubts || s.reason == "" {
		s.reason = reason
	} else if d&s.doubts == 0 {
		s.reason += "; " + reason
	}
	s.doubts |= d
	s.follows = 0
	return s
}

// end ends doubts.
func (s State) end(d Doubt) State {
	s.doubts &^= d
	if s.doubts&Damaged == 0 {
		s.anew = false
	}
	if s.doubts == 0 {
		s.reason, s.epoch, s.follows = "", 0, 0
	}
	return s
}

// persisted is a State in the manifest. Fields may be added; a change of meaning takes a new number.
type persisted struct {
	V      int      `json:"v"`
	Doubts []string `json:"doubts,omitempty"` // none: it is whole
	Anew   bool     `json:"anew,omitempty"`
	Reason string   `json:"reason,omitempty"`
	Epoch  uint64   `json:"epoch,omitempty"`
}

const persistedVersion = 1

// maxReason bounds what of a reason is kept, so that a manifest always has room for it.
const maxReason = 256

// Encode returns what is kept in the manifest. What is only about this life is left out.
func (s State) Encode() []byte {
	reason := strings.ToValidUTF8(s.reason[:min(len(s.reason), maxReason)], "")
	data, err := json.Marshal(persisted{persistedVersion, s.doubts.names(), s.anew, reason, s.epoch})
	if err != nil {
		panic(err) // it holds strings and numbers only
	}
	return data
}

// Decode returns the State that Encode was called of; of nothing, a whole copy. What it can't read, also of a later version, is a
// copy whose state is lost: it is Partial, since that is all that can be said of it.
func Decode(data []byte) State {
	if len(data) == 0 {
		return State{}
	}
	var p persisted
	err := json.Unmarshal(data, &p)
	if err == nil && p.V != persistedVersion {
		err = fmt.Errorf("version %d is unknown here", p.V)
	}
	s := State{anew: p.Anew, reason: p.Reason, epoch: p.Epoch}
	for _, name := range p.Doubts {
		known := false
		for i := range doubtNames {
			if doubtNames[i] == name {
				s.doubts |= 1 << i
				known = true
			}
		}
		if !known && err == nil {
			err = fmt.Errorf("doubt %q is unknown here", name)
		}
	}
	if err != nil {
		return State{}.doubt(Partial, fmt.Sprintf("what was known of the copy can't be read: %v", err), 0)
	}
	return s
}
