package subject

import (
	"slices"
	"strings"
	"sync/atomic"
)

// Subscriber is an entry of the index.
type Subscriber interface {
	comparable
	// Listed reports whether it still belongs to the lists of plain subscribers. Its owner makes it
	// return false before it calls Remove or Count.
	Listed() bool
	// Slot is memory for the place of a counted subscriber or a member of a queue group in its list,
	// so that it is removed without a search. It belongs to the index.
	Slot() *int
}

// put appends a subscriber to its list.
func put[S Subscriber](list []S, s S) []S {
	*s.Slot() = len(list)
	return append(list, s)
}

// take removes a subscriber from its list, and moves the last one to its place. It reports false if
// the subscriber is not there.
func take[S Subscriber](list []S, s S) ([]S, bool) {
	i, last := *s.Slot(), len(list)-1
	if i > last || list[i] != s {
		return list, false
	}
	list[i] = list[last]
	*list[i].Slot() = i
	var none S
	list[last] = none
	return list[:last], true
}

// Index maps subjects to local subscribers S and to peers P, the brokers that have subscribers of
// their own. Local subscribers are grouped by sink, the sender loop that serves them.
//
// The caller guards the index: Match and the use of its result need a read lock, everything else
// the write lock.
type Index[S Subscriber, P comparable] struct {
	sinks int
	root  *node[S, P]
	gens  generations
	size  int
	nodes int
}

// NewIndex returns an index for subscribers on the given number of sinks.
func NewIndex[S Subscriber, P comparable](sinks int) *Index[S, P] {
	return &Index[S, P]{sinks: sinks, root: &node[S, P]{}}
}

// node is one level of the trie of patterns.
type node[S Subscriber, P comparable] struct {
	next  map[string]*node[S, P] // by literal token
	any   *node[S, P]            // *
	rest  *Leaf[S, P]            // >
	leaf  *Leaf[S, P]            // the pattern that ends here
	local int                    // local subscriptions to the patterns that lead through it
}

// child returns the node of a token, or nil.
func (n *node[S, P]) child(token string) *node[S, P] {
	if token == "*" {
		return n.any
	}
	return n.next[token]
}

// Leaf holds everything that subscribes to one pattern.
type Leaf[S Subscriber, P comparable] struct {
	Pattern string
	// Matched counts the messages that reached the plain subscribers. The number that one of them
	// was sent is Matched now minus Matched at its insertion, so that a match need not touch it.
	Matched atomic.Uint64
	plain   []list[S] // by sink
	listed  int       // subscribers in plain that are not removed
	counted []S       // plain subscribers whose deliveries are counted one by one
	groups  []*Group[S, P]
	peers   []P // peers with plain interest
}

// Plain returns the plain subscribers of one sink. Some may have been removed since.
func (l *Leaf[S, P]) Plain(sink int) []S { return l.plain[sink].items }

// Counted returns the subscribers whose deliveries are counted at the match.
func (l *Leaf[S, P]) Counted() []S { return l.counted }

// Listed returns the number of subscribers in the plain lists.
func (l *Leaf[S, P]) Listed() int { return l.listed }

// Size returns the number of local subscribers outside of groups.
func (l *Leaf[S, P]) Size() int { return l.listed + len(l.counted) }

func (l *Leaf[S, P]) empty() bool { return l.Size() == 0 && len(l.groups) == 0 && len(l.peers) == 0 }

// list grows at its end only, or is replaced; see X1.
type list[S Subscriber] struct {
	items []S
	dead  int
}

func (l *list[S]) remove() {
	l.dead++
	if l.dead*2 <= len(l.items) && len(l.items) > 8 {
		return
	}
	kept := make([]S, 0, len(l.items)-l.dead)
	for _, s := range l.items {
		if s.Listed() {
			kept = append(kept, s)
		}
	}
	l.items, l.dead = kept, 0
}

// Group is one queue group on one pattern.
type Group[S Subscriber, P comparable] struct {
	Queue  string
	local  []S
	remote []share[P]
	weight int // of all remote shares
}

type share[P comparable] struct {
	peer   P
	weight int
}

// Size returns the number of local members.
func (g *Group[S, P]) Size() int { return len(g.local) }

// Len returns the number of local subscriptions in the index.
func (x *Index[S, P]) Len() int { return x.size }

// Nodes returns how many nodes of the trie local subscriptions need.
func (x *Index[S, P]) Nodes() int { return x.nodes }

// Insert adds s and returns its leaf and, for a member of a queue group, the group. A counted plain
// subscriber is not in the lists that Plain returns.
func (x *Index[S, P]) Insert(pattern, queue string, sink int, counted bool, s S) (*Leaf[S, P], *Group[S, P]) {
	leaf := x.leaf(pattern)
	x.hold(pattern, 1)
	switch {
	case queue != "":
		g := x.group(leaf, queue)
		g.local = put(g.local, s)
		return leaf, g
	case counted:
		leaf.counted = put(leaf.counted, s)
	default:
		l := &leaf.plain[sink]
		l.items = append(l.items, s)
		leaf.listed++
	}
	return leaf, nil
}

// Count moves a plain subscriber to the counted ones. Its Listed returns false already.
func (x *Index[S, P]) Count(leaf *Leaf[S, P], sink int, s S) {
	leaf.plain[sink].remove()
	leaf.listed--
	leaf.counted = put(leaf.counted, s)
}

// Remove removes s, which was inserted with these values and whose Listed returns false already.
func (x *Index[S, P]) Remove(pattern, queue string, sink int, s S) (*Leaf[S, P], *Group[S, P]) {
	leaf := x.find(pattern)
	if leaf == nil {
		return nil, nil
	}
	if queue == "" {
		var counted bool
		if leaf.counted, counted = take(leaf.counted, s); !counted {
			leaf.plain[sink].remove()
			leaf.listed--
		}
		x.hold(pattern, -1)
		x.prune(leaf)
		return leaf, nil
	}
	for _, g := range leaf.groups {
		if g.Queue != queue {
			continue
		}
		var member bool
		if g.local, member = take(g.local, s); member {
			x.hold(pattern, -1)
		}
		x.pruneGroup(leaf, g)
		return leaf, g
	}
	return leaf, nil
}

// hold counts a local subscription, 1, or its end, -1, at the nodes of its pattern.
func (x *Index[S, P]) hold(pattern string, change int) {
	x.size += change
	n, rest, more := x.root, pattern, true
	for more {
		var token string
		token, rest, more = strings.Cut(rest, ".")
		if token == ">" && !more {
			return
		}
		n = n.child(token)
		before := n.local
		n.local += change
		x.nodes += min(n.local, 1) - min(before, 1)
	}
}

// SetPeer sets the number of subscribers that a peer has for a pattern and queue group. 0 removes
// it.
func (x *Index[S, P]) SetPeer(pattern, queue string, peer P, count int) {
	if count <= 0 {
		x.dropPeer(pattern, queue, peer)
		return
	}
	leaf := x.leaf(pattern)
	if queue == "" {
		if !slices.Contains(leaf.peers, peer) {
			leaf.peers = append(leaf.peers, peer)
			x.gens.change(pattern)
		}
		return
	}
	g := x.group(leaf, queue)
	g.setRemote(append(g.without(peer), share[P]{peer, count}))
}

func (x *Index[S, P]) dropPeer(pattern, queue string, peer P) {
	leaf := x.find(pattern)
	if leaf == nil {
		return
	}
	if queue == "" {
		if i := slices.Index(leaf.peers, peer); i >= 0 {
			leaf.peers = slices.Delete(leaf.peers, i, i+1)
			x.gens.change(pattern)
		}
		x.prune(leaf)
		return
	}
	for _, g := range leaf.groups {
		if g.Queue == queue {
			g.setRemote(g.without(peer))
			x.pruneGroup(leaf, g)
			return
		}
	}
}

func (g *Group[S, P]) without(peer P) []share[P] {
	return slices.DeleteFunc(g.remote, func(s share[P]) bool { return s.peer == peer })
}

func (g *Group[S, P]) setRemote(shares []share[P]) {
	g.remote, g.weight = shares, 0
	for _, s := range shares {
		g.weight += s.weight
	}
}

// Subscribed reports whether anyone subscribes to exactly this pattern, in this queue group or, if
// it is empty, in none. Of the peers without a group, only those count for which counts is true.
func (x *Index[S, P]) Subscribed(pattern, queue string, counts func(P) bool) bool {
	leaf := x.find(pattern)
	if leaf == nil {
		return false
	}
	if queue == "" {
		return leaf.Size() > 0 || slices.ContainsFunc(leaf.peers, counts)
	}
	return slices.ContainsFunc(leaf.groups, func(g *Group[S, P]) bool {
		return g.Queue == queue && len(g.local)+len(g.remote) > 0
	})
}

// Local calls f with each local subscriber to exactly this pattern, in this queue group or, if it
// is empty, in none.
func (x *Index[S, P]) Local(pattern, queue string, f func(S)) {
	leaf := x.find(pattern)
	if leaf == nil {
		return
	}
	if queue != "" {
		for _, g := range leaf.groups {
			if g.Queue == queue {
				each(g.local, f)
			}
		}
		return
	}
	for i := range leaf.plain {
		each(leaf.plain[i].items, func(s S) {
			if s.Listed() {
				f(s)
			}
		})
	}
	each(leaf.counted, f)
}

func each[S any](all []S, f func(S)) {
	for _, s := range all {
		f(s)
	}
}

// Each calls f with every pattern's leaf, for the interest of the whole broker.
func (x *Index[S, P]) Each(f func(leaf *Leaf[S, P], groups []*Group[S, P])) { x.root.each(f) }

func (n *node[S, P]) each(f func(*Leaf[S, P], []*Group[S, P])) {
	for _, l := range []*Leaf[S, P]{n.leaf, n.rest} {
		if l != nil {
			f(l, l.groups)
		}
	}
	for _, child := range n.next {
		child.each(f)
	}
	if n.any != nil {
		n.any.each(f)
	}
}

// leaf returns the pattern's leaf, and creates it if needed.
func (x *Index[S, P]) leaf(pattern string) *Leaf[S, P] {
	n, rest, more := x.root, pattern, true
	for more {
		var token string
		token, rest, more = strings.Cut(rest, ".")
		if token == ">" && !more {
			return x.ensure(&n.rest, pattern)
		}
		if token == "*" {
			if n.any == nil {
				n.any = &node[S, P]{}
			}
			n = n.any
			continue
		}
		child := n.next[token]
		if child == nil {
			if n.next == nil {
				n.next = make(map[string]*node[S, P], 1)
			}
			child = &node[S, P]{}
			n.next[strings.Clone(token)] = child
		}
		n = child
	}
	return x.ensure(&n.leaf, pattern)
}

func (x *Index[S, P]) ensure(at **Leaf[S, P], pattern string) *Leaf[S, P] {
	if *at == nil {
		*at = &Leaf[S, P]{Pattern: pattern, plain: make([]list[S], x.sinks)}
		x.gens.change(pattern)
	}
	return *at
}

func (x *Index[S, P]) find(pattern string) *Leaf[S, P] {
	n, rest, more := x.root, pattern, true
	for more {
		var token string
		token, rest, more = strings.Cut(rest, ".")
		if token == ">" && !more {
			return n.rest
		}
		if n = n.child(token); n == nil {
			return nil
		}
	}
	return n.leaf
}

// Missing returns how many nodes Insert would add to Nodes, and how many queue groups the pattern
// has without the given one; 0 if it has that one.
func (x *Index[S, P]) Missing(pattern, queue string) (nodes, groups int) {
	n, rest, more := x.root, pattern, true
	for more {
		var token string
		token, rest, more = strings.Cut(rest, ".")
		if token == ">" && !more {
			break
		}
		if n != nil {
			n = n.child(token)
		}
		if n == nil || n.local == 0 {
			nodes++
		}
	}
	if queue == "" {
		return nodes, 0
	}
	leaf := x.find(pattern)
	if leaf == nil || slices.ContainsFunc(leaf.groups, func(g *Group[S, P]) bool { return g.Queue == queue }) {
		return nodes, 0
	}
	return nodes, len(leaf.groups)
}

func (x *Index[S, P]) group(leaf *Leaf[S, P], queue string) *Group[S, P] {
	for _, g := range leaf.groups {
		if g.Queue == queue {
			return g
		}
	}
	g := &Group[S, P]{Queue: queue}
	leaf.groups = append(leaf.groups, g)
	x.gens.change(leaf.Pattern)
	return g
}

func (x *Index[S, P]) pruneGroup(leaf *Leaf[S, P], g *Group[S, P]) {
	if len(g.local) > 0 || len(g.remote) > 0 {
		return
	}
	i := slices.Index(leaf.groups, g)
	leaf.groups = slices.Delete(leaf.groups, i, i+1)
	x.gens.change(leaf.Pattern)
	x.prune(leaf)
}

// prune removes an empty leaf and the nodes that lead to it only.
func (x *Index[S, P]) prune(leaf *Leaf[S, P]) {
	if !leaf.empty() {
		return
	}
	x.root.prune(leaf.Pattern)
	x.gens.change(leaf.Pattern)
}

func (n *node[S, P]) prune(pattern string) {
	token, rest, more := strings.Cut(pattern, ".")
	var child *node[S, P]
	switch {
	case token == ">" && !more:
		n.rest = nil
		return
	case token == "*":
		child = n.any
	default:
		child = n.next[token]
	}
	if child == nil {
		return
	}
	if more {
		child.prune(rest)
	} else {
		child.leaf = nil
	}
	if child.leaf != nil || child.rest != nil || child.any != nil || len(child.next) > 0 {
		return
	}
	if token == "*" {
		n.any = nil
	} else {
		delete(n.next, token)
	}
}
