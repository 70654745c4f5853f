package jsapi

import (
	"encoding/json"
	"time"

	"github.com/carillon-mq/carillon/broker/coordination"
	"github.com/carillon-mq/carillon/broker/subject"
	"github.com/carillon-mq/carillon/broker/transform"
)

// StreamSource is a stream whose messages are copied into another one.
type StreamSource struct {
	Name              string             `json:"name"`
	OptStartSeq       uint64             `json:"opt_start_seq,omitempty"`
	OptStartTime      *time.Time         `json:"opt_start_time,omitempty"`
	FilterSubject     string             `json:"filter_subject,omitempty"`
	SubjectTransforms []SubjectTransform `json:"subject_transforms,omitempty"`
	External          json.RawMessage    `json:"external,omitempty"`
	Consumer          json.RawMessage    `json:"consumer,omitempty"`
}

// normalizeSources checks the sources by themselves, in the order and with the codes of nats-server.
func (c *StreamConfig) normalizeSources() *Error {
	if len(c.Sources) == 0 {
		c.Sources = nil
		return nil
	}
	names := map[string]bool{}
	for _, s := range c.Sources {
		if s == nil || assetName("stream", s.Name) != "" {
			return ErrSourceInvalidStreamName
		}
		s.External, s.Consumer = nil, nil // the rest are empty
		if len(s.SubjectTransforms) == 0 {
			s.SubjectTransforms = nil
		}
		of := sourceFor(s)
		name := of.Index()
		switch {
		case names[name]:
			return ErrSourceDuplicateDetected
		case s.FilterSubject != "" && len(s.SubjectTransforms) > 0:
			return ErrSourceMultipleFiltersNotAllowed
		case s.FilterSubject != "" && !subject.ValidPattern([]byte(s.FilterSubject)):
			return ErrStreamInvalidConfig.With("subject filter '" + s.FilterSubject + "' for the source: " + transform.ErrSubject.Error())
		}
		names[name] = true
		if s.OptStartTime != nil {
			if s.OptStartTime.IsZero() {
				s.OptStartTime = nil
			} else {
				at := s.OptStartTime.UTC()
				s.OptStartTime = &at
			}
		}
		if s.OptStartSeq > 0 {
			s.OptStartTime = nil // nats-server does not look at it then
		}
		if err := s.checkTransforms(); err != nil {
			return err
		}
	}
	return nil
}

func (s *StreamSource) checkTransforms() *Error {
	for _, t := range s.SubjectTransforms {
		if t.Source != "" && !subject.ValidPattern([]byte(t.Source)) {
			return ErrSourceTransformSource.With(transform.ErrSubject.Error() + " " + t.Source)
		}
		if _, err := transform.New(t.Source, t.Destination); err != nil {
			return ErrSourceTransformDestination.With(err)
		}
	}
	for i, t := range s.SubjectTransforms {
		for j, other := range s.SubjectTransforms {
			if i != j && subject.Overlap(orAll(t.Source), orAll(other.Source)) {
				return ErrSourceOverlappingSubjectFilters
			}
		}
	}
	return nil
}

func orAll(pattern string) string {
	if pattern == "" {
		return ">"
	}
	return pattern
}

// sourceFor returns a source as a Topic has it.
func sourceFor(s *StreamSource) coordination.StreamSource {
	of := coordination.StreamSource{Name: s.Name, StartSequence: s.OptStartSeq, Filter: s.FilterSubject}
	if s.OptStartTime != nil {
		of.StartTime = *s.OptStartTime
	}
	for _, t := range s.SubjectTransforms {
		of.Transforms = append(of.Transforms, coordination.SubjectMapping(t))
	}
	return of
}

func sourcesFor(all []*StreamSource) (of []coordination.StreamSource) {
	for _, s := range all {
		of = append(of, sourceFor(s))
	}
	return of
}

// sourcesOf is the reverse of sourcesFor.
func sourcesOf(all []coordination.StreamSource) (of []*StreamSource) {
	for _, s := range all {
		one := &StreamSource{Name: s.Name, OptStartSeq: s.StartSequence, FilterSubject: s.Filter, SubjectTransforms: TransformsOf(s.Transforms)}
		if !s.StartTime.IsZero() {
			at := s.StartTime.UTC()
			one.OptStartTime = &at
		}
		of = append(of, one)
	}
	return of
}

// TransformsOf returns mappings of subjects as clients see them.
func TransformsOf(all []coordination.SubjectMapping) (of []SubjectTransform) {
	for _, m := range all {
		of = append(of, SubjectTransform(m))
	}
	return of
}
