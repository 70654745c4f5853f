package jetstream

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/carillon-mq/carillon/broker/advisory"
	"github.com/carillon-mq/carillon/broker/coordination"
	"github.com/carillon-mq/carillon/broker/jsapi"
	"github.com/carillon-mq/carillon/broker/subscription"
	"github.com/carillon-mq/carillon/broker/topic"
)

// pauseRequest decodes a ConsumerPause. Without a payload it ends a pause.
func pauseRequest(c *call) (jsapi.PauseRequest, *jsapi.Error) {
	if emptyRequest(c.payload) {
		return jsapi.PauseRequest{}, nil
	}
	return jsapi.Decode[jsapi.PauseRequest](c.payload)
}

// pauseConsumer pauses a consumer until a time, or ends a pause.
func (s *Server) pauseConsumer(_ context.Context, c *call, t *topic.Shard) {
	request, refusal := pauseRequest(c)
	if refusal != nil {
		s.refuse(c, refusal)
		return
	}
	if isShardOfMany(t) && s.state().Subscription(t.ID(), string(c.Consumer)) != nil {
		s.refuse(c, refuseForOneShard(jsapi.ErrConsumerCreate, t, "paused alone"))
		return
	}
	s.submitSlow(c, func(ctx context.Context) {
		sub, refusal := s.findConsumer(ctx, t, string(c.Consumer))
		if refusal == nil {
			spec := *sub.Spec()
			spec.Consumer.PauseUntil = request.Until.UTC()
			sub, refusal = s.respecify(ctx, t, sub, spec)
		}
		if refusal != nil {
			s.refuseConsumer(c, t, refusal)
			return
		}
		s.answerPause(c, request.Until, sub.Info().PausedFor)
	})
}

// pauseShardedConsumer is pauseConsumer in all shards of a Topic.
func (s *Server) pauseShardedConsumer(ctx context.Context, c *call, of *topic.Topic) {
	request, refusal := pauseRequest(c)
	name := string(c.Consumer)
	existing := s.state().Subscription(of.ID(), name)
	if refusal == nil && existing == nil {
		refusal = jsapi.ErrConsumerNotFound
	}
	if refusal != nil {
		s.refuse(c, refusal)
		return
	}
	spec := *existing.Spec
	spec.Consumer.PauseUntil = request.Until.UTC()
	updated, err := s.config.Store.UpdateSubscription(ctx, of.Name(), name, coordination.SubscriptionUpdate{By: client, Spec: spec})
	if err != nil {
		s.refuse(c, consumerRefusal(err))
		return
	}
	info, refusal := s.sumConsumerInfo(ctx, of, updated, true)
	if refusal != nil {
		s.refuse(c, refusal)
		return
	}
	s.answerPause(c, request.Until, info.PauseRemaining)
}

func (s *Server) answerPause(c *call, until time.Time, remaining time.Duration) {
	s.config.Advisories.Paused(string(c.Stream), string(c.Consumer), remaining > 0, until)
	s.answer(c, jsapi.PauseResponse{Response: c.Call.Answer(), Paused: remaining > 0, Until: until.UTC(), Remaining: remaining})
}

// resetRequest decodes a ConsumerReset. Without a payload it is to the ack floor.
func resetRequest(c *call) (jsapi.ResetRequest, *jsapi.Error) {
	if emptyRequest(c.payload) {
		return jsapi.ResetRequest{}, nil
	}
	return jsapi.Decode[jsapi.ResetRequest](c.payload)
}

// resetConsumer moves a consumer to a sequence, as nats-server permits it: back to the ack floor,
// or to any sequence that its start does not exclude. All deliveries are forgotten.
func (s *Server) resetConsumer(_ context.Context, c *call, t *topic.Shard, shard *topic.ShardLeader) {
	request, refusal := resetRequest(c)
	if refusal != nil {
		s.refuse(c, refusal)
		return
	}
	s.continueOn(s.writes, c, func(ctx context.Context) {
		sub, refusal := s.findConsumer(ctx, t, string(c.Consumer))
		if refusal == nil {
			refusal = s.mayReset(t, shard, sub.Name(), sub.Spec(), request.Sequence)
		}
		if refusal != nil {
			s.refuseConsumer(c, t, refusal)
			return
		}
		written := make(chan error, 1)
		at, err := sub.Reset(request.Sequence, func(err error) { written <- err })
		var refused *subscription.ResetRefusedError
		if errors.As(err, &refused) {
			s.refuse(c, jsapi.ErrConsumerInvalidReset.With(refused))
			return
		}
		if err == nil {
			select {
			case err = <-written:
			case <-ctx.Done():
				err = fmt.Errorf("it is not confirmed by the replicas yet: %w", ctx.Err())
			}
		}
		if err != nil {
			s.refuseConsumer(c, t, consumerOffline(err))
			return
		}
		s.answer(c, jsapi.ResetResponse{Response: c.Call.Answer(), ConsumerInfo: s.describeConsumer(ctx, t, sub), Sequence: at})
	})
}

// resetShardedConsumer resets a consumer to its ack floor, in each shard. If it fails some shards
// may have been reset, and it can be repeated. A sequence would need one order of all shards.
func (s *Server) resetShardedConsumer(ctx context.Context, c *call, of *topic.Topic) {
	request, refusal := resetRequest(c)
	name := string(c.Consumer)
	declared := s.state().Subscription(of.ID(), name)
	var shards []jsapi.ResetResponse
	switch {
	case refusal != nil:
	case declared == nil:
		refusal = jsapi.ErrConsumerNotFound
	case request.Sequence > 0:
		refusal = refuseUnordered(jsapi.ErrConsumerInvalidReset, of, "a consumer reset to a sequence")
	default:
		shards, refusal = askShards[jsapi.ResetResponse](ctx, s, of, func(stream string) string { return jsapi.APIPrefix + "CONSUMER.RESET." + stream + "." + name }, nil)
	}
	var info *jsapi.ConsumerInfo
	if refusal == nil {
		info, refusal = s.sumConsumerInfo(ctx, of, declared, false)
	}
	if refusal != nil {
		s.refuse(c, refusal)
		return
	}
	answer := jsapi.ResetResponse{Response: c.Call.Answer(), ConsumerInfo: info, Sequence: 1}
	for i := range shards {
		answer.Sequence += shards[i].Sequence - 1
	}
	s.answer(c, answer)
}

// mayReset returns why a consumer may not be reset to a sequence, or nil.
func (s *Server) mayReset(t *topic.Shard, shard *topic.ShardLeader, name string, spec *coordination.SubscriptionSpec, to uint64) *jsapi.Error {
	if declared := s.state().Subscription(t.ID(), name); declared != nil && declared.Owner.Kind != client.Kind {
		return consumerRefusal(&coordination.NotOwnerError{What: "subscription " + name, Owner: declared.Owner})
	}
	if to == 0 {
		return nil
	}
	switch spec.Start.From {
	case coordination.FromEarliest:
		return nil
	case coordination.FromOffset:
		if to < spec.Start.Offset {
			return jsapi.ErrConsumerInvalidReset.With("below start seq")
		}
		return nil
	case coordination.FromTime:
		if r, err := shard.Get(to); err == nil && r.Time < spec.Start.Time.UnixNano() {
			return jsapi.ErrConsumerInvalidReset.With("below start time")
		}
		return nil
	}
	return jsapi.ErrConsumerInvalidReset.With("not allowed")
}

// consumersAllow refuses limits of a stream's consumers that existing ones exceed.
func (s *Server) consumersAllow(t *topic.Shard, to *jsapi.StreamConfig) *jsapi.Error {
	is, limits := s.streamOf(t.Desired()), &to.ConsumerLimits
	if is.ConsumerLimits == *limits {
		return nil
	}
	var beyond []string
	for _, name := range s.consumerNamesOf(t) {
		var config jsapi.ConsumerConfig
		if sub := s.config.Subscriptions().Find(t.Key(), name); sub != nil {
			config = jsapi.ConsumerOf(name, sub.Spec())
		} else if declared := s.state().Subscription(t.ID(), name); declared != nil {
			config = jsapi.ConsumerOf(name, declared.Spec)
		}
		if limits.InactiveThreshold > 0 && config.InactiveThreshold > limits.InactiveThreshold ||
			limits.MaxAckPending > 0 && config.MaxAckPending > limits.MaxAckPending {
			beyond = append(beyond, name)
		}
	}
	if len(beyond) == 0 {
		return nil
	}
	return jsapi.ErrStreamUpdate.With("change to limits violates consumers: " + strings.Join(beyond, ", "))
}

// unpinConsumer unpins the client of a priority group.
func (s *Server) unpinConsumer(ctx context.Context, c *call, t *topic.Shard) {
	request, refusal := jsapi.Decode[jsapi.UnpinRequest](c.payload)
	if refusal == nil {
		refusal = request.Check()
	}
	if refusal != nil {
		s.refuse(c, refusal)
		return
	}
	sub, refusal := s.findConsumer(ctx, t, string(c.Consumer))
	if refusal == nil && !slices.Contains(sub.Spec().Consumer.PriorityGroups, request.Group) {
		refusal = jsapi.ErrConsumerInvalidPriorityGroup
	}
	if refusal != nil {
		s.refuseConsumer(c, t, refusal)
		return
	}
	sub.Unpin()
	s.config.Advisories.Unpinned(t.Name(), sub.Name(), request.Group, advisory.ByAdmin)
	s.answer(c, c.Call.Answer())
}

// priorityGroups returns the state of a consumer's priority groups. As in nats-server, all groups
// share one pinned client, and the first one is shown.
func priorityGroups(spec *coordination.SubscriptionSpec, is *subscription.Info) []jsapi.PriorityGroup {
	groups := spec.Consumer.PriorityGroups
	if len(groups) == 0 {
		return nil
	}
	return []jsapi.PriorityGroup{{Group: groups[0], Pin: is.Pin, Pinned: moment(is.Pinned)}}
}

// mayPrioritize refuses priority groups while a broker is there that would ignore them.
func (s *Server) mayPrioritize(config *jsapi.ConsumerConfig) *jsapi.Error {
	if config.PriorityPolicy == "" {
		return nil
	}
	return s.needs(coordination.FeaturePriorities, "priority groups need")
}

// mayJudge refuses a condition that brokers can't serve on a Topic, or while a broker is there that
// would ignore it. The consumer reads so many shards.
func (s *Server) mayJudge(request *jsapi.ConsumerRequest, of *topic.Topic, shards int) *jsapi.Error {
	spec := request.SubscriptionSpec()
	if spec.Where == "" {
		return nil
	}
	if why := spec.Unjudgeable(of.Desired().Spec.Stream.Retention, shards); why != "" {
		return jsapi.ErrConsumerCreate.With(why)
	}
	if needs, _ := spec.ConditionNeeds(); needs != coordination.FeatureConditions {
		return s.needs(needs, "a condition that names attributes needs")
	}
	return s.needs(coordination.FeatureConditions, "a condition needs")
}

// needs refuses a consumer while a broker is there that lacks a feature.
func (s *Server) needs(feature coordination.Feature, what string) *jsapi.Error {
	for _, b := range s.state().Brokers {
		if !b.Features.Has(feature) {
			return jsapi.ErrConsumerCreate.With(fmt.Sprintf("%s brokers of this version, and %s is of an earlier one (finish the update)", what, b.Name))
		}
	}
	return nil
}
