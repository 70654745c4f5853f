package coordination

import (
	"fmt"

	"github.com/carillon-mq/carillon/broker/subject"
	"github.com/carillon-mq/carillon/broker/transform"
)

// Misdeclared returns why a manifest can't have these settings, or "". JetStream's API refuses the
// same with errors of its own, and a schema can't tell.
func (s *TopicSpec) Misdeclared() string {
	if r := s.Stream.Republish; r != nil {
		if why := mapping("republish", r.Source, r.Destination); why != "" {
			return why
		}
		for _, kept := range s.Subjects {
			if subject.Overlap(r.Destination, kept) {
				return fmt.Sprintf("republish: destination %s overlaps with its subject %s, so each message would come back for ever (write another destination)", r.Destination, kept)
			}
		}
	}
	if why := s.validCopies(); why != "" {
		return why
	}
	seen := map[string]bool{}
	for _, from := range s.Stream.Copies() {
		what := "source " + from.Name
		if from.Mirrored {
			what = "mirror of " + from.Name
		}
		if seen[from.Index()] {
			return what + " is there twice (leave one out, or give it another filter)"
		}
		seen[from.Index()] = true
		for i, t := range from.Transforms {
			if t.Destination != "" {
				if why := mapping(what, t.Source, t.Destination); why != "" {
					return why
				}
			}
			for _, other := range from.Transforms[:i] {
				if subject.Overlap(t.Source, other.Source) {
					return fmt.Sprintf("%s: its transforms of %s and %s overlap (make them distinct)", what, other.Source, t.Source)
				}
			}
		}
	}
	return ""
}

// mapping returns why subjects can't be mapped, or "".
func mapping(what, from, to string) string {
	if _, err := transform.New(from, to); err != nil {
		return fmt.Sprintf("%s: %s can't be mapped to %s: %v (write for example orders.* and copies.{{wildcard(1)}})", what, from, to, err)
	}
	return ""
}
