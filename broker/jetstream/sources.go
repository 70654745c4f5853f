package jetstream

import (
	"errors"
	"fmt"

	"github.com/carillon-mq/carillon/broker/coordination"
	"github.com/carillon-mq/carillon/broker/jsapi"
	"github.com/carillon-mq/carillon/broker/sourcing"
	"github.com/carillon-mq/carillon/broker/topic"
)

// checkSources refuses sources, and mirrors, by what their streams are now, as nats-server does. A
// stream that is not there yet may be named. A mirror allows direct gets where its stream does.
func (s *Server) checkSources(config *jsapi.StreamConfig) *jsapi.Error {
	state := s.state()
	tooBig, all := jsapi.ErrSourceMaxMessageSizeTooBig, config.Sources
	if config.Mirror != nil {
		tooBig, all = jsapi.ErrMirrorMaxMessageSizeTooBig, []*jsapi.StreamSource{config.Mirror}
		if t := state.Topic(config.Mirror.Name); t != nil && !t.Deleting {
			config.MirrorDirect = t.Spec.Stream.AllowDirect
		}
	}
	for _, source := range all {
		t := state.Topic(source.Name)
		switch {
		case t == nil || t.Deleting:
		case max(t.Spec.Shards, 1) > 1 && config.Mirror != nil:
			return jsapi.ErrStreamInvalidConfig.With(fmt.Sprintf("stream %s has %d shards, and a mirror has the sequences of one: mirror its shards' streams instead, %s and so on", source.Name, t.Spec.Shards, coordination.ShardName(t, 0)))
		case config.MaxMessageSize > 0 && t.Spec.MaxMessage > 0 && int(config.MaxMessageSize) < t.Spec.MaxMessage:
			return tooBig
		}
	}
	spec := config.TopicSpec()
	if coordination.CopiesItself(config.Name, spec.Stream.Copies(), state) {
		return jsapi.ErrStreamInvalidConfig.With("detected cycle")
	}
	return nil
}

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
