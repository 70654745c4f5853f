package subject

import (
	"strings"
	"sync/atomic"
)

// generations count the changes of an index by the first tokens of its patterns. So a pattern
// that comes and goes, such as an inbox, leaves the cached matches of other subjects valid.
type generations struct {
	all   atomic.Uint64 // of patterns that begin with a wildcard
	first [tokenSlots]atomic.Uint64
}

// tokenSlots is the number of counters that first tokens share.
const tokenSlots = 256

// slotOf returns which counter the first token of a subject has. A hash of few steps will do:
// tokens that share a counter cost each other a search.
func slotOf[T []byte | string](subject T) uint8 {
	hash := uint32(2166136261) // FNV-1a
	for i := 0; i < len(subject) && subject[i] != '.'; i++ {
		hash = (hash ^ uint32(subject[i])) * 16777619
	}
	return uint8(hash ^ hash>>8 ^ hash>>16)
}

// change counts a change of what a pattern reaches.
func (g *generations) change(pattern string) {
	if pattern == ">" || pattern == "*" || strings.HasPrefix(pattern, "*.") {
		g.all.Add(1)
		return
	}
	g.first[slotOf(pattern)].Add(1)
}

// of returns the generation of the subjects whose first token has a slot. It is never 0. Both
// counters only grow, so their sum is the same only if both are.
func (g *generations) of(slot uint8) uint64 { return 1 + g.all.Load() + g.first[slot].Load() }
