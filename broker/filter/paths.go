package filter

// paths are the JSON paths that an expression names, as a tree. One pass over the payload finds all
// of them.
type paths struct {
	nodes []pathNode // the first one is the payload itself
	count int        // of slots
	// shared says that several parts of the expression look at the same slot, so its value is kept.
	shared bool
	// watched are comparisons that are made as soon as a slot is found; nil: none is.
	watched []*comparison
	ends    bool // what one of them has to say to end the pass
}

// pathNode is a name in the tree.
type pathNode struct {
	name     string
	slot     int // of its value; -1: it is not asked for
	children []int
}

// slot is what was found of a path.
type slot struct {
	state   slotState
	outcome outcome // of the comparison that watches it
	value   int     // position
}

type slotState uint8

const (
	broken  slotState = iota // nothing can be said of it
	missing                  // there is no such name, and there could be one
	found
)

func newPaths() *paths { return &paths{nodes: []pathNode{{slot: -1}}} }

// outcome is what a comparison has said.
type outcome uint8

const (
	unknown outcome = iota // it was not made, or not in the quick way
	isFalse
	isTrue
)

func outcomeOf(truth bool) outcome {
	if truth {
		return isTrue
	}
	return isFalse
}

// add adds a path, and returns its slot.
func (p *paths) add(path []string) (slot int, ok bool) {
	at := 0
	for _, name := range path {
		next := -1
		for _, c := range p.nodes[at].children {
			if p.nodes[c].name == name {
				next = c
			}
		}
		if next < 0 {
			if len(p.nodes) == 64 { // seen is a word
				return 0, false
			}
			next = len(p.nodes)
			p.nodes = append(p.nodes, pathNode{name: name, slot: -1})
			p.nodes[at].children = append(p.nodes[at].children, next)
		}
		at = next
	}
	if n := &p.nodes[at]; n.slot < 0 {
		if p.count == maxPaths {
			return 0, false
		}
		n.slot = p.count
		p.count++
	} else {
		p.shared = true
	}
	return p.nodes[at].slot, true
}

// pass is one pass over a payload.
type pass struct {
	*paths
	b       []byte
	slots   []slot
	seen    uint64 // nodes whose first value was met
	left    int    // slots that were not found yet
	decided bool   // a comparison that watches ended the pass: the other slots are not known
	passed  int    // comparisons that watch, and did not end it
}

// run looks for all paths in a payload.
func (p *pass) run(b []byte) {
	clear(p.slots)
	p.b, p.seen, p.left, p.decided, p.passed = b, 0, p.count, false, 0
	p.values(0, space(b, 0))
}

// values looks for the paths below node n in the value at i. It reports whether the pass is over:
// all slots are found, or the others need not be.
func (p *pass) values(n, i int) (done bool) {
	node := &p.nodes[n]
	if i >= len(p.b) {
		return false
	}
	switch p.b[i] {
	case '{':
		return p.members(node, i)
	case '[':
	default: // cel-go says of such a value that it has no names, if it is a value
		if !scalar(p.b, i) {
			return false
		}
		for _, c := range node.children {
			if s := p.nodes[c].slot; s >= 0 {
				p.slots[s].state = missing
			}
		}
	}
	return false
}

// members looks for the paths below a node in the object at i. It is firstMember, skip and
// nextMember in one loop: most of the time of judging is spent here.
func (p *pass) members(node *pathNode, i int) (done bool) {
	b := p.b
	if i = space(b, i+1); i < len(b) && b[i] == '}' {
		p.lack(node)
		return false
	}
	for i < len(b) && b[i] == '"' {
		start := i + 1
		end, escaped := textEnd(b, start)
		if end < 0 {
			return false
		}
		if i = space(b, end+1); i >= len(b) || b[i] != ':' {
			return false
		}
		i = space(b, i+1)
		name := b[start:end]
		for _, c := range node.children {
			wanted := p.nodes[c].name
			if escaped {
				if !canBe(name, wanted) {
					continue
				}
				name, escaped = unescaped(name), false // once, and not for each node
			}
			if len(name) == len(wanted) && string(name) == wanted && p.seen&(1<<c) == 0 {
				if p.met(c, i) {
					return true
				}
				break
			}
		}
		if i = skip(b, i); i < 0 {
			return false
		}
		if i = space(b, i); i < len(b) && b[i] == '}' {
			p.lack(node)
			return false
		}
		if i >= len(b) || b[i] != ',' {
			return false
		}
		i = space(b, i+1)
	}
	return false
}

// lack notes that the object of a node has no more members.
func (p *pass) lack(node *pathNode) {
	for _, c := range node.children {
		if s := p.nodes[c].slot; s >= 0 && p.seen&(1<<c) == 0 {
			p.slots[s].state = missing
		}
	}
}

// met notes the first value of node c. It reports whether the pass is over.
func (p *pass) met(c, value int) (done bool) {
	p.seen |= 1 << c
	node := &p.nodes[c]
	if node.slot >= 0 {
		s := &p.slots[node.slot]
		s.state, s.value = found, value
		if p.watched != nil && p.watch(node.slot, s) {
			return true
		}
		if p.left--; p.left == 0 {
			return true
		}
	}
	return len(node.children) > 0 && p.values(c, value)
}

// watch makes the comparison that watches a slot, if there is one. It reports whether the pass is
// over.
func (p *pass) watch(n int, s *slot) (done bool) {
	c := p.watched[n]
	if c == nil {
		return false
	}
	if s.outcome = c.quick(p.b, s.value); s.outcome == unknown {
		return false
	}
	if p.decided = s.outcome == outcomeOf(p.ends); !p.decided {
		p.passed++
	}
	return p.decided
}
