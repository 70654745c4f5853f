package query

import (
	"slices"

	"github.com/carillon-mq/carillon/broker/attribute"
)

// index finds the groups whose verdict a change may change.
type index struct {
	pairs map[pair]byName // covered groups, under each of their pairs
	rest  byName          // the others
}

// byName has groups under each of the names that they need.
type byName map[string][]*group

func newIndex() index { return index{pairs: map[pair]byName{}, rest: byName{}} }

// add adds a group.
func (x *index) add(g *group) {
	if !g.query.needs.covered {
		x.rest.add(g)
		return
	}
	for _, p := range g.query.needs.pairs {
		names := x.pairs[p]
		if names == nil {
			names = byName{}
			x.pairs[p] = names
		}
		names.add(g)
	}
}

// remove removes a group.
func (x *index) remove(g *group) {
	if !g.query.needs.covered {
		x.rest.remove(g)
		return
	}
	for _, p := range g.query.needs.pairs {
		names := x.pairs[p]
		if names.remove(g); len(names) == 0 {
			delete(x.pairs, p)
		}
	}
}

func (n byName) add(g *group) {
	for _, name := range g.query.needs.names {
		n[name] = append(n[name], g)
	}
}

func (n byName) remove(g *group) {
	for _, name := range g.query.needs.names {
		groups := n[name]
		at, last := slices.Index(groups, g), len(groups)-1
		groups[at], groups[last] = groups[last], nil
		if n[name] = groups[:last]; last == 0 {
			delete(n, name)
		}
	}
}

// appendChanged appends the groups under some names, which are in order.
func (n byName) appendChanged(to []*group, changed []string) []*group {
	if len(changed) <= len(n) {
		for _, name := range changed {
			to = append(to, n[name]...)
		}
		return to
	}
	for name, groups := range n {
		if _, there := slices.BinarySearch(changed, name); there {
			to = append(to, groups...)
		}
	}
	return to
}

// appendOf appends the groups of a subject with some attributes, of which some names changed. A
// group may be appended more than once.
func (x *index) appendOf(to []*group, subject string, attributes attribute.Set, changed []string) []*group {
	to = x.appendPair(to, pair{name: subjectName, kind: attribute.StringKind, text: subject}, changed)
	for name, v := range attributes {
		if v.Kind() != attribute.ListKind {
			to = x.appendPair(to, pairOf(name, v), changed)
			continue
		}
		for _, e := range v.List() {
			to = x.appendPair(to, pairOf(name, e), changed)
		}
	}
	return to
}

func (x *index) appendPair(to []*group, p pair, changed []string) []*group {
	if names := x.pairs[p]; names != nil {
		to = names.appendChanged(to, changed)
	}
	return to
}
