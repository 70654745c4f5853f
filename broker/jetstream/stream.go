package jetstream

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"math"
	"reflect"
	"time"

	"github.com/carillon-mq/carillon/broker/advisory"
	"github.com/carillon-mq/carillon/broker/coordination"
	"github.com/carillon-mq/carillon/broker/jsapi"
	"github.com/carillon-mq/carillon/broker/topic"
)

// client is the owner of everything that clients create. Clients are one owner: each may change and
// delete what others made.
var client = coordination.Owner{Kind: coordination.ClientOwner}

// clientOf returns that owner for what a user makes now, which counts towards the user's limits.
func clientOf(user string) coordination.Owner {
	by := client
	by.User = user
	return by
}

// streamRequest decodes and checks a StreamCreate or StreamUpdate.
func streamRequest(c *call) (*jsapi.StreamConfig, *jsapi.Error) {
	if emptyRequest(c.payload) {
		return nil, jsapi.ErrBadRequest
	}
	request, err := jsapi.Decode[jsapi.StreamRequest](c.payload)
	if err != nil {
		return nil, err
	}
	config := &request.StreamConfig
	if config.Name != string(c.Stream) {
		return nil, jsapi.ErrStreamMismatch
	}
	if request.Pedantic {
		if err := config.CheckPedantic(); err != nil {
			return nil, err
		}
	}
	return config, config.Normalize()
}

// emptyRequest reports whether the payload is empty or an empty JSON object.
func emptyRequest(payload []byte) bool {
	text := bytes.TrimSpace(payload)
	if len(text) == 0 || string(text) == "{}" {
		return true
	}
	var fields map[string]json.RawMessage
	return json.Unmarshal(text, &fields) == nil && len(fields) == 0
}

func (s *Server) createStream(ctx context.Context, c *call) {
	config, refusal := streamRequest(c)
	if refusal != nil {
		s.refuse(c, refusal)
		return
	}
	if refusal := cmp.Or(s.mayMake(c.user(), jsapi.ErrStreamCreate), config.CheckCreate(), config.CheckSources(s.state())); refusal != nil {
		s.refuse(c, refusal)
		return
	}
	spec := config.TopicSpec()
	if spec.Stream.Republish != nil || len(spec.Stream.Copies()) > 0 {
		spec.Stream.User = c.user()
	}
	if refusal := s.mayStream(c.user(), jsapi.ErrStreamCreate, &spec.Stream); refusal != nil {
		s.refuse(c, refusal)
		return
	}
	origin, err := spec.FindOrigin(ctx, s.config.Store.GetTopic)
	if err != nil {
		s.refuse(c, streamRefusal(err, jsapi.ErrStreamCreate))
		return
	}
	spec.ShardAsOrigin(origin)
	if refusal := config.CheckServed(s.state(), spec.Shards); refusal != nil {
		s.refuse(c, refusal)
		return
	}
	if refusal := s.enoughBrokers(config.Replicas); refusal != nil {
		if same := s.sameStream(ctx, config); same != nil { // created when there were more brokers
			s.answerCreated(ctx, c, same.ID)
			return
		}
		s.refuse(c, refusal)
		return
	}
	made, err := s.config.Store.CreateTopic(ctx, config.Name, spec, clientOf(c.user()))
	if mayExist(err) {
		made = s.sameStream(ctx, config)
	}
	if made == nil {
		s.refuse(c, streamRefusal(err, jsapi.ErrStreamCreate))
		return
	}
	if err == nil {
		s.config.Advisories.Stream(config.Name, advisory.Created)
	}
	s.answerCreated(ctx, c, made.ID)
}

// mayExist reports whether a creation failed although what exists already may be the same.
func mayExist(err error) bool {
	var (
		exists *coordination.ExistsError
		full   *coordination.FullError
		limit  *coordination.LimitError
	)
	return errors.As(err, &exists) || errors.As(err, &full) || errors.As(err, &limit)
}

// sameStream returns the existing stream of that name if its configuration equals the requested
// one, whoever declared it. Creating it again then succeeds.
func (s *Server) sameStream(ctx context.Context, config *jsapi.StreamConfig) *coordination.Topic {
	t, err := s.config.Store.GetTopic(ctx, config.Name)
	if err != nil || t.Deleting {
		return nil
	}
	is := jsapi.StreamOf(t.Name, &t.Spec)
	if t.Spec.Replicas == 0 { // the declaration leaves the number to the brokers
		is.Replicas = config.Replicas
	}
	if !reflect.DeepEqual(&is, config) {
		return nil
	}
	return t
}

// answerCreated answers the client once the stream is served. The broker that serves it sends the
// answer.
func (s *Server) answerCreated(ctx context.Context, c *call, id string) {
	var whole *topic.Topic
	done := s.until(ctx, func() bool {
		if t := s.topics.ByID(id); t != nil && len(t.Shards()) > 1 {
			whole = t
			return true
		}
		t := s.topics.ShardByKey(id)
		if t == nil {
			return false
		}
		switch leader := t.Leader(); leader {
		case "":
			return false
		case s.config.Self:
			shard := t.Led()
			if shard == nil {
				return false
			}
			s.answer(c, jsapi.StreamResponse{Response: jsapi.StreamCreate.Answer(), StreamInfo: s.describeCounted(t, shard), DidCreate: true})
			return true
		default:
			return !c.forwarded && s.askCreated(leader, id, c)
		}
	})
	if whole != nil {
		info, _, refusal := s.sumStreamInfo(ctx, whole, "")
		if refusal != nil {
			s.refuse(c, refusal)
			return
		}
		s.answer(c, jsapi.StreamResponse{Response: jsapi.StreamCreate.Answer(), StreamInfo: info, DidCreate: true})
		return
	}
	if done {
		return
	}
	why := "no broker has been given it yet"
	if t := s.topics.ShardByKey(id); t != nil && t.WhyNot() != nil {
		why = t.WhyNot().Error()
	}
	s.refuse(c, jsapi.ErrStreamOfflineReason.With("stream "+string(c.Stream)+" was made, but is not served yet: "+why))
}

func (s *Server) updateStream(ctx context.Context, c *call, t *topic.Shard) {
	to, refusal := streamRequest(c)
	if refusal != nil {
		s.refuse(c, refusal)
		return
	}
	if isShardOfMany(t) {
		s.refuse(c, refuseForOneShard(jsapi.ErrStreamUpdate, t, "changed"))
		return
	}
	if refusal := s.consumersAllow(t, to); refusal != nil {
		s.refuse(c, refusal)
		return
	}
	updated, refusal := s.storeUpdate(ctx, t.Desired(), to, c.user())
	if refusal != nil {
		s.refuse(c, refusal)
		return
	}
	// The answer shows the new configuration, so it waits until that is in effect.
	var shard *topic.ShardLeader
	holds := s.until(ctx, func() bool {
		if t = s.topics.ShardByKey(updated.ID); t == nil || t.Desired().Revision < updated.Revision {
			return false
		}
		shard = t.Led()
		return shard != nil
	})
	if !holds {
		s.refuse(c, jsapi.ErrStreamOfflineReason.With("the update is noted, and the stream is not served at the moment"))
		return
	}
	s.answer(c, jsapi.StreamResponse{Response: c.Call.Answer(), StreamInfo: s.describeCounted(t, shard)})
}

// storeUpdate checks a requested configuration and writes it to etcd.
func (s *Server) storeUpdate(ctx context.Context, desired *coordination.Topic, to *jsapi.StreamConfig, user string) (*coordination.Topic, *jsapi.Error) {
	from := s.streamOf(desired)
	if refusal := jsapi.CheckStreamUpdate(&from, to); refusal != nil {
		return nil, refusal
	}
	if refusal := to.CheckServed(s.state(), desired.Spec.Shards); refusal != nil {
		return nil, refusal
	}
	if refusal := to.CheckSources(s.state()); refusal != nil {
		return nil, refusal
	}
	if to.Replicas > from.Replicas { // fewer replicas are always possible
		if refusal := s.enoughBrokers(to.Replicas); refusal != nil {
			return nil, refusal
		}
	}
	spec := updatedSpec(&desired.Spec, from.Replicas, to)
	if spec.Stream.Republish != nil || len(spec.Stream.Copies()) > 0 {
		spec.Stream.User = user
	}
	if refusal := s.mayStream(user, jsapi.ErrStreamUpdate, &spec.Stream); refusal != nil {
		return nil, refusal
	}
	updated, err := s.config.Store.UpdateTopic(ctx, desired.Name, coordination.TopicUpdate{By: client, ID: desired.ID, Spec: spec})
	if err != nil {
		return nil, streamRefusal(err, jsapi.ErrStreamUpdate)
	}
	s.config.Advisories.Stream(desired.Name, advisory.Changed)
	return updated, nil
}

// updatedSpec returns the spec for the requested configuration. It keeps the settings that
// JetStream cannot express, and a number of replicas that is left to the brokers unless another
// number is requested.
func updatedSpec(was *coordination.TopicSpec, replicas int, to *jsapi.StreamConfig) coordination.TopicSpec {
	spec := to.TopicSpec()
	spec.Shards, spec.PartitionBy, spec.PartitionTokens = was.Shards, was.PartitionBy, was.PartitionTokens
	spec.MinInSync, spec.UncleanElection, spec.DeletionPolicy, spec.Compaction = was.MinInSync, was.UncleanElection, was.DeletionPolicy, was.Compaction
	spec.Stream.FirstSequence = was.Stream.FirstSequence // logs begin there
	if replicas == to.Replicas {
		spec.Replicas = was.Replicas
	}
	return spec
}

func (s *Server) deleteStream(ctx context.Context, c *call) {
	if !emptyRequest(c.payload) {
		s.refuse(c, jsapi.ErrNotEmptyRequest)
		return
	}
	name, id := string(c.Stream), ""
	if t := s.topics.Shard(name); t != nil && isShardOfMany(t) {
		s.refuse(c, refuseForOneShard(jsapi.ErrStreamDelete, t, "deleted"))
		return
	}
	if t := s.topics.Topic(name); t != nil {
		id = t.ID()
	}
	err := s.config.Store.DeleteTopic(ctx, name, "", client)
	if err != nil {
		s.refuse(c, streamRefusal(err, jsapi.ErrStreamDelete))
		return
	}
	s.config.Advisories.Stream(name, advisory.Deleted)
	// The answer must come after the stream can't be found here any more.
	s.until(ctx, func() bool {
		t := s.topics.Topic(name)
		return id == "" || t == nil || t.ID() != id || t.Desired().Deleting
	})
	s.answer(c, jsapi.DoneResponse{Response: c.Call.Answer(), Success: true})
}

// streamInfo answers with the info of a stream that is led here. Of deleted messages it lists as
// many as an answer has room for.
func (s *Server) streamInfo(c *call, t *topic.Shard, shard *topic.ShardLeader) {
	request, refusal := jsapi.Decode[jsapi.StreamInfoRequest](c.payload)
	if refusal != nil {
		s.refuse(c, refusal)
		return
	}
	response := jsapi.StreamInfoResponse{Response: c.Call.Answer(), StreamInfo: s.describeCounted(t, shard)}
	if s.config.Standalone { // of all calls only this one names the leader then, as with nats-server
		response.Cluster = &jsapi.ClusterInfo{Leader: s.config.Name}
	} else {
		response.Alternates = s.alternates(t.Name())
	}
	if request.DeletedDetails && response.State.NumDeleted > 0 {
		response.State.Deleted = shard.Deleted(listBytes / deletedBytes)
	}
	if request.SubjectsFilter != "" {
		if refusal := s.listSubjects(&response, shard, &request); refusal != nil {
			s.refuse(c, refusal)
			return
		}
	}
	s.answer(c, response)
}

// describeCounted is describeStream with the number of subjects.
func (s *Server) describeCounted(t *topic.Shard, shard *topic.ShardLeader) *jsapi.StreamInfo {
	info := s.describeStream(t, shard)
	info.State.NumSubjects = s.numSubjects(shard)
	return info
}

// describeStream returns the info of a stream that is led here.
func (s *Server) describeStream(t *topic.Shard, shard *topic.ShardLeader) *jsapi.StreamInfo {
	desired, is := t.Desired(), shard.Info()
	state := jsapi.StreamState{
		Messages: is.Messages, Bytes: uint64(max(is.Bytes, 0)),
		FirstSeq: is.First, FirstTime: is.FirstTime.UTC(), LastSeq: is.Last, LastTime: is.LastTime.UTC(),
		Consumers: len(s.consumerNamesOf(t)),
	}
	if span := is.Last + 1 - is.First; span > is.Messages {
		state.NumDeleted = int(min(span-is.Messages, math.MaxInt))
	}
	if is.Last == 0 {
		state.FirstSeq = 0 // as nats-server does for a stream that never had a message
	}
	config := s.streamOf(desired)
	config.Name = t.Name()
	if config.Mirror != nil { // the shard of its number
		config.Mirror.Name = coordination.ShardStream(config.Mirror.Name, desired.Spec.Shards, t.Number())
	}
	cluster := s.cluster(desired.ID, t.Number())
	noteFollowers(cluster, shard)
	info := &jsapi.StreamInfo{
		Config: config.Versioned(), Created: desired.Created.UTC(), State: state,
		Cluster: cluster, TimeStamp: time.Now().UTC(),
	}
	s.addSources(info, shard)
	return info
}
