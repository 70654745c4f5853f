package subject

import (
	"bytes"
	"hash/maphash"
	"slices"
)

// Match is what a subject reaches.
type Match[S Subscriber, P comparable] struct {
	Leaves []*Leaf[S, P]        // leaves that have or had plain local subscribers
	Groups []MatchedGroup[S, P] // each queue group once
	Peers  []P                  // each peer with plain interest once
}

// MatchedGroup is a queue group that a subject reaches.
type MatchedGroup[S Subscriber, P comparable] struct {
	first *Group[S, P]
	more  []*Group[S, P] // the same group under other patterns
}

// Queue returns the group's name.
func (g *MatchedGroup[S, P]) Queue() string { return g.first.Queue }

// Match fills m with what the subject reaches. A subject with an empty token reaches nothing. It
// reports whether any other last token, if it isn't empty, reaches the same: no pattern names one.
func (x *Index[S, P]) Match(subject []byte, m *Match[S, P]) (anyLast bool) {
	m.Leaves, m.Groups, m.Peers = m.Leaves[:0], m.Groups[:0], m.Peers[:0]
	if emptyToken(subject) {
		return false
	}
	return x.root.match(subject, m)
}

func (n *node[S, P]) match(subject []byte, m *Match[S, P]) (anyLast bool) {
	anyLast = true
	for {
		if n.rest != nil {
			m.add(n.rest)
		}
		token, rest, more := bytes.Cut(subject, dot)
		literal := n.next[string(token)]
		switch {
		case !more:
			if literal != nil && literal.leaf != nil {
				m.add(literal.leaf)
			}
			if n.any != nil && n.any.leaf != nil {
				m.add(n.any.leaf)
			}
			return anyLast && len(n.next) == 0
		case n.any == nil && literal == nil:
			return anyLast
		case n.any == nil:
			n = literal
		case literal == nil:
			n = n.any
		default:
			anyLast = literal.match(rest, m) && anyLast
			n = n.any
		}
		subject = rest
	}
}

func (m *Match[S, P]) add(l *Leaf[S, P]) {
	m.Leaves = append(m.Leaves, l)
	for _, p := range l.peers {
		if !slices.Contains(m.Peers, p) {
			m.Peers = append(m.Peers, p)
		}
	}
next:
	for _, g := range l.groups {
		for i := range m.Groups {
			if m.Groups[i].first.Queue == g.Queue {
				m.Groups[i].more = append(m.Groups[i].more, g)
				continue next
			}
		}
		m.Groups = append(m.Groups, MatchedGroup[S, P]{first: g})
	}
}

// copy makes m the same as of, whose lists it doesn't share.
func (m *Match[S, P]) copy(of *Match[S, P]) {
	m.Leaves = append(m.Leaves[:0], of.Leaves...)
	m.Groups = append(m.Groups[:0], of.Groups...)
	m.Peers = append(m.Peers[:0], of.Peers...)
}

// Cache caches the matches of recent subjects. One goroutine uses it at a time. Once warm it
// allocates nothing. Entries are valid while the index's generation of their first token does not
// change.
type Cache[S Subscriber, P comparable] struct {
	entries [cacheEntries]cached[S, P]
	last    *cached[S, P] // the entry that was used last
	inbox   cached[S, P]  // of a subject without its last token, which no pattern names
}

// cacheEntries is the size of a direct-mapped table: about as many subjects as a busy publisher
// uses, 50 KiB.
const cacheEntries = 512

type cached[S Subscriber, P comparable] struct {
	gen     uint64 // generation of the index when this was filled; 0: never
	slot    uint8  // of the subject's first token
	subject []byte
	match   Match[S, P]
}

var seed = maphash.MakeSeed()

// valid reports whether the match is still what the index has.
func (e *cached[S, P]) valid(x *Index[S, P]) bool { return e.gen == x.gens.of(e.slot) }

// Match returns what the subject reaches. The result is valid until the next call.
//
// Replies go to the same inbox one after another, each with a last token of its own, so the table
// never has them: the last inbox is compared first. Publishers use a subject again and again, so
// the last one is compared before the table is searched.
func (c *Cache[S, P]) Match(x *Index[S, P], subject []byte) *Match[S, P] {
	if i := &c.inbox; len(subject) > len(i.subject) && bytes.Equal(subject[:len(i.subject)], i.subject) &&
		i.valid(x) && bytes.IndexByte(subject[len(i.subject):], '.') < 0 {
		return &i.match
	}
	if e := c.last; e != nil && bytes.Equal(e.subject, subject) && e.valid(x) {
		return &e.match
	}
	e := &c.entries[maphash.Bytes(seed, subject)%cacheEntries]
	c.last = e
	if bytes.Equal(e.subject, subject) && e.valid(x) {
		return &e.match
	}
	e.slot = slotOf(subject)
	e.gen = x.gens.of(e.slot)
	e.subject = append(e.subject[:0], subject...)
	if last := bytes.LastIndexByte(subject, '.'); x.Match(subject, &e.match) && last >= 0 {
		c.inbox.gen, c.inbox.slot = e.gen, e.slot
		c.inbox.subject = append(c.inbox.subject[:0], subject[:last+1]...)
		c.inbox.match.copy(&e.match)
	}
	return &e.match
}
