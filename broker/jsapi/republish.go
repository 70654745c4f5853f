package jsapi

import (
	"fmt"
	"slices"

	"github.com/carillon-mq/carillon/broker/subject"
	"github.com/carillon-mq/carillon/broker/transform"
)

// RePublish is under which subjects messages are published again when they are stored.
type RePublish struct {
	Source      string `json:"src,omitempty"`
	Destination string `json:"dest"`
	HeadersOnly bool   `json:"headers_only,omitempty"`
}

// normalizeRepublish checks what is published again. The subjects must be normalized, and the
// transform checked.
func (c *StreamConfig) normalizeRepublish() *Error {
	if c.RePublish == nil {
		return nil
	}
	r := *c.RePublish
	if r.Source == "" {
		r.Source = ">"
	}
	// From > to > means the stored subjects, where a transform moves all of them elsewhere.
	if t := c.SubjectTransform; r.Source == ">" && r.Destination == ">" && t != nil && len(c.Subjects) == 1 && t.Source == c.Subjects[0] {
		r.Source, r.Destination = t.Destination, t.Destination
	}
	if slices.ContainsFunc(c.Subjects, func(s string) bool { return subject.Overlap(r.Destination, s) }) {
		return ErrStreamInvalidConfig.With("stream configuration for republish destination forms a cycle")
	}
	if _, err := transform.New(r.Source, r.Destination); err != nil || r.Destination == "" {
		return ErrStreamInvalidConfig.With(fmt.Sprintf("stream configuration for republish with transform from '%s' to '%s' not valid", r.Source, r.Destination))
	}
	c.RePublish = &r
	return nil
}
