package publish

import (
	"strings"

	"github.com/carillon-mq/carillon/broker/subject"
)

// Subjects are the patterns of a Topic. They never change.
type Subjects struct {
	// outright are the patterns that don't begin with a wildcard; if there are others, wild is set.
	outright [][]byte
	wild     bool
}

// NewSubjects returns the patterns of a Topic's spec.
func NewSubjects(patterns []string) (s Subjects) {
	for _, pattern := range patterns {
		if strings.HasPrefix(pattern, "*") || strings.HasPrefix(pattern, ">") {
			s.wild = true
		} else {
			s.outright = append(s.outright, []byte(pattern))
		}
	}
	return s
}

// Keep reports whether a message is kept whose subject matches one of the patterns. A pattern that
// begins with a wildcard does not keep subjects of the system, nor inboxes.
func (s *Subjects) Keep(name []byte) bool {
	if !s.wild || len(name) == 0 || name[0] != '$' && !strings.HasPrefix(string(name), "_INBOX.") {
		return true
	}
	for _, pattern := range s.outright {
		if subject.Matches(pattern, name) {
			return true
		}
	}
	return false
}
