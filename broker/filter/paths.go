package filter

// paths are the JSON paths that an expression names, as a tree. One pass over the payload finds all
// of them.
type paths struct {
	nodes []pathNode // the first one is the payload itself
	count int        // of slots
}

// pathNode is a name in the tree.
type pathNode struct {
	name     string
	slot     int // of its value; -1: it is not asked for
	children []int
}

// slot is what was found of a path.
type slot struct {
	state slotState
	value int // position; -1: none
}

type slotState uint8

const (
	broken  slotState = iota // nothing can be said of it
	missing                  // there is no such name, and there could be one
	found
)

func newPaths() *paths { return &paths{nodes: []pathNode{{slot: -1}}} }

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
	}
	return p.nodes[at].slot, true
}

// pass is one pass over a payload.
type pass struct {
	*paths
	b     []byte
	slots []slot
	seen  uint64 // nodes whose first value was met
	left  int    // slots that were not found yet
}

// values looks for the paths below node n in the value at i. It reports whether all slots are
// found.
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

func (p *pass) members(node *pathNode, i int) (done bool) {
	m := firstMember(p.b, i)
	for ; m.value > 0; m = nextMember(p.b, m.value) {
		c := p.child(node, &m)
		if c >= 0 {
			p.seen |= 1 << c
			child := &p.nodes[c]
			if child.slot >= 0 {
				p.slots[child.slot] = slot{found, m.value}
				if p.left--; p.left == 0 {
					return true
				}
			}
			if len(child.children) > 0 && p.values(c, m.value) {
				return true
			}
		}
		if m.value = skip(p.b, m.value); m.value < 0 {
			return false
		}
	}
	if m.value < 0 {
		return false
	}
	for _, c := range node.children {
		if s := p.nodes[c].slot; s >= 0 && p.seen&(1<<c) == 0 {
			p.slots[s].state = missing
		}
	}
	return false
}

// child returns the node of a member that was not met yet, or -1.
func (p *pass) child(node *pathNode, m *member) int {
	for _, c := range node.children {
		if p.seen&(1<<c) == 0 && m.is(p.nodes[c].name) {
			return c
		}
	}
	return -1
}
