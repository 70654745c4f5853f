package query

import (
	"math"

	"github.com/carillon-mq/carillon/broker/attribute"
)

// history has the last changes of attributes, bounded in number and bytes.
type history struct {
	entries    []changed // a ring
	first, len int
	bytes      int
	floor      uint64 // all changes with a newer revision are here
	limits     *Limits
}

// changed is a change of a subject's attributes.
type changed struct {
	revision uint64
	highest  uint64 // revision of this and all older entries
	subject  string
	before   attribute.Set // nil: it had none
}

func newHistory(l *Limits) history { return history{limits: l, floor: math.MaxUint64} }

func (h *history) at(i int) *changed { return &h.entries[(h.first+i)%len(h.entries)] }

// clear forgets all changes: those up to a revision are not known.
func (h *history) clear(floor uint64) {
	*h = history{limits: h.limits, floor: floor}
}

func (c *changed) bytes() int { return changedBytes + len(c.subject) + setBytes(c.before) }

// add adds a change, and forgets the oldest ones beyond the bounds.
func (h *history) add(c changed) {
	if h.limits.HistoryEntries <= 0 {
		h.floor = max(h.floor, c.revision)
		return
	}
	if h.len == len(h.entries) && h.len < h.limits.HistoryEntries {
		larger := make([]changed, min(max(64, 2*h.len), h.limits.HistoryEntries))
		for i := range h.len {
			larger[i] = *h.at(i)
		}
		h.entries, h.first = larger, 0
	}
	if h.len == len(h.entries) {
		h.forget()
	}
	if c.highest = c.revision; h.len > 0 {
		c.highest = max(c.highest, h.at(h.len-1).highest)
	}
	h.len++
	*h.at(h.len - 1) = c
	for h.bytes += c.bytes(); h.bytes > h.limits.HistoryBytes && h.len > 0; {
		h.forget()
	}
}

// forget forgets the oldest change.
func (h *history) forget() {
	oldest := h.at(0)
	h.bytes -= oldest.bytes()
	h.floor = max(h.floor, oldest.revision)
	*oldest = changed{}
	h.first, h.len = (h.first+1)%len(h.entries), h.len-1
}

// since returns the entries that may be newer than a revision: those from the index on.
func (h *history) since(revision uint64) (from int) {
	from = h.len
	for from > 0 && h.at(from-1).highest > revision {
		from--
	}
	return from
}
