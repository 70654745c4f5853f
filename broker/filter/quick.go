package filter

import (
	"bytes"
	"cmp"
	"slices"
)

// rooted prepares the node of a whole condition. What costs little is judged first: errors and
// verdicts of && and || do not depend on the order, and what counts as work stays in its order.
// Comparisons of the payload with a constant are made while the payload is read, so that the first
// one that decides ends that, too.
func rooted(n node, p *paths) node {
	root, ok := n.(*junction)
	if !ok {
		c, ok := n.(*comparison)
		if !ok {
			return n
		}
		root = &junction{of: []node{c}}
	}
	slices.SortStableFunc(root.of, func(a, b node) int { return cmp.Compare(costOf(a), costOf(b)) })
	p.ends, p.watched = root.ends, make([]*comparison, p.count)
	for _, n := range root.of {
		c, ok := n.(*comparison)
		if !ok {
			continue
		}
		if of, ok := c.of.(jsonOf); ok && p.watched[of.slot] == nil {
			c.watches, p.watched[of.slot] = true, c
			root.watching++
		}
	}
	if root.watching == 0 {
		p.watched = nil
	}
	return root
}

// Classes of what a node costs.
const (
	ofRecord = iota // the subject and the time
	ofHeader
	ofPayload
	ofWork // bounded by what was done before
)

func costOf(n node) (cost int) {
	switch n := n.(type) {
	case subjectOf, timeOf:
		return ofRecord
	case headerOf, hasHeader:
		return ofHeader
	case *not:
		return costOf(n.of)
	case *comparison:
		return costOf(n.of)
	case *membership:
		return costOf(n.of)
	case *match:
		if n.function == "startsWith" || n.function == "endsWith" {
			return costOf(n.of)
		}
		return ofWork
	case *junction:
		for _, of := range n.of {
			cost = max(cost, costOf(of))
		}
		return cost
	}
	return ofPayload
}

// quick compares the value at i of a payload, if it is a number or a string as most are. Otherwise
// the outcome is unknown.
func (n *comparison) quick(b []byte, i int) outcome {
	if i >= len(b) {
		return unknown
	}
	switch {
	case n.with.kind == isNumber && b[i] != '"':
		if v, ok := small(b, i); ok {
			return outcomeOf(n.is.holds(v < n.with.number, v == n.with.number))
		}
	case n.with.kind == isText && b[i] == '"':
		end, escaped := textEnd(b, i+1)
		if end < 0 || escaped {
			return unknown
		}
		text := b[i+1 : end]
		if n.is <= notEqual {
			return outcomeOf((string(text) == string(n.with.text)) == (n.is == equal))
		}
		order := bytes.Compare(text, n.with.text)
		return outcomeOf(n.is.holds(order < 0, order == 0))
	}
	return unknown
}
