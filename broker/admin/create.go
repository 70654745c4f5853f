package admin

import (
	"cmp"
	"context"
	"errors"
	"reflect"
	"slices"

	"github.com/carillon-mq/carillon/broker/coordination"
	"github.com/carillon-mq/carillon/broker/jsapi"
	"github.com/carillon-mq/carillon/broker/placement"
)

// createTopic creates a Topic owned by clients. JetStream's rules hold, so that it is a valid
// stream.
func (s *Server) createTopic(ctx context.Context, name string, asked *CreateRequest) TopicInfo {
	info := TopicInfo{Revision: s.topics.State().Revision}
	spec, refusal := asked.spec(name, s.topics.State())
	if refusal == nil {
		refusal = s.divide(ctx, asked, &spec)
	}
	if refusal != nil {
		info.Error = refusal
		return info
	}
	made := s.sameTopic(ctx, name, spec)
	if made == nil {
		if info.Error = s.enoughBrokers(&spec); info.Error != nil {
			return info
		}
		if err := asked.Stream.CheckServed(s.topics.State(), spec.Shards); err != nil {
			info.Error = refuse(Refused, "%s", err.Description)
			return info
		}
		var err error
		made, err = s.store.CreateTopic(ctx, name, spec, coordination.Owner{Kind: coordination.ClientOwner})
		var exists *coordination.ExistsError
		if errors.As(err, &exists) { // another client was first, perhaps with the same spec
			made = s.sameTopic(ctx, name, spec)
		}
		if made == nil {
			info.Error = s.notWritten("create topic "+name, err)
			return info
		}
	}
	s.followed(ctx, func(state *coordination.State) bool { return state.TopicByID(made.ID) != nil })
	v := s.view()
	if known := v.state.TopicByID(made.ID); known != nil {
		made = known
	}
	shown := v.topic(made)
	info.Revision, info.Topic = v.state.Revision, &shown
	return info
}

// spec returns the requested Topic. It refuses what JetStream refuses, with JetStream's
// descriptions.
func (r *CreateRequest) spec(name string, state *coordination.State) (spec coordination.TopicSpec, refusal *Error) {
	if r.Stream.Name != "" && r.Stream.Name != name {
		return spec, refuse(BadRequest, "the subject names topic %s, and the request %.100s (leave the latter out)", name, r.Stream.Name)
	}
	r.Stream.Name = name
	replicas := r.Stream.Replicas
	if err := cmp.Or(r.Stream.CheckCreate(), r.Stream.Normalize()); err != nil {
		return spec, refuse(BadRequest, "%s", err.Description)
	}
	if err := r.Stream.CheckSources(state); err != nil {
		return spec, refuse(BadRequest, "%s", err.Description)
	}
	if r.Shards < 0 || r.Shards > placement.MaxShards {
		return spec, refuse(BadRequest, "%d shards are asked for, and brokers serve Topics of at most %d (ask for 1 to %d)", r.Shards, placement.MaxShards, placement.MaxShards)
	}
	spec = r.Stream.TopicSpec()
	spec.Replicas, spec.MinInSync, spec.UncleanElection, spec.Compaction = replicas, r.MinInSync, r.UncleanElection, r.Compaction
	return spec, nil
}

// divide sets the shards of a spec.
func (s *Server) divide(ctx context.Context, asked *CreateRequest, spec *coordination.TopicSpec) *Error {
	origin, err := spec.FindOrigin(ctx, s.store.GetTopic)
	if err != nil {
		return s.notWritten("look up what the topic mirrors", err)
	}
	return asked.divide(spec, origin)
}

// divide sets the shards of a spec: those that are asked for, and else of a mirror those of its
// origin, which may be nil.
func (r *CreateRequest) divide(spec *coordination.TopicSpec, origin *coordination.Topic) *Error {
	spec.ShardAsOrigin(origin)
	if r.Shards > 0 {
		spec.Shards = r.Shards
	}
	if len(r.PartitionTokens) > 0 {
		spec.PartitionBy, spec.PartitionTokens = coordination.ByTokens, r.PartitionTokens
	}
	why := spec.MirrorMismatch(origin)
	switch {
	case why != "":
		return refuse(BadRequest, "%s", why)
	case spec.Shards > 1 && r.Stream.AllowAtomic:
		return refuse(BadRequest, "a Topic with several shards takes no atomic batches (leave out allow_atomic, or ask for one shard)")
	case spec.Shards > 1 && r.Stream.AllowBatched:
		return refuse(BadRequest, "a Topic with several shards takes no fast batches (leave out allow_batched, or ask for one shard)")
	}
	return nil
}

// enoughBrokers refuses more replicas than there are brokers.
func (s *Server) enoughBrokers(spec *coordination.TopicSpec) *Error {
	brokers := len(s.topics.State().Brokers)
	if most := max(spec.Replicas, spec.MinInSync); most > max(brokers, 1) {
		return refuse(Refused, "%d replicas are asked for, and the brokers that are there are %d (ask for fewer, or start more brokers)", most, brokers)
	}
	return nil
}

// sameTopic returns the existing Topic of that name if it equals the request, whoever declared it.
// A request that leaves the number of replicas to the brokers accepts any.
func (s *Server) sameTopic(ctx context.Context, name string, want coordination.TopicSpec) *coordination.Topic {
	t, err := s.store.GetTopic(ctx, name)
	if err != nil || t.Deleting || t.Spec.Shards != want.Shards || !samePartition(&t.Spec, &want) {
		return nil
	}
	compaction := func(s *coordination.TopicSpec) coordination.Compaction {
		return cmp.Or(s.Compaction, coordination.NoCompaction)
	}
	if compaction(&want) != compaction(&t.Spec) {
		return nil
	}
	if want.Replicas != 0 && want.Replicas != t.Spec.Replicas || want.MinInSync != t.Spec.MinInSync || want.UncleanElection != t.Spec.UncleanElection {
		return nil
	}
	want.Replicas = t.Spec.Replicas
	if is, wanted := jsapi.StreamOf(name, &t.Spec), jsapi.StreamOf(name, &want); !reflect.DeepEqual(is, wanted) {
		return nil
	}
	return t
}

func samePartition(a, b *coordination.TopicSpec) bool {
	by := func(spec *coordination.TopicSpec) coordination.Partitioning {
		return cmp.Or(spec.PartitionBy, coordination.BySubject)
	}
	return by(a) == by(b) && slices.Equal(a.PartitionTokens, b.PartitionTokens)
}

// notWritten translates the error of a failed write.
func (s *Server) notWritten(what string, err error) *Error {
	var (
		invalid *coordination.InvalidError
		exists  *coordination.ExistsError
		overlap *coordination.OverlapError
		missing *coordination.NotFoundError
		owner   *coordination.NotOwnerError
		full    *coordination.FullError
		crowded *coordination.AttributesFullError
		limited *coordination.LimitError
		stale   *coordination.StaleError
	)
	switch {
	case errors.As(err, &crowded):
		return refuse(Refused, "%s", crowded.Error())
	case errors.As(err, &full):
		return refuse(Refused, "%s", full.Error())
	case errors.As(err, &limited):
		return refuse(Refused, "%s", limited.Error())
	case errors.As(err, &stale):
		return refuse(Changed, "%s", stale.Error())
	case errors.As(err, &invalid):
		return refuse(BadRequest, "%s", invalid.Error())
	case errors.As(err, &exists):
		return refuse(Exists, "%s", exists.Error())
	case errors.As(err, &overlap):
		return refuse(Refused, "%s", overlap.Error())
	case errors.As(err, &missing):
		return refuse(NotFound, "%s", missing.Error())
	case errors.As(err, &owner):
		return refuse(Refused, "%s", owner.Error())
	}
	s.log.Warn("Could not write what a client asked for", "what", what, "error", err)
	return refuse(Unavailable, "%s: the coordinators did not take it, or not in time: %v (ask again; if it stays so, look at the coordinators)", what, err)
}
