package jetstream

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/carillon-mq/carillon/broker/advisory"
	"github.com/carillon-mq/carillon/broker/coordination"
	"github.com/carillon-mq/carillon/broker/jsapi"
	"github.com/carillon-mq/carillon/broker/protocol"
	"github.com/carillon-mq/carillon/broker/subscription"
	"github.com/carillon-mq/carillon/broker/topic"
)

// Calls on a Topic with several shards:
//
//  1. Each shard is a stream of its own, TOPIC--0 and so on. It cannot be changed or deleted alone,
//     nor have durable consumers of its own.
//  2. A call by the Topic's name is sent to the leader of each shard, and the answers are added up.
//  3. A call that needs one order over all shards is refused.
//  4. A consumer by the Topic's name is a Subscription in etcd, even without a durable name: in the
//     memory of the leaders, it would lose the messages of a shard whose leader changes.
//  5. A consumer by the Topic's name that has a deliver subject is served by a relay.

// shardOf splits the name of a shard's stream.
func shardOf(stream string) (of string, number int, ok bool) {
	i := strings.LastIndex(stream, "--")
	if i < 0 {
		return "", 0, false
	}
	number, err := strconv.Atoi(stream[i+2:])
	return stream[:i], number, err == nil && number >= 0
}

// shardedTopic returns the Topic of that name if it has several shards, or nil.
func (s *Server) shardedTopic(name string) *topic.Topic {
	if t := s.topics.Topic(name); t != nil && len(t.Shards()) > 1 {
		return t
	}
	return nil
}

// refuseUnordered is the refusal of a call that needs one sequence over all shards of a Topic,
// which has none.
func refuseUnordered(general *jsapi.Template, t *topic.Topic, what string) *jsapi.Error {
	all := t.Shards()
	return general.With(fmt.Sprintf("topic %s has %d shards, each with sequences of its own, so it can't have %s (ask a shard's stream: %s to %s)",
		t.Name(), len(all), what, all[0].Name(), all[len(all)-1].Name()))
}

// isShardOfMany reports whether a stream is one of several shards of a Topic.
func isShardOfMany(t *topic.Shard) bool { return len(t.Topic().Shards()) > 1 }

// refuseForOneShard is the refusal of a change to one shard that is possible for the whole Topic
// only.
func refuseForOneShard(general *jsapi.Template, t *topic.Shard, what string) *jsapi.Error {
	of := t.Topic()
	return general.With(fmt.Sprintf("stream %s is one of the %d shards of topic %s, and can't be %s on its own (name stream %s)", t.Name(), len(of.Shards()), of.Name(), what, of.Name()))
}

// serveSharded serves a call that names a Topic with several shards. It may block.
func (s *Server) serveSharded(ctx context.Context, c *call, of *topic.Topic) {
	switch c.Call {
	case jsapi.StreamInfoCall:
		s.shardedInfo(ctx, c, of)
	case jsapi.StreamUpdate:
		s.updateSharded(ctx, c, of)
	case jsapi.StreamPurge:
		s.purgeSharded(ctx, c, of)
	case jsapi.MessageGet, jsapi.DirectGet, jsapi.DirectGetLast:
		s.getFromSharded(c, of)
	case jsapi.MessageDelete:
		s.refuse(c, refuseUnordered(jsapi.ErrStreamMsgDeleteFailed, of, "a message deleted by its sequence"))
	case jsapi.ConsumerCreate, jsapi.ConsumerDurable:
		s.createShardedConsumer(ctx, c, of)
	case jsapi.ConsumerInfoCall:
		s.shardedConsumerInfo(ctx, c, of)
	case jsapi.ConsumerDelete:
		s.deleteShardedConsumer(ctx, c, of)
	case jsapi.ConsumerPause:
		s.pauseShardedConsumer(ctx, c, of)
	case jsapi.ConsumerUnpin:
		s.refuse(c, refuseUnordered(jsapi.ErrConsumerCreate, of, "a pinned client"))
	case jsapi.ConsumerReset:
		s.resetShardedConsumer(ctx, c, of)
	case jsapi.ConsumerNames:
		s.shardedConsumerNames(c, of)
	case jsapi.ConsumerList:
		s.shardedConsumerList(ctx, c, of)
	default:
		s.refuse(c, jsapi.ErrBadRequest)
	}
}

// askShards has the leader of each shard serve a call about its stream, and returns the answers by
// shard number. If one shard refuses or does not answer in time, it returns a refusal.
func askShards[T any](ctx context.Context, s *Server, of *topic.Topic, subject func(stream string) string, payload []byte) ([]T, *jsapi.Error) {
	all := of.Shards()
	number, answered := s.peerRequests.Begin(len(all))
	defer s.peerRequests.End(number)
	if !s.until(ctx, func() bool { return !anyWithoutLeader(all) }) {
		return nil, streamOffline(firstUnserved(all))
	}
	for _, p := range all {
		q := peerRequest{From: s.config.Self, Number: number, Stream: p.Key(), Name: subject(p.Name()), Payload: payload, Within: timeLeft(ctx)}
		if leader := p.Leader(); leader == s.config.Self {
			s.answerFor(q, func(t peerAnswer) { s.peerRequests.Answer(t.Number, t) })
		} else if !s.forward(leader, callSubject, nil, q) {
			return nil, streamOffline(p.WhyNot())
		}
	}
	answers, missing := make([]T, len(all)), len(all)
	for missing > 0 {
		select {
		case got := <-answered:
			p := s.topics.ShardByKey(got.Stream)
			if p == nil {
				return nil, jsapi.ErrStreamNotFound
			}
			var refused jsapi.Response
			if err := json.Unmarshal(got.Answer, &refused); err != nil {
				return nil, jsapi.ErrStreamGeneral.With(err)
			}
			if refused.Error != nil {
				return nil, refused.Error
			}
			if err := json.Unmarshal(got.Answer, &answers[p.Number()]); err != nil {
				return nil, jsapi.ErrStreamGeneral.With(err)
			}
			missing--
		case <-ctx.Done():
			return nil, jsapi.ErrStreamOfflineReason.With(fmt.Sprintf("%d of the %d shards of topic %s did not answer in time; try again", missing, len(all), of.Name()))
		}
	}
	return answers, nil
}

func anyWithoutLeader(all []*topic.Shard) bool {
	for _, p := range all {
		if p.Leader() == "" && streamStarting(p.WhyNot()) {
			return true
		}
	}
	return false
}

func firstUnserved(all []*topic.Shard) error {
	for _, p := range all {
		if p.Leader() == "" {
			return p.WhyNot()
		}
	}
	return nil
}

func timeLeft(ctx context.Context) time.Duration {
	if until, ok := ctx.Deadline(); ok {
		return time.Until(until) * 9 / 10 // so that the shard's refusal arrives in time
	}
	return 0
}

// answerFor serves an API call of another broker, or of this one, about a stream that is led here.
func (s *Server) answerFor(q peerRequest, tell func(peerAnswer)) {
	c := newCall(&protocol.Message{Subject: []byte(q.Name), Data: q.Payload}, true, min(max(q.Within, 0), s.timeouts.answer))
	c.respond = func(data []byte) { tell(peerAnswer{Number: q.Number, Stream: q.Stream, Answer: data}) }
	s.submitCall(c)
}

func (s *Server) shardedInfo(ctx context.Context, c *call, of *topic.Topic) {
	request, refusal := jsapi.Decode[jsapi.StreamInfoRequest](c.payload)
	response := jsapi.StreamInfoResponse{Response: c.Call.Answer()}
	if refusal == nil {
		response.StreamInfo, response.Paged, refusal = s.sumStreamInfo(ctx, of, request.SubjectsFilter)
	}
	if refusal != nil {
		s.refuse(c, refusal)
		return
	}
	if !s.config.Standalone {
		response.Alternates = s.alternates(of.Name())
	}
	s.answer(c, response)
}

// sumStreamInfo returns the info of a Topic with several shards, with the subjects that match a
// filter if it is not empty.
func (s *Server) sumStreamInfo(ctx context.Context, of *topic.Topic, subjects string) (*jsapi.StreamInfo, jsapi.Paged, *jsapi.Error) {
	var payload []byte
	if subjects != "" {
		payload, _ = json.Marshal(jsapi.StreamInfoRequest{SubjectsFilter: subjects}) // a struct of this form can always be encoded
	}
	answers, refusal := askShards[jsapi.StreamInfoResponse](ctx, s, of, func(stream string) string { return jsapi.APIPrefix + "STREAM.INFO." + stream }, payload)
	if refusal != nil {
		return nil, jsapi.Paged{}, refusal
	}
	shards := make([]*jsapi.StreamInfo, 0, len(answers))
	for i := range answers {
		if answers[i].StreamInfo == nil {
			return nil, jsapi.Paged{}, jsapi.ErrStreamOffline
		}
		shards = append(shards, answers[i].StreamInfo)
	}
	info, paged := s.sumShards(of.Desired(), shards), jsapi.Paged{}
	if subjects != "" {
		paged, refusal = s.sumSubjects(info, answers, of.Name())
	}
	return info, paged, refusal
}

// sumShards adds up the shards' stream infos to the Topic's. Its sequences count records: last_seq
// is the number of records ever stored.
func (s *Server) sumShards(desired *coordination.Topic, shards []*jsapi.StreamInfo) *jsapi.StreamInfo {
	info := &jsapi.StreamInfo{Config: s.streamOf(desired).Versioned(), Created: desired.Created.UTC(), TimeStamp: time.Now().UTC()}
	state := &info.State
	state.Consumers = len(s.state().Subscriptions(desired.ID))
	unknown := false // how many subjects a shard has
	for _, one := range shards {
		is := &one.State
		state.Messages += is.Messages
		state.Bytes += is.Bytes
		state.LastSeq += is.LastSeq
		state.NumSubjects += is.NumSubjects
		unknown = unknown || is.Messages > 0 && is.NumSubjects == 0
		if is.LastSeq > 0 && (state.FirstTime.IsZero() || is.FirstTime.Before(state.FirstTime)) {
			state.FirstTime = is.FirstTime
		}
		if is.LastTime.After(state.LastTime) {
			state.LastTime = is.LastTime
		}
	}
	if unknown {
		state.NumSubjects = 0
	}
	if state.LastSeq > 0 {
		state.FirstSeq = state.LastSeq - state.Messages + 1
	}
	sumSources(info, shards)
	return info
}

func (s *Server) updateSharded(ctx context.Context, c *call, of *topic.Topic) {
	to, refusal := streamRequest(c)
	var updated *coordination.Topic
	if refusal == nil {
		updated, refusal = s.storeUpdate(ctx, of.Desired(), to, c.user())
	}
	if refusal != nil {
		s.refuse(c, refusal)
		return
	}
	known := s.until(ctx, func() bool {
		is := s.topics.ByID(updated.ID)
		return is != nil && is.Desired().Revision >= updated.Revision
	})
	info, _, refusal := s.sumStreamInfo(ctx, of, "")
	if !known || refusal != nil {
		s.refuse(c, jsapi.ErrStreamOfflineReason.With("the update is noted, and the stream is not served at the moment"))
		return
	}
	s.answer(c, jsapi.StreamResponse{Response: c.Call.Answer(), StreamInfo: info})
}

// purgeSharded purges all shards. It refuses purges by sequence or count, which need one order.
func (s *Server) purgeSharded(ctx context.Context, c *call, of *topic.Topic) {
	request, refusal := jsapi.Decode[jsapi.PurgeRequest](c.payload)
	switch {
	case refusal != nil:
	case request.Sequence > 0 || request.Keep > 0:
		refusal = refuseUnordered(jsapi.ErrStreamPurgeFailed, of, "messages purged by sequence or by number")
	default:
		var answers []jsapi.PurgeResponse
		if answers, refusal = askShards[jsapi.PurgeResponse](ctx, s, of, func(stream string) string { return jsapi.APIPrefix + "STREAM.PURGE." + stream }, c.payload); refusal == nil {
			total := jsapi.PurgeResponse{Response: c.Call.Answer(), Success: true}
			for _, one := range answers {
				total.Purged += one.Purged
			}
			s.answer(c, total)
			return
		}
	}
	s.refuse(c, refusal)
}

// getFromSharded forwards the call to the shard of the subject, which the request must name.
func (s *Server) getFromSharded(c *call, of *topic.Topic) {
	request := jsapi.GetRequest{LastFor: string(c.Filter)}
	if c.Call != jsapi.DirectGetLast {
		var refusal *jsapi.Error
		if request, refusal = jsapi.Decode[jsapi.GetRequest](c.payload); refusal == nil {
			refusal = request.Check()
		}
		if refusal != nil {
			s.refuse(c, refusal)
			return
		}
	}
	subject := request.LastFor
	if subject == "" && request.Sequence <= 1 {
		subject = request.NextFor
	}
	if subject == "" || strings.ContainsAny(subject, "*>") {
		refusal := refuseUnordered(jsapi.ErrStreamGeneral, of, "a message found by its sequence or by a pattern")
		if c.Call == jsapi.MessageGet {
			s.refuse(c, refusal)
		} else {
			s.refuseDirect(c, jsapi.Status("400 "+refusal.Description))
		}
		return
	}
	p := of.ShardFor([]byte(subject))
	call := map[jsapi.Call]string{jsapi.MessageGet: "STREAM.MSG.GET.", jsapi.DirectGet: "DIRECT.GET.", jsapi.DirectGetLast: "DIRECT.GET."}[c.Call] + p.Name()
	if c.Call == jsapi.DirectGetLast {
		call += "." + subject
	}
	m := c.message
	m.Subject = []byte(jsapi.APIPrefix + call)
	if !s.sendToLeader(p.Leader(), s.named(c, &m)) {
		s.serve(newCall(s.named(c, &m), true, time.Until(c.deadline)))
	}
}

func consumerInfoOf(consumer string) func(string) string {
	return func(stream string) string { return jsapi.APIPrefix + "CONSUMER.INFO." + stream + "." + consumer }
}

// createShardedConsumer creates a consumer, which has a cursor in each shard. The leader of the
// first shard does it, so that counting consumers and creating one is atomic.
func (s *Server) createShardedConsumer(ctx context.Context, c *call, of *topic.Topic) {
	if !c.forwarded && s.sendToLeader(of.Leader(), s.from(c.client, &c.message)) {
		return
	}
	stream := s.streamOf(of.Desired())
	request, refusal := consumerRequest(c, &stream)
	if refusal == nil {
		refusal = cmp.Or(s.mayMake(request.User, jsapi.ErrConsumerCreate), s.mayJudge(request, of, len(of.Shards())))
	}
	if refusal == nil {
		switch config := &request.Config; {
		case config.PriorityPolicy != "":
			refusal = refuseUnordered(jsapi.ErrConsumerCreate, of, "priority groups")
		case config.IsOrdered():
			refusal = refuseUnordered(jsapi.ErrConsumerCreate, of, "an ordered consumer, as one is that has no durable name, acknowledges nothing and is kept in memory")
		case config.DeliverPolicy == jsapi.DeliverFromSequence:
			refusal = refuseUnordered(jsapi.ErrConsumerCreate, of, "a consumer that starts at a sequence")
		case config.DeliverSubject != "":
			refusal = cmp.Or(s.mayDeliver(request.User, config.DeliverSubject),
				s.needs(coordination.FeatureRelays, "push consumers of a topic with several shards need"))
		}
	}
	if refusal != nil {
		s.refuse(c, refusal)
		return
	}
	if stream.MaxConsumers > 0 || stream.IsWorkQueue() {
		lock := s.limitedLock(of.ID())
		lock.Lock()
		defer lock.Unlock()
	}
	defer s.relays.hold(of.ID(), request.Config.Name)()
	declared, refusal := s.storeShardedConsumer(ctx, of, &stream, request)
	var info *jsapi.ConsumerInfo
	if refusal == nil {
		info, refusal = s.sumConsumerInfo(ctx, of, declared, true)
	}
	if refusal != nil {
		s.refuse(c, refusal)
		return
	}
	s.answer(c, jsapi.ConsumerResponse{Response: c.Call.Answer(), ConsumerInfo: info})
}

// storeShardedConsumer creates or changes a consumer. Of a work queue it writes only what it has
// judged beside all others: if another broker, that led the first shard before, has written one
// since, it judges anew.
func (s *Server) storeShardedConsumer(ctx context.Context, of *topic.Topic, stream *jsapi.StreamConfig, request *jsapi.ConsumerRequest) (*coordination.Subscription, *jsapi.Error) {
	for {
		since := int64(0)
		if stream.IsWorkQueue() {
			since = s.state().Revision
		}
		is, refusal, err := s.tryStoreShardedConsumer(ctx, of, stream, request, since)
		if since > 0 && isStale(err) && s.until(ctx, func() bool { return s.state().Revision > since }) {
			continue
		}
		if err != nil {
			return nil, consumerRefusal(err)
		}
		return is, refusal
	}
}

// tryStoreShardedConsumer is storeShardedConsumer that returns a *coordination.StaleError if a
// consumer was written after a revision; 0: any may be.
func (s *Server) tryStoreShardedConsumer(ctx context.Context, of *topic.Topic, stream *jsapi.StreamConfig, request *jsapi.ConsumerRequest, since int64) (*coordination.Subscription, *jsapi.Error, error) {
	to := &request.Config
	existing := s.state().Subscription(of.ID(), to.Name)
	if existing == nil {
		switch {
		case request.Action == jsapi.UpdateConsumer:
			return nil, jsapi.ErrConsumerDoesNotExist, nil
		case stream.MaxConsumers > 0 && len(s.state().Subscriptions(of.ID())) >= stream.MaxConsumers && s.countDeclared(ctx, of) >= stream.MaxConsumers:
			return nil, jsapi.ErrMaximumConsumersLimit, nil
		case to.Durable == "" && s.ephemerals(of) >= shardedEphemerals:
			return nil, jsapi.ErrConsumerCreate.With(fmt.Sprintf("topic %s has %d consumers that are not durable, as many as may be by its name (end some, share them, or read each shard's stream)", of.Name(), shardedEphemerals)), nil
		}
		if refusal := s.checkShardedQueue(ctx, of, stream, to); refusal != nil {
			return nil, refusal, nil
		}
		made, err := s.config.Store.CreateSubscriptionSince(ctx, of.Name(), to.Name, request.SubscriptionSpec(), clientOf(request.User), since)
		if err == nil {
			s.config.Advisories.Consumer(of.Name(), to.Name, advisory.Created)
			return made, nil, nil
		}
		if !errors.Is(consumerRefusal(err), jsapi.ErrConsumerAlreadyExists) {
			return nil, nil, err
		}
		// Another client created it at the same time, and this broker's State lacks it still.
		if !s.until(ctx, func() bool { existing = s.state().Subscription(of.ID(), to.Name); return existing != nil }) {
			return nil, consumerOffline(nil), nil
		}
	}
	from := s.shardedConsumerConfig(of, existing)
	to.PauseUntil = from.PauseUntil // only a ConsumerPause changes it
	if same, refusal := request.CheckUpdate(&from); same || refusal != nil {
		return existing, refusal, nil
	}
	if from.Durable == "" && to.Durable != "" {
		return nil, refuseUnordered(jsapi.ErrConsumerCreate, of, "a consumer made durable: durable name can not be updated"), nil
	}
	if from.DeliverSubject != to.DeliverSubject && s.config.Hub.Interested([]byte(from.DeliverSubject)) {
		return nil, jsapi.ErrConsumerNameExist, nil // its messages would go elsewhere
	}
	if refusal := s.checkShardedQueue(ctx, of, stream, to); refusal != nil {
		return nil, refusal, nil
	}
	spec := keepUnmapped(request.SubscriptionSpec(), existing.Spec)
	updated, err := s.config.Store.UpdateSubscription(ctx, of.Name(), to.Name, coordination.SubscriptionUpdate{By: client, Spec: spec, Since: since})
	return updated, nil, err
}

// checkShardedQueue refuses a consumer that a work queue can't have, or not beside the others.
func (s *Server) checkShardedQueue(ctx context.Context, of *topic.Topic, stream *jsapi.StreamConfig, config *jsapi.ConsumerConfig) *jsapi.Error {
	if !stream.IsWorkQueue() {
		return nil
	}
	var others []jsapi.ConsumerConfig
	for _, declared := range s.state().Subscriptions(of.ID()) {
		if declared.Name != config.Name {
			others = append(others, jsapi.ConsumerOf(declared.Name, declared.Spec))
		}
	}
	refusal := config.CheckQueued(others)
	if refusal == nil || len(others) == 0 {
		return refusal
	}
	return config.CheckQueued(slices.DeleteFunc(others, func(other jsapi.ConsumerConfig) bool {
		return config.CheckQueued([]jsapi.ConsumerConfig{other}) != nil && s.isDeleted(ctx, of, other.Name)
	}))
}

// isDeleted reports whether a consumer of the State was deleted, as etcd has it. Another broker may
// have answered that before this broker's State lacks the consumer.
func (s *Server) isDeleted(ctx context.Context, of *topic.Topic, name string) bool {
	_, err := s.config.Store.GetSubscription(ctx, of.Name(), name)
	_, deleted := errors.AsType[*coordination.NotFoundError](err)
	return deleted
}

// countDeclared returns how many consumers of the State etcd still has.
func (s *Server) countDeclared(ctx context.Context, of *topic.Topic) (n int) {
	for _, declared := range s.state().Subscriptions(of.ID()) {
		if !s.isDeleted(ctx, of, declared.Name) {
			n++
		}
	}
	return n
}

// ephemerals returns the number of consumers without a durable name of a Topic with several shards.
func (s *Server) ephemerals(of *topic.Topic) (n int) {
	for _, sub := range s.state().Subscriptions(of.ID()) {
		if sub.Spec.Consumer.Ephemeral {
			n++
		}
	}
	return n
}

// usedInAShard reports whether a consumer was used in any shard within the given duration. It
// reports true if that is unknown.
func (s *Server) usedInAShard(ctx context.Context, of *topic.Topic, name string, within time.Duration) bool {
	shards, refusal := askShards[jsapi.ConsumerResponse](ctx, s, of, consumerInfoOf(name), nil)
	if refusal != nil {
		return true // it will be checked again
	}
	for i := range shards {
		is := shards[i].ConsumerInfo
		if is == nil || is.NumWaiting > 0 {
			return true
		}
		for _, last := range []*time.Time{is.Delivered.Last, is.AckFloor.Last} {
			if last != nil && is.TimeStamp.Sub(*last) < within { // both times are of one broker's clock
				return true
			}
		}
	}
	return false
}

// shardedConsumerConfig returns the consumer configuration of a Subscription of a Topic with
// several shards.
func (s *Server) shardedConsumerConfig(of *topic.Topic, declared *coordination.Subscription) jsapi.ConsumerConfig {
	config := jsapi.ConsumerOf(declared.Name, declared.Spec)
	if config.Replicas > 0 {
		config.Replicas = replicasOf(s.state(), of.Desired())
	}
	return config
}

// sumConsumerInfo adds up the shards' consumer infos. With just, it waits until all shards serve
// the Subscription as declared.
func (s *Server) sumConsumerInfo(ctx context.Context, of *topic.Topic, declared *coordination.Subscription, just bool) (*jsapi.ConsumerInfo, *jsapi.Error) {
	want := s.shardedConsumerConfig(of, declared)
	for {
		shards, refusal := askShards[jsapi.ConsumerResponse](ctx, s, of, consumerInfoOf(declared.Name), nil)
		if refusal == nil && (!just || allApplied(shards, declared, &want)) {
			info := &jsapi.ConsumerInfo{
				Stream: of.Name(), Name: declared.Name, Created: declared.Created.UTC(), Config: want.Versioned(), TimeStamp: time.Now().UTC(),
				NumWaiting: s.groups.waiting(of.ID(), declared.Name),
			}
			for i := range shards {
				info.Add(shards[i].ConsumerInfo)
			}
			return info, nil
		}
		if refusal != nil && (!just || !errors.Is(refusal, jsapi.ErrConsumerNotFound)) {
			return nil, refusal
		}
		select { // a shard's leader does not know it yet
		case <-time.After(s.timeouts.poll):
		case <-ctx.Done():
			return nil, consumerOffline(nil)
		}
	}
}

func allApplied(shards []jsapi.ConsumerResponse, declared *coordination.Subscription, want *jsapi.ConsumerConfig) bool {
	for i := range shards {
		if is := shards[i].ConsumerInfo; is == nil || !is.Created.Equal(declared.Created) || !is.Config.Equal(want) {
			return false
		}
	}
	return true
}

func (s *Server) shardedConsumerInfo(ctx context.Context, c *call, of *topic.Topic) {
	name := string(c.Consumer)
	refusal := jsapi.ErrNotEmptyRequest
	if emptyRequest(c.payload) {
		refusal = jsapi.ErrConsumerNotFound
		var info *jsapi.ConsumerInfo
		if declared := s.state().Subscription(of.ID(), name); declared != nil {
			info, refusal = s.sumConsumerInfo(ctx, of, declared, false)
		}
		if info != nil {
			s.answer(c, jsapi.ConsumerResponse{Response: c.Call.Answer(), ConsumerInfo: info})
			return
		}
	}
	s.refuse(c, refusal)
}

func (s *Server) deleteShardedConsumer(ctx context.Context, c *call, of *topic.Topic) {
	if !emptyRequest(c.payload) {
		s.refuse(c, jsapi.ErrNotEmptyRequest)
		return
	}
	name := string(c.Consumer)
	was := s.state().Subscription(of.ID(), name)
	if err := s.config.Store.DeleteSubscription(ctx, of.Name(), name, 0, client); err != nil {
		s.refuse(c, consumerRefusal(err))
		return
	}
	s.config.Advisories.Consumer(of.Name(), name, advisory.Deleted)
	// The answer must come after the consumer can't be found here any more.
	s.until(ctx, func() bool {
		is := s.state().Subscription(of.ID(), name)
		return is == nil || was != nil && is.Made != was.Made
	})
	s.groups.end(of.ID(), name, subscription.Deleted)
	s.answer(c, jsapi.DoneResponse{Response: c.Call.Answer(), Success: true})
}

func (s *Server) shardedConsumers(of *topic.Topic) (names []string) {
	for _, sub := range s.state().Subscriptions(of.ID()) { // sorted by name
		names = append(names, sub.Name)
	}
	return names
}

func (s *Server) shardedConsumerNames(c *call, of *topic.Topic) {
	request, refusal := jsapi.Decode[jsapi.PageRequest](c.payload)
	if refusal != nil {
		s.refuse(c, refusal)
		return
	}
	page, paged := jsapi.Page(s.shardedConsumers(of), request.Offset, jsapi.NamesPage)
	s.answer(c, jsapi.ConsumerNamesResponse{Response: c.Call.Answer(), Paged: paged, Consumers: page})
}

// shardedListPage is the number of consumers per page of a list: each one costs a request to every
// shard.
const shardedListPage = 32

func (s *Server) shardedConsumerList(ctx context.Context, c *call, of *topic.Topic) {
	request, refusal := jsapi.Decode[jsapi.PageRequest](c.payload)
	if refusal != nil {
		s.refuse(c, refusal)
		return
	}
	response := jsapi.ConsumerListResponse{Response: c.Call.Answer(), Consumers: []*jsapi.ConsumerInfo{}}
	page, paged := jsapi.Page(s.shardedConsumers(of), request.Offset, shardedListPage)
	for _, name := range page {
		var info *jsapi.ConsumerInfo
		if declared := s.state().Subscription(of.ID(), name); declared != nil {
			info, _ = s.sumConsumerInfo(ctx, of, declared, false)
		}
		if info == nil {
			response.Missing = append(response.Missing, name)
			continue
		}
		response.Consumers = append(response.Consumers, info)
	}
	paged.DropMissing(len(response.Missing), len(response.Consumers))
	response.Paged = paged
	s.answer(c, response)
}
