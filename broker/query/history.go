package query

import (
	"math"

	"github.com/carillon-mq/carillon/broker/attribute"
)

// history has the last changes of attributes, bounded in number and bytes.
type history struct {
	entries    []changed // a ring
	first, len int
	chunk      []byte // attributes of the last changes; so they take a tenth of a Set's memory
	scratch    []byte // of keep
	bytes      int
	floor      uint64 // all changes with a newer revision are here
	limits     *Limits
}

// changed is a change of a subject's attributes.
type changed struct {
	revision uint64
	highest  uint64 // revision of this and all older entries
	subject  string
	before   []byte // attributes in compact form, in a chunk of the history; nil: it had none
}

// was returns what the subject had before, or nil.
func (c *changed) was() attribute.Set {
	if c.before == nil {
		return nil
	}
	return attribute.FromCompact(c.before)
}

// keep returns attributes as a change keeps them.
func (h *history) keep(s attribute.Set) []byte {
	if s == nil {
		return nil
	}
	h.scratch = s.AppendCompact(h.scratch[:0])
	if cap(h.chunk)-len(h.chunk) < len(h.scratch) {
		h.chunk = make([]byte, 0, max(chunkBytes, len(h.scratch)))
	}
	from := len(h.chunk)
	h.chunk = append(h.chunk, h.scratch...)
	return h.chunk[from:len(h.chunk):len(h.chunk)]
}

func newHistory(l *Limits) history { return history{limits: l, floor: math.MaxUint64} }

func (h *history) at(i int) *changed { return &h.entries[(h.first+i)%len(h.entries)] }

// clear forgets all changes: those up to a revision are not known.
func (h *history) clear(floor uint64) {
	*h = history{limits: h.limits, floor: floor}
}

func (c *changed) bytes() int { return changedBytes + len(c.subject) + len(c.before) }

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

// cost returns an estimate of what it takes to judge what was before the changes from an index on.
func (h *history) cost(from int, q *Query) uint64 {
	bytes := 0
	for i := from; i < h.len; i++ {
		bytes += len(h.at(i).before)
	}
	return uint64(h.len-from)*q.cost + uint64(bytes)*readCost
}

// since returns the entries that may be newer than a revision: those from the index on.
func (h *history) since(revision uint64) (from int) {
	from = h.len
	for from > 0 && h.at(from-1).highest > revision {
		from--
	}
	return from
}
