package world

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"github.com/anishathalye/porcupine"
)

// A subject is a register. Its value is the offset of the subject's last message. A publish is a
// write, a publish that expects a last message is a compare-and-swap, and a request for the last
// message is a read. Clients of all brokers, on both sides of a partition, use the same subjects.
// porcupine searches for an order of the operations, as they overlap in time, in which each one has
// the result that its client was told.

// registerStep is one operation on a register.
type registerStep struct {
	what     string
	subject  string
	call     uint64
	back     uint64 // math.MaxUint64: no answer came
	writes   uint64 // the offset of its message; 0: the log does not have it
	expects  bool
	expected uint64 // with expects
	reads    bool
	read     uint64 // the offset that was read, with reads; 0: no message
}

// unknownState is the state of a register whose shard lost its records as its durability allows.
const unknownState = math.MaxUint64

// ranks is how many steps with the same call stamp have distinct positions.
const ranks = 1 << 16

// apply is the model of a register. Its state is the offset of the subject's last message. Limits
// may have removed messages below gone.
func (s *registerStep) apply(state, gone uint64) (ok bool, after uint64) {
	is := func(last uint64) bool {
		return state == unknownState || state == last || last == 0 && state < gone
	}
	if s.expects && !is(s.expected) || s.reads && !is(s.read) {
		return false, state
	}
	if s.writes > 0 {
		return state == unknownState || s.writes > state, s.writes
	}
	if s.reads && state == unknownState {
		state = s.read
	}
	return true, state
}

// registers checks that the conditional publishes and the reads of the last messages are
// linearizable, subject by subject.
func (j *judge) registers(h *history, log copied) {
	if j.w.options.leaveOut(StaleAnswers) {
		return
	}
	subjects := map[string][]registerStep{}
	where := map[string]uint64{}
	holes := false
	for _, r := range log.records {
		where[r.value] = r.offset
		holes = holes || r.value == ""
	}
	delete(where, "")
	judged, unjudgeable := map[string]bool{}, map[string]bool{}
	for _, op := range h.ops {
		s := registerStep{what: op.value, subject: op.subject, call: op.call, back: op.back, writes: where[op.value]}
		if op.call <= h.since || op.outcome == unknown || op.outcome == refused {
			s.back = math.MaxUint64
		}
		known := s.back != math.MaxUint64
		switch {
		case op.outcome == wrongLast && op.expects != swapping:
			continue // it names the last message of the shard
		case known && op.outcome == wrongLast:
			s.what, s.writes, s.reads, s.read = "the refusal of "+op.value, 0, true, op.offset
			judged[op.subject] = true
		case s.writes == 0 && (op.call <= h.since || op.outcome == wrongLast):
			continue
		case s.writes == 0:
			unjudgeable[op.subject] = unjudgeable[op.subject] || holes // its message may have been removed before any client read it
			continue
		case op.expects == swapping:
			s.expects, s.expected = op.call > h.since, op.expected
			judged[op.subject] = true
		}
		subjects[op.subject] = append(subjects[op.subject], s)
	}
	for _, l := range h.lasts {
		if l.call > h.since {
			judged[l.subject] = true
			subjects[l.subject] = append(subjects[l.subject], registerStep{what: "a reader", subject: l.subject, call: l.call, back: l.back, reads: true, read: l.last})
		}
	}
	for subject, steps := range subjects {
		if judged[subject] && !unjudgeable[subject] {
			if why := linearizable(steps, h, log.start); why != "" {
				j.w.fail("%s: the register %s is not linearizable: %s", h.id, subject, why)
			}
		}
	}
}

// linearizable returns why the steps of one register have no order, or an empty string.
func linearizable(steps []registerStep, h *history, start uint64) string {
	initial, gone := uint64(0), uint64(0)
	if h.since > 0 {
		initial = unknownState
	}
	if h.topic.retained() {
		gone = start
	}
	model := porcupine.Model{
		Init: func() any { return initial },
		Step: func(state, input, _ any) (bool, any) {
			ok, after := input.(*registerStep).apply(state.(uint64), gone)
			return ok, after
		},
	}
	tightenWrites(steps)
	var history []porcupine.Operation
	for i := range steps {
		s := &steps[i]
		call, back := int64(s.call)*ranks, int64(math.MaxInt64)
		if s.writes > 0 {
			call += int64(min(i, ranks-1)) // porcupine tries writes with the same call stamp in the order of the log
		}
		if s.back < math.MaxInt64/ranks {
			back = int64(s.back)*ranks + ranks - 1
		}
		history = append(history, porcupine.Operation{ClientId: i, Input: s, Call: call, Return: back})
	}
	if why := firstContradiction(steps, gone); why != "" {
		return why
	}
	if !porcupine.CheckOperations(model, history) {
		return "see the order in which its steps overlap"
	}
	return ""
}

// tightenWrites narrows the intervals of the writes, whose order is known from the log: a write
// takes effect before the next one is answered, and after the one before was called. This excludes
// no order, and spares porcupine the impossible ones.
func tightenWrites(steps []registerStep) {
	slices.SortFunc(steps, func(a, b registerStep) int {
		return cmp.Or(cmp.Compare(a.writes, b.writes), cmp.Compare(a.call, b.call))
	})
	call, back := uint64(0), uint64(math.MaxUint64)
	for i := range steps {
		if s := &steps[i]; s.writes > 0 {
			call = max(call, s.call)
			s.call = call
		}
	}
	for i := range slices.Backward(steps) {
		if s := &steps[i]; s.writes > 0 {
			back = min(back, s.back)
			s.back = back
		}
	}
}

// firstContradiction explains a history in which porcupine found no order. It returns a step that
// rests on a state that had ended before its call, or had not begun when it was answered. A step
// may see no message while all messages are below gone.
func firstContradiction(steps []registerStep, gone uint64) string {
	writes := slices.DeleteFunc(slices.Clone(steps), func(s registerStep) bool { return s.writes == 0 })
	slices.SortFunc(writes, func(a, b registerStep) int { return int(a.writes) - int(b.writes) })
	for _, s := range steps {
		last := s.read
		if s.expects {
			last = s.expected
		} else if !s.reads {
			continue
		}
		for _, wr := range writes {
			if wr.writes > last && (last > 0 || wr.writes >= gone) && (s.writes == 0 || wr.writes < s.writes) && wr.back < s.call {
				return fmt.Sprintf("%s (%d to %d) was told that %d is the last, and %s at %d was acknowledged before (%d)", s.what, s.call, s.back, last, wr.what, wr.writes, wr.back)
			}
			if wr.writes == last && wr.call > s.back {
				return fmt.Sprintf("%s (%d to %d) was told of %s at %d before that was published (%d)", s.what, s.call, s.back, wr.what, last, wr.call)
			}
		}
	}
	return ""
}
