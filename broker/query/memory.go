package query

import (
	"cmp"
	"maps"
	"slices"
)

// bytes returns about what a distinct query takes without its members.
func (q *Query) bytes() int {
	const place = 16 // in a list of the index
	n := q.needs
	index := place * len(n.names)
	if n.covered {
		index = len(n.pairs) * (entryBytes + place*len(n.names))
	}
	return groupBytes + q.filter.Bytes() + len(q.text) + len(q.key) + index
}

// shed removes queries until the memory is an eighth below its bound, if it is above, and appends
// that they ended. The queries of the owner whose queries take most end first, the largest before
// the others.
func (s *Set) shed(to []Delta) []Delta {
	if s.memory <= s.limits.Memory {
		return to
	}
	bytes, totals := map[ID]int{}, map[Owner]int{}
	for id, o := range s.opens {
		g := o.group
		bytes[id] = openBytes + o.denied.bytes() + (g.query.bytes()+2*g.members.bytes())/len(g.opens)
		totals[o.owner] += bytes[id]
	}
	order := slices.SortedFunc(maps.Keys(bytes), func(a, b ID) int {
		p, q := s.opens[a].owner, s.opens[b].owner
		return cmp.Or(cmp.Compare(totals[q], totals[p]), cmp.Compare(p, q), cmp.Compare(bytes[b], bytes[a]), cmp.Compare(b, a))
	})
	for _, id := range order {
		if s.memory <= s.limits.Memory-s.limits.Memory/8 {
			break
		}
		s.Remove(id)
		to = append(to, Delta{Query: id, Kind: Ended})
	}
	return to
}
