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

// normalizeMirror checks the mirror by itself, in the order and with the codes of nats-server.
func (c *StreamConfig) normalizeMirror() *Error {
	m := c.Mirror
	switch {
	case m == nil:
		return nil
	case c.FirstSequence > 0:
		return ErrMirrorWithFirstSeq
	case len(c.Subjects) > 0:
		return ErrMirrorWithSubjects
	case len(c.Sources) > 0:
		return ErrMirrorWithSources
	case c.AllowBatched:
		return ErrMirrorWithBatchPublish
	case m.FilterSubject != "" && len(m.SubjectTransforms) > 0:
		return ErrMirrorMultipleFiltersNotAllowed
	case c.SubjectDeleteMarkerTTL > 0: // they would take sequences
		return ErrStreamInvalidConfig.With("subject delete markers forbidden on mirrors")
	}
	if err := m.checkTransforms(ErrMirrorTransformSource, ErrMirrorTransformDestination, ErrMirrorOverlappingSubjectFilters); err != nil {
		return err
	}
	switch {
	case assetName("stream", m.Name) != "":
		return ErrMirrorInvalidStreamName
	case m.FilterSubject != "" && !subject.ValidPattern([]byte(m.FilterSubject)):
		return ErrStreamInvalidConfig.With("subject filter '" + m.FilterSubject + "' for the mirror " + transform.ErrSubject.Error())
	}
	m.normalize()
	return nil
}

// normalize leaves out what has no effect.
func (s *StreamSource) normalize() {
	s.External, s.Consumer = nil, nil // they are empty
	if len(s.SubjectTransforms) == 0 {
		s.SubjectTransforms = nil
	}
	if s.OptStartSeq > 0 || s.OptStartTime != nil && s.OptStartTime.IsZero() {
		s.OptStartTime = nil // nats-server does not look at it then
	}
	if s.OptStartTime != nil {
		at := s.OptStartTime.UTC()
		s.OptStartTime = &at
	}
}

// normalizeSources checks the sources by themselves, in the order and with the codes of
// nats-server.
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
		s.normalize()
		if err := s.checkTransforms(ErrSourceTransformSource, ErrSourceTransformDestination, ErrSourceOverlappingSubjectFilters); err != nil {
			return err
		}
	}
	return nil
}

func (s *StreamSource) checkTransforms(source, destination *Template, overlap *Error) *Error {
	for _, t := range s.SubjectTransforms {
		if t.Source != "" && !subject.ValidPattern([]byte(t.Source)) {
			return source.With(transform.ErrSubject.Error() + " " + t.Source)
		}
		if _, err := transform.New(t.Source, t.Destination); err != nil {
			return destination.With(err)
		}
	}
	for i, t := range s.SubjectTransforms {
		for j, other := range s.SubjectTransforms {
			if i != j && subject.Overlap(orAll(t.Source), orAll(other.Source)) {
				return overlap
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

// CheckSources refuses sources, and mirrors, by what their streams are in a State, as nats-server
// does. A stream that is not there yet may be named. A mirror allows direct gets where its stream
// does.
func (c *StreamConfig) CheckSources(state *coordination.State) *Error {
	tooBig, all := ErrSourceMaxMessageSizeTooBig, c.Sources
	if c.Mirror != nil {
		tooBig, all = ErrMirrorMaxMessageSizeTooBig, []*StreamSource{c.Mirror}
		if t := state.Topic(c.Mirror.Name); t != nil && !t.Deleting {
			c.MirrorDirect = t.Spec.Stream.AllowDirect
		}
	}
	for _, source := range all {
		if t := state.Topic(source.Name); t != nil && !t.Deleting && c.MaxMessageSize > 0 && t.Spec.MaxMessage > 0 && int(c.MaxMessageSize) < t.Spec.MaxMessage {
			return tooBig
		}
	}
	if spec := c.TopicSpec(); coordination.CopiesItself(c.Name, spec.Stream.Copies(), state) {
		return ErrStreamInvalidConfig.With("detected cycle")
	}
	return nil
}

func mirrorFor(s *StreamSource) *coordination.StreamSource {
	if s == nil {
		return nil
	}
	of := sourceFor(s)
	return &of
}

// mirrorOf is the reverse of mirrorFor.
func mirrorOf(s *coordination.StreamSource) *StreamSource {
	if s == nil {
		return nil
	}
	return sourcesOf([]coordination.StreamSource{*s})[0]
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
