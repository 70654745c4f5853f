package identity

import (
	"bytes"

	"github.com/carillon-mq/carillon/broker/subject"
)

// patterns is a set of subject patterns. A nil set is empty.
type patterns struct {
	all  []string
	root node
}

// node is what follows the tokens that lead to it.
type node struct {
	next map[string]*node
	any  *node // behind the token *
	rest bool  // a pattern continues with >
	end  bool  // a pattern ends here
}

func newPatterns(all []string) *patterns {
	s := &patterns{all: all}
	for _, p := range all {
		s.root.add([]byte(p))
	}
	return s
}

func (n *node) add(pattern []byte) {
	token, rest, more := bytes.Cut(pattern, dot)
	if string(token) == ">" && !more {
		n.rest = true
		return
	}
	var next *node
	if string(token) == "*" {
		if n.any == nil {
			n.any = &node{}
		}
		next = n.any
	} else {
		if next = n.next[string(token)]; next == nil {
			if n.next == nil {
				n.next = make(map[string]*node)
			}
			next = &node{}
			n.next[string(token)] = next
		}
	}
	if !more {
		next.end = true
		return
	}
	next.add(rest)
}

// covers reports whether one pattern of the set matches all subjects that a valid pattern matches.
// Each node is visited at most once.
func (s *patterns) covers(of []byte) bool { return s != nil && s.root.covers(of) }

func (n *node) covers(of []byte) bool {
	token, rest, more := bytes.Cut(of, dot)
	if n.rest {
		return true
	}
	if len(token) == 1 && token[0] == '>' && !more {
		return false
	}
	if next := n.any; next != nil && next.covered(rest, more) {
		return true
	}
	if len(token) == 1 && token[0] == '*' {
		return false
	}
	next := n.next[string(token)]
	return next != nil && next.covered(rest, more)
}

func (n *node) covered(rest []byte, more bool) bool {
	if !more {
		return n.end
	}
	return n.covers(rest)
}

// matches reports whether a pattern of the set matches a message's subject, in which * and > are
// tokens as any others are.
func (s *patterns) matches(on []byte) bool { return s != nil && s.root.matches(on) }

func (n *node) matches(on []byte) bool {
	token, rest, more := bytes.Cut(on, dot)
	if n.rest {
		return true
	}
	for _, next := range [...]*node{n.any, n.next[string(token)]} {
		if next != nil && (!more && next.end || more && next.matches(rest)) {
			return true
		}
	}
	return false
}

// overlaps reports whether a pattern of the set and the given one match a common subject.
func (s *patterns) overlaps(pattern string) bool {
	if s == nil {
		return false
	}
	for _, p := range s.all {
		if subject.Overlap(p, pattern) {
			return true
		}
	}
	return false
}

var dot = []byte{'.'}
