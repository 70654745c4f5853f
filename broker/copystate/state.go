package copystate

import (
	"encoding/json"
	"fmt"
	"strings"
)

// Doubt is a set of reasons why a copy may lack what its broker confirmed. The package comment
// explains each.
type Doubt uint8

// The doubts, from the mildest to the gravest.
const (
	Cut Doubt = 1 << iota
	Unsynced
	Damaged
	Partial

	// grave are the doubts that keep a copy from leading and confirming.
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

// State is what a broker knows about its copy of one shard. The zero value is a copy that was not
// opened in this incarnation. Only Apply, Missing and Decode make other values.
type State struct {
	opened bool // in this incarnation; not persisted
	doubts Doubt
	anew   bool   // Damaged, and repairing segments does not help: the copy is fetched as a whole
	reason string // of the gravest doubt, for people
	epoch  uint64 // of the shard, when the first doubt arose
	// follows is the epoch in which this copy follows in spite of a doubt, if the set did not name
	// this incarnation when that began; 0: none. Not persisted.
	follows uint64
	// failedEpoch is the last epoch that this process led in which a log failed; 0: none. Not
	// persisted, since a process leads no epoch of an earlier process.
	failedEpoch uint64
	// failures counts failed attempts in a row to open the logs. Not persisted.
	failures int
}

// Opened reports whether the copy was opened and judged in this incarnation.
func (s State) Opened() bool { return s.opened }

// Doubts returns the doubts about the copy; 0: it is whole, if it was opened.
func (s State) Doubts() Doubt { return s.doubts }

// Whole reports whether there is no doubt.
func (s State) Whole() bool { return s.doubts == 0 }

// Grave reports whether the copy may lack what its broker confirmed: it has a doubt other than Cut.
func (s State) Grave() bool { return s.doubts&grave != 0 }

// Anew reports whether the copy is to be set aside and fetched as a whole when it has a leader, and
// that leader wants nothing of it.
func (s State) Anew() bool { return s.doubts&Damaged != 0 && s.anew }

// Reason returns why the copy is in doubt, for people; empty: it is not.
func (s State) Reason() string { return s.reason }

// Epoch returns the shard's epoch when the first doubt arose.
func (s State) Epoch() uint64 { return s.epoch }

// Follows returns the epoch in which the copy catches up to end its doubts; 0: it does not.
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
	if s.failedEpoch > 0 {
		text += fmt.Sprintf(", failed in %d", s.failedEpoch)
	}
	if s.failures > 0 {
		text += fmt.Sprintf(", can't be opened (failures: %d)", s.failures)
	}
	if s.reason != "" {
		text += " (" + s.reason + ")"
	}
	return text
}

// doubt adds a doubt. The reason of a graver doubt replaces the former reason; that of a milder one
// is appended.
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

// end removes doubts.
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

// persisted is a State in the manifest. Fields may be added; a change of meaning needs a new
// version.
type persisted struct {
	V      int      `json:"v"`
	Doubts []string `json:"doubts,omitempty"` // none: it is whole
	Anew   bool     `json:"anew,omitempty"`
	Reason string   `json:"reason,omitempty"`
	Epoch  uint64   `json:"epoch,omitempty"`
}

const persistedVersion = 1

// maxReason bounds the bytes of a persisted reason, so that a manifest always has room for it.
const maxReason = 256

// Encode returns the persisted part of the State. Fields about this incarnation are not in it.
func (s State) Encode() []byte {
	reason := strings.ToValidUTF8(s.reason[:min(len(s.reason), maxReason)], "")
	data, err := json.Marshal(persisted{persistedVersion, s.doubts.names(), s.anew, reason, s.epoch})
	if err != nil {
		panic(err) // strings and numbers can always be encoded
	}
	return data
}

// Decode returns the State that Encode encoded; of no data, a whole copy. If the data are
// unreadable, or of a later version, nothing else is known about the copy, so it is Partial.
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
