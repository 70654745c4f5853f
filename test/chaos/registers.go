package chaos

import (
	"fmt"
	"time"

	"github.com/anishathalye/porcupine"
)

// Swap is one conditional publish: a compare-and-swap of a register, which is a subject. Its
// condition is that the subject's last message has a sequence; 0: there is no message.
type Swap struct {
	Client      int
	Subject     string
	Expected    uint64
	Call, Back  time.Duration // when it was asked and answered, by one clock
	Outcome     Outcome
	Stored      uint64 // sequence of the ack, or in the log at the end; 0: none
	Description string // of the value, for messages
}

// Outcome is the answer that a client got.
type Outcome int

const (
	Unknown Outcome = iota // no answer
	Done                   // acknowledged
	Refused                // since the last message has another sequence
)

// forever is the end of an operation without a known end.
const forever = time.Duration(1 << 62)

// Linearizable returns an error if no order of the swaps, as they overlap, gives each the outcome
// that its client was told. A swap without an answer counts if its message stands in the log.
// porcupine checks each subject (Athalye, 2017; after Wing and Gong, 1993, and Lowe, 2017).
func Linearizable(swaps []Swap, patience time.Duration) error {
	model := porcupine.Model{
		Partition: func(history []porcupine.Operation) [][]porcupine.Operation {
			bySubject := map[string][]porcupine.Operation{}
			for _, op := range history {
				s := op.Input.(*Swap)
				bySubject[s.Subject] = append(bySubject[s.Subject], op)
			}
			var all [][]porcupine.Operation
			for _, ops := range bySubject {
				all = append(all, ops)
			}
			return all
		},
		Init: func() any { return uint64(0) },
		Step: func(state, input, _ any) (bool, any) {
			last, s := state.(uint64), input.(*Swap)
			if s.Outcome == Refused {
				return s.Expected != last, last
			}
			return s.Expected == last && s.Stored > last, s.Stored
		},
	}
	var history []porcupine.Operation
	for i := range swaps {
		s := &swaps[i]
		back := s.Back
		switch {
		case s.Outcome == Unknown && s.Stored == 0:
			continue // it had no effect, and can't have one later: the log was read at the very end
		case s.Outcome == Unknown:
			back = forever
		}
		history = append(history, porcupine.Operation{ClientId: len(history), Input: s, Call: int64(s.Call), Return: int64(back)})
	}
	switch porcupine.CheckOperationsTimeout(model, history, patience) {
	case porcupine.Illegal:
		return fmt.Errorf("no order of the %d conditional publishes does what was told: %s", len(history), firstContradiction(swaps))
	case porcupine.Unknown:
		return fmt.Errorf("whether there is an order of the %d conditional publishes was not known after %v", len(history), patience)
	}
	return nil
}

// firstContradiction explains a history in which porcupine found no order. It checks the swaps in
// the order of the log.
func firstContradiction(swaps []Swap) string {
	last := map[string]*Swap{}
	bySequence := map[uint64]*Swap{}
	most := uint64(0)
	for i := range swaps {
		s := &swaps[i]
		if s.Stored > 0 && s.Outcome != Refused {
			if other := bySequence[s.Stored]; other != nil {
				return fmt.Sprintf("%s and %s are both told to be at %d", other.Description, s.Description, s.Stored)
			}
			bySequence[s.Stored] = s
			most = max(most, s.Stored)
		}
	}
	for at := uint64(1); at <= most; at++ {
		s := bySequence[at]
		if s == nil {
			continue
		}
		before := uint64(0)
		if l := last[s.Subject]; l != nil {
			before = l.Stored
			if l.Outcome == Done && l.Call > s.Back && s.Outcome == Done {
				return fmt.Sprintf("%s at %d stands before %s at %d, which was over when it began", l.Description, l.Stored, s.Description, s.Stored)
			}
		}
		if s.Expected != before {
			return fmt.Sprintf("%s at %d on %s expected %d, and the last one was at %d", s.Description, s.Stored, s.Subject, s.Expected, before)
		}
		last[s.Subject] = s
	}
	for i := range swaps {
		s := &swaps[i]
		if s.Outcome != Refused {
			continue
		}
		// It was refused although the expected message was the last one all the time.
		var next *Swap
		for at := s.Expected + 1; at <= most && next == nil; at++ {
			if n := bySequence[at]; n != nil && n.Subject == s.Subject {
				next = n
			}
		}
		is := bySequence[s.Expected]
		if (s.Expected == 0 || is != nil && is.Outcome == Done && is.Back < s.Call) && (next == nil || next.Call > s.Back) {
			return fmt.Sprintf("%s on %s expected %d and was refused, though that was the last all the while", s.Description, s.Subject, s.Expected)
		}
	}
	return "see the order in which they overlap"
}
