package jetstream

import (
	"errors"

	"github.com/carillon-mq/carillon/broker/jsapi"
	"github.com/carillon-mq/carillon/broker/sourcing"
	"github.com/carillon-mq/carillon/broker/topic"
)

// addSources adds to a stream's info how far its sources have come, if it is led here.
func (s *Server) addSources(info *jsapi.StreamInfo, shard *topic.ShardLeader) {
	if s.config.Sources == nil || shard == nil {
		return
	}
	for _, i := range s.config.Sources(shard) {
		one := jsapi.SourceInfo{
			Name: i.Source.Name, Lag: i.Lag, Sequence: i.Sequence, Active: i.Active,
			FilterSubject: i.Source.Filter, SubjectTransforms: jsapi.TransformsOf(i.Source.Transforms),
		}
		if i.Source.Mirrored {
			one.Sequence, one.Error = 0, sourceError(i.Err, jsapi.ErrMirrorConsumerSetupFailed)
			info.Mirror = &one
			return
		}
		one.Error = sourceError(i.Err, jsapi.ErrSourceConsumerSetupFailed)
		info.Sources = append(info.Sources, one)
	}
}

// sumSources adds to the info of a Topic with several shards how far its sources have come, by the
// infos of its shards.
//
//  1. What is left of a source counts for each shard that has not seen it, so the largest lag is
//     that of the source.
//  2. Each shard of a mirror has records of its own left, so their lags add up.
func sumSources(info *jsapi.StreamInfo, shards []*jsapi.StreamInfo) {
	for _, one := range shards {
		if m := one.Mirror; m != nil && info.Config.Mirror != nil {
			if info.Mirror == nil {
				info.Mirror = &jsapi.SourceInfo{Name: info.Config.Mirror.Name, Active: -1, FilterSubject: m.FilterSubject, SubjectTransforms: m.SubjectTransforms}
			}
			lag := info.Mirror.Lag + m.Lag
			addSource(info.Mirror, m)
			info.Mirror.Lag = lag
		}
		for i := range one.Sources {
			if i == len(info.Sources) { // all shards have the same ones, but while they change
				info.Sources = append(info.Sources, one.Sources[i])
				continue
			}
			addSource(&info.Sources[i], &one.Sources[i])
		}
	}
}

func addSource(sum, one *jsapi.SourceInfo) {
	sum.Lag, sum.Sequence, sum.Active = max(sum.Lag, one.Lag), max(sum.Sequence, one.Sequence), max(sum.Active, one.Active)
	if sum.Error == nil {
		sum.Error = one.Error
	}
}

// sourceError is JetStream's error for what keeps a source from going on.
func sourceError(err error, other *jsapi.Template) *jsapi.Error {
	if err == nil {
		return nil
	}
	if _, gone := errors.AsType[*sourcing.NotFoundError](err); gone {
		return jsapi.ErrStreamNotFound
	}
	return other.With(err)
}
