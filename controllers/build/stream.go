package build

import (
	"github.com/carillon-mq/carillon/api/v1alpha1"
	"github.com/carillon-mq/carillon/broker/coordination"
)

// stream sets the settings of a manifest that JetStream knows, too. As there, markers and schedules
// come with rollups, by which they are replaced.
func stream(asked *v1alpha1.TopicSpec, s *coordination.StreamSettings) (err error) {
	s.AllowCounter = asked.Counters == v1alpha1.Allowed
	s.AllowAtomic = asked.AtomicBatches == v1alpha1.Allowed
	s.AllowSchedules = asked.Schedules == v1alpha1.Allowed
	if ttl := asked.MessageTTL; ttl != nil {
		s.AllowMessageTTL = true
		if s.SubjectDeleteMarkerTTL, err = duration("messageTTL.markerTTL", ttl.MarkerTTL); err != nil {
			return err
		}
	}
	s.AllowRollup = s.AllowSchedules || s.SubjectDeleteMarkerTTL > 0
	if r := asked.Republish; r != nil {
		s.Republish = &coordination.Republish{Source: string(r.Source), Destination: r.Destination, HeadersOnly: r.HeadersOnly}
		if s.Republish.Source == "" {
			s.Republish.Source = ">"
		}
	}
	if asked.Mirror != nil {
		mirror := source(asked.Mirror)
		s.Mirror = &mirror
	}
	for i := range asked.Sources {
		s.Sources = append(s.Sources, source(&asked.Sources[i]))
	}
	return nil
}

func source(asked *v1alpha1.TopicSourceSpec) coordination.StreamSource {
	s := coordination.StreamSource{Name: asked.Topic, Filter: string(asked.Filter)}
	if asked.StartTime != nil {
		s.StartTime = asked.StartTime.UTC()
	}
	if asked.StartOffset != nil {
		s.StartSequence = uint64(*asked.StartOffset)
	}
	for _, t := range asked.Transforms {
		s.Transforms = append(s.Transforms, coordination.SubjectMapping{Source: string(t.Source), Destination: t.Destination})
	}
	return s
}

// Need is a setting that brokers of earlier versions don't know.
type Need struct {
	Setting string // as in a manifest
	Feature coordination.Feature
}

// Needs returns what a Topic's spec needs of all brokers, beside limits per subject.
func Needs(spec *coordination.TopicSpec) (all []Need) {
	s := &spec.Stream
	for _, one := range []struct {
		asked bool
		Need
	}{
		{s.AllowMessageTTL, Need{"messageTTL", coordination.FeatureExpiries}},
		{s.SubjectDeleteMarkerTTL > 0, Need{"messageTTL.markerTTL", coordination.FeatureRemovals}},
		{s.Republish != nil, Need{"republish", coordination.FeatureRepublish}},
		{s.Mirror != nil, Need{"mirror", coordination.FeatureSources}},
		{len(s.Sources) > 0, Need{"sources", coordination.FeatureSources}},
		{s.Mirror != nil && spec.Shards > 1, Need{"mirror with several shards", coordination.FeatureShardedSources}},
		{len(s.Sources) > 0 && spec.Shards > 1, Need{"sources with several shards", coordination.FeatureShardedSources}},
		{s.AllowSchedules, Need{"schedules", coordination.FeatureSchedules}},
		{s.AllowSchedules, Need{"schedules", coordination.FeatureRemovals}},
		{s.AllowCounter, Need{"counters", coordination.FeatureCounters}},
		{s.AllowAtomic, Need{"atomicBatches", coordination.FeatureBatches}},
	} {
		if one.asked {
			all = append(all, one.Need)
		}
	}
	return all
}
