package checker

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Kind is a kind of broken promise.
type Kind string

const (
	LostFront   Kind = "lost at the front"
	LostMiddle  Kind = "lost in the middle"
	LostEnd     Kind = "lost at the end"
	Moved       Kind = "not at its sequence"
	Unexpected  Kind = "never published"
	Garbled     Kind = "garbled"
	Twice       Kind = "there twice"
	Disorder    Kind = "out of order"
	Gap         Kind = "sequence skipped"
	Unrefused   Kind = "refused and there"
	Redelivered Kind = "redelivered"
	Skipped     Kind = "never delivered"
	Changed     Kind = "changed after delivery"
)

// Entry is one message that was read from the stream.
type Entry struct {
	Seq     uint64
	Payload []byte
}

// Range is the sequences from From up to, not including, Next.
type Range struct{ From, Next uint64 }

func (r Range) holds(seq uint64) bool { return seq >= r.From && seq < r.Next }

// findings keeps the first findings of each kind, and counts all.
type findings struct {
	count   map[Kind]int
	samples map[Kind][]string
}

const samplesKept = 4

func newFindings() findings { return findings{map[Kind]int{}, map[Kind][]string{}} }

func (f findings) add(kind Kind, format string, args ...any) {
	f.count[kind]++
	if len(f.samples[kind]) < samplesKept {
		f.samples[kind] = append(f.samples[kind], fmt.Sprintf(format, args...))
	}
}

// Verdict is the result of a judgement.
type Verdict struct {
	Read      int // messages in the stream
	Acked     int // acknowledged messages at their acknowledged sequence
	Recovered int // messages in the stream without an ack
	findings
}

// Count returns the number of findings of a kind.
func (v *Verdict) Count(kind Kind) int { return v.count[kind] }

// Lost returns the number of acknowledged messages that are missing.
func (v *Verdict) Lost() int { return v.count[LostFront] + v.count[LostMiddle] + v.count[LostEnd] }

func (v *Verdict) String() string {
	return fmt.Sprintf("%d in the stream: %d acknowledged, %d without an answer; %d acknowledged ones lost", v.Read, v.Acked, v.Recovered, v.Lost())
}

// Err returns nil if the server kept all promises.
func (v *Verdict) Err() error {
	if len(v.count) == 0 {
		return nil
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%s", v)
	for _, kind := range slices.Sorted(maps.Keys(v.count)) {
		fmt.Fprintf(&b, "\n%d %s:", v.count[kind], kind)
		for _, s := range v.samples[kind] {
			fmt.Fprintf(&b, "\n    %s", s)
		}
	}
	return errors.New(b.String())
}

// Judge compares a stream, read from its first to its last message, with the history. told are the
// sequences that the server itself reported as lost. The consumers must have been drained.
func (h *History) Judge(stream []Entry, told ...Range) *Verdict {
	h.mu.Lock()
	defer h.mu.Unlock()
	v := &Verdict{Read: len(stream), findings: findings{maps.Clone(h.findings.count), maps.Clone(h.findings.samples)}}
	excused := func(seq uint64) bool { return slices.ContainsFunc(told, func(r Range) bool { return r.holds(seq) }) }

	at := make(map[Value]uint64, len(stream))
	content := make(map[uint64]Value, len(stream))
	latest := map[int]Value{}
	var first, last uint64
	for _, e := range stream {
		if first == 0 {
			first = e.Seq
		} else {
			for missing := last + 1; missing < e.Seq; missing++ {
				if !excused(missing) {
					v.add(Gap, "%d is followed by %d", last, e.Seq)
					break
				}
			}
			if e.Seq <= last {
				v.add(Gap, "%d is followed by %d", last, e.Seq)
			}
		}
		last = max(last, e.Seq)
		value, err := Decode(h.Stream, e.Payload)
		if err != nil {
			v.add(Garbled, "at %d: %v", e.Seq, err)
			continue
		}
		content[e.Seq] = value
		if value.Publisher < 0 || value.Publisher >= len(h.publishers) || value.Counter == 0 || value.Counter > h.publishers[value.Publisher].intended {
			v.add(Unexpected, "%s at %d", value, e.Seq)
			continue
		}
		if before, ok := at[value]; ok {
			v.add(Twice, "%s at %d and at %d", value, before, e.Seq)
			continue
		}
		at[value] = e.Seq
		p := h.publishers[value.Publisher]
		if before := latest[value.Publisher]; !p.loose[value.Counter] {
			if value.Counter < before.Counter {
				v.add(Disorder, "%s at %d stands behind %s at %d", value, e.Seq, before, at[before])
			}
			latest[value.Publisher] = value
		}
		if _, ok := p.acked[value.Counter]; !ok {
			v.Recovered++
		}
		if reason, ok := p.refused[value.Counter]; ok {
			v.add(Unrefused, "%s at %d was refused: %s", value, e.Seq, reason)
		}
	}
	for i, p := range h.publishers {
		for _, counter := range slices.Sorted(maps.Keys(p.acked)) {
			value, seq := Value{i, counter}, p.acked[counter]
			switch found, ok := at[value]; {
			case ok && found == seq:
				v.Acked++
			case ok:
				v.add(Moved, "%s was acknowledged at %d and is at %d", value, seq, found)
			case excused(seq):
			case len(stream) == 0 || seq > last:
				v.add(LostEnd, "%s was acknowledged at %d; the stream ends at %d", value, seq, last)
			case seq < first:
				v.add(LostFront, "%s was acknowledged at %d; the stream begins at %d", value, seq, first)
			default:
				other := "nothing"
				if o, ok := content[seq]; ok {
					other = o.String()
				}
				v.add(LostMiddle, "%s was acknowledged at %d, where there is %s", value, seq, other)
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(h.consumers)) {
		c := h.consumers[name]
		for _, e := range stream {
			value, ok := content[e.Seq]
			if !ok {
				continue
			}
			switch got, ok := c.got[e.Seq]; {
			case !ok:
				v.add(Skipped, "consumer %s never got %s at %d", name, value, e.Seq)
			case got != value:
				v.add(Changed, "consumer %s got %s at %d, where there is %s", name, got, e.Seq, value)
			}
		}
		for _, seq := range slices.Sorted(maps.Keys(c.got)) {
			if _, ok := content[seq]; !ok && !excused(seq) {
				v.add(Changed, "consumer %s got %s at %d, where there is nothing", name, c.got[seq], seq)
			}
		}
	}
	return v
}
